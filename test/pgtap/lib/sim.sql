-- Control of the simulated platform from SQL.  sprite_test.url is its address,
-- sprite_test.token its token; the harness sets both.
CREATE EXTENSION IF NOT EXISTS plpython3u;
CREATE SCHEMA sim;

CREATE FUNCTION sim.url() RETURNS text LANGUAGE sql STABLE AS
$$ SELECT current_setting('sprite_test.url') $$;

-- One control call; path is what follows /__sim/.  A proxy that the server's environment
-- names is not for it.
CREATE FUNCTION sim.call(method text, path text, body jsonb DEFAULT NULL)
RETURNS jsonb LANGUAGE plpython3u AS
$$
import urllib.error
import urllib.request
url = plpy.execute("SELECT sim.url() AS url")[0]["url"]
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
request = urllib.request.Request(url + "/__sim/" + path, method=method,
                                 data=body.encode() if body is not None else None)
try:
    with opener.open(request, timeout=60) as reply:
        return reply.read().decode()
except urllib.error.HTTPError as error:
    plpy.error("simulator: " + error.read().decode())
$$;

-- Text as a part of a path or query.
CREATE FUNCTION sim.quote(word text) RETURNS text LANGUAGE plpython3u IMMUTABLE STRICT AS
$$
import urllib.parse
return urllib.parse.quote(word, safe="")
$$;

CREATE FUNCTION sim.reset() RETURNS void LANGUAGE sql AS
$$ SELECT sim.call('POST', 'reset', '{}') $$;
CREATE FUNCTION sim.switch(switches jsonb) RETURNS void LANGUAGE sql AS
$$ SELECT sim.call('POST', 'switches', switches) $$;
CREATE FUNCTION sim.fault(fault jsonb) RETURNS void LANGUAGE sql AS
$$ SELECT sim.call('POST', 'fault', fault) $$;
CREATE FUNCTION sim.hold(hold jsonb) RETURNS void LANGUAGE sql AS
$$ SELECT sim.call('POST', 'hold', hold) $$;
CREATE FUNCTION sim.held(count integer DEFAULT 1, timeout integer DEFAULT 10)
RETURNS integer LANGUAGE sql AS
$$ SELECT (sim.call('GET', format('held?count=%s&timeout=%s', count, timeout))->>'held')::integer $$;
CREATE FUNCTION sim.release() RETURNS void LANGUAGE sql AS
$$ SELECT sim.call('POST', 'release', '{}') $$;

-- Requests since the last sim.clear(), by kind.
CREATE FUNCTION sim.clear() RETURNS void LANGUAGE sql AS
$$ SELECT sim.call('POST', 'requests/clear', '{}') $$;
CREATE FUNCTION sim.report(name text DEFAULT NULL) RETURNS jsonb LANGUAGE sql AS
$$ SELECT sim.call('GET', 'requests' || coalesce('?name=' || sim.quote(name), '')) $$;
CREATE FUNCTION sim.counts(name text DEFAULT NULL) RETURNS jsonb LANGUAGE sql AS
$$ SELECT sim.report(name)->'counts' $$;
CREATE FUNCTION sim.requests(kind text DEFAULT NULL, name text DEFAULT NULL)
RETURNS integer LANGUAGE sql AS
$$ SELECT CASE WHEN kind IS NULL THEN (sim.report(name)->>'total')::integer
          ELSE coalesce((sim.counts(name)->>kind)::integer, 0) END $$;
-- Waits until so many requests of a kind have arrived, or for so many seconds; says how
-- many have.
CREATE FUNCTION sim.wait_requests(kind text, name text DEFAULT NULL, count integer DEFAULT 1,
                                  timeout integer DEFAULT 10)
RETURNS integer LANGUAGE sql AS
$$ SELECT (sim.call('GET', format('wait_requests?kind=%s&count=%s&timeout=%s', kind, count, timeout)
                           || coalesce('&name=' || sim.quote(name), ''))->>'count')::integer $$;
CREATE FUNCTION sim.log(name text DEFAULT NULL) RETURNS SETOF jsonb LANGUAGE sql AS
$$ SELECT jsonb_array_elements(sim.report(name)->'log') $$;

-- Ground truth.
CREATE FUNCTION sim.vms() RETURNS SETOF jsonb LANGUAGE sql AS
$$ SELECT value FROM jsonb_each(sim.call('GET', 'state')->'vms') $$;
CREATE FUNCTION sim.vm(name text) RETURNS jsonb LANGUAGE sql AS
$$ SELECT state->'vms'->(state->'names'->>name) FROM sim.call('GET', 'state') AS state $$;
-- True if a command ever reached any VM of this name while it was open.
CREATE FUNCTION sim.ran_open(name text) RETURNS boolean LANGUAGE sql AS
$$ SELECT coalesce(bool_or((v->>'exec_while_open')::boolean), false)
   FROM sim.vms() AS v WHERE v->>'name' = ran_open.name $$;

-- What other clients, or time, do to a VM: create, replace, delete, policy, ...
CREATE FUNCTION sim.do(name text, action text, body jsonb DEFAULT '{}')
RETURNS void LANGUAGE sql AS
$$ SELECT sim.call('POST', format('vm/%s/%s', sim.quote(name), action), body) $$;

-- Makes a foreign server lead to the simulator, for the current user.
CREATE FUNCTION sim.point_server(server name DEFAULT 'sprites') RETURNS void LANGUAGE plpgsql AS
$$
BEGIN
	EXECUTE format('ALTER SERVER %I OPTIONS (SET api_url %L)', server, sim.url());
	EXECUTE format('DROP USER MAPPING IF EXISTS FOR CURRENT_USER SERVER %I', server);
	EXECUTE format('CREATE USER MAPPING FOR CURRENT_USER SERVER %I OPTIONS (token %L)',
				   server, current_setting('sprite_test.token'));
END
$$;
