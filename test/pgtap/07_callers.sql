-- Callers: rights, search_path, servers, the platform's 401.  What needs a connection of
-- its own comes first, since the plan does not survive one.
CREATE ROLE pgtap_app;
GRANT USAGE ON SCHEMA sprite TO pgtap_app;
GRANT USAGE ON FOREIGN SERVER sprites TO pgtap_app;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA sprite TO pgtap_app;
SELECT format('CREATE USER MAPPING FOR pgtap_app SERVER sprites OPTIONS (token %L)', current_setting('sprite_test.token')) \gexec

-- operators, functions and tables of the caller's are not used
CREATE FUNCTION public.evil(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'EV001'; END $$;
CREATE FUNCTION public.evil(name, name) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'EV001'; END $$;
CREATE SCHEMA evil;
GRANT USAGE, CREATE ON SCHEMA evil TO PUBLIC;
CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = public.evil);
CREATE OPERATOR evil.= (LEFTARG = name, RIGHTARG = name, FUNCTION = public.evil);
CREATE OPERATOR evil.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = public.evil);
CREATE FUNCTION evil.starts_with(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'EV002'; END $$;
CREATE FUNCTION evil.now() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'EV003'; END $$;
CREATE FUNCTION evil.answers() RETURNS text[] LANGUAGE plpgsql AS
$$
DECLARE
	found text[];
BEGIN
	found := found || (SELECT reason FROM sprite.sprite_get_or_create('app', sprite.egress_policy()));
	found := found || (SELECT reason FROM sprite.sprite_get_or_create('app', sprite.egress_policy('open')));
	found := found || (SELECT reason FROM sprite.sprite_get_or_create('app2', sprite.egress_policy('open')));
	found := found || (SELECT reason FROM sprite.sprite_lockdown_plan('app', sprite.egress_policy('open')));
	RETURN found || sprite.sprite_destroy('app')::text;
END
$$;
SELECT reason AS first FROM sprite.sprite_get_or_create('app', sprite.egress_policy()) \gset
-- in a backend that has no plans yet
\c -
SET ROLE pgtap_app;
CREATE TEMP TABLE machine_sessions (session_key text, server_name name, sprite_name text, egress_policy_token text);
CREATE TEMP TABLE lockdown_journal (server_name name, sprite_name text, kind text);
CREATE FUNCTION pg_temp.egress_policy(text, text[]) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{"rules": []}'::jsonb $$;
SET search_path = pg_temp, evil, pg_catalog;
CREATE TEMP TABLE answers AS SELECT evil.answers() AS a;
RESET search_path;
RESET ROLE;
SELECT a AS evil_answers, (SELECT array_agg(session_key) FROM sprite.machine_sessions) AS evil_keys FROM pg_temp.answers \gset
\c -

SELECT plan(15);
SELECT is(:'evil_answers'::text, '{proven,policy_changed,fresh,proven,true}', 'nothing depends on the caller''s search_path');
SELECT is(:'evil_keys'::text, '{app2}', 'and the right table was written');

SET ROLE pgtap_app;
SELECT is(reason, 'fresh', 'EXECUTE, USAGE and a mapping are enough') FROM sprite_get_or_create('app', egress_policy());
SELECT is(reason, 'proven', 'the row is read as its owner') FROM sprite_get_or_create('app', egress_policy());
SELECT throws_ok('SELECT * FROM machine_sessions', '42501', NULL, 'though not by the caller');
SELECT is(current_user::text, 'pgtap_app', 'who is still who it was');
RESET ROLE;

-- row security does not hide the row from the functions
ALTER TABLE machine_sessions ENABLE ROW LEVEL SECURITY;
ALTER TABLE machine_sessions FORCE ROW LEVEL SECURITY;
SET ROLE pgtap_app;
SELECT is(reason, 'proven', 'row security changes nothing') FROM sprite_get_or_create('app', egress_policy());
RESET ROLE;
ALTER TABLE machine_sessions NO FORCE ROW LEVEL SECURITY;
ALTER TABLE machine_sessions DISABLE ROW LEVEL SECURITY;

-- SQL in what callers pass
SELECT is(session_key, $$'; DROP TABLE machine_sessions; --$$, 'a session key is data') FROM sprite_get_or_create('app2', egress_policy('open'), $$'; DROP TABLE machine_sessions; --$$);
SELECT is((SELECT count(*) FROM sprite.machine_sessions WHERE sprite_name = 'app2'), 2::bigint, 'and stored as it is');

-- a server of one's own
CREATE SERVER "my server" FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (api_url 'https://unused.example');
SELECT sim.point_server('my server');
SELECT is(reason, 'no_proof', 'a row of one server is no proof on another') FROM sprite_get_or_create('app2', egress_policy('open'), server => 'my server');
SELECT is((SELECT server_name FROM sprite.machine_sessions WHERE session_key = 'app2'), 'my server', 'the row says which server it was');

-- a token that the platform refuses
ALTER USER MAPPING FOR CURRENT_USER SERVER "my server" OPTIONS (SET token 'wrong');
SELECT throws_ok($$ SELECT sprite_get_or_create('app2', egress_policy('open'), server => 'my server') $$, 'SP004', NULL, '401 is SP004');
SELECT throws_ok($$ SELECT sprite_get_or_create('app9', egress_policy('open'), server => 'my server') $$, 'SP004', NULL, 'also for a name that does not exist');
SELECT is((SELECT count(*) FROM sim.vms() AS v WHERE v->>'name' = 'app9'), 0::bigint, 'and creates nothing');

DROP OWNED BY pgtap_app;
DROP ROLE pgtap_app;
SELECT pass('the role could be dropped');
SELECT * FROM finish();
