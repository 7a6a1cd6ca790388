-- Replies that are not what the contract says: one clear SQLSTATE, nothing recorded, and the
-- next call works.
SELECT plan(121);
SET sprite_lockdown.max_attempts = 1;
SET sprite_lockdown.request_timeout = '2s';
CREATE FUNCTION code_of(query text) RETURNS text LANGUAGE plpgsql AS
$$ BEGIN EXECUTE query; RETURN 'none'; EXCEPTION WHEN query_canceled OR OTHERS THEN RETURN SQLSTATE; END $$;
CREATE FUNCTION quoted(value text) RETURNS text LANGUAGE sql AS $$ SELECT to_jsonb(value)::text $$;

SELECT is(reason, 'fresh', 'a Sprite') FROM sprite_get_or_create('h', egress_policy());
SELECT sim.vm('h')->>'id' AS id, '"id": "' || (sim.vm('h')->>'id') || '", "name": "h", "status": "running", "url": "https://h"' AS good \gset
SELECT '{"rules": [{"domain": "*", "action": "deny"}]}' AS deny \gset

-- A GET of the Sprite whose body is wrong.
CREATE FUNCTION refuses(what text, fault jsonb, expected text) RETURNS SETOF text LANGUAGE plpgsql AS
$$
BEGIN
	PERFORM sim.fault('{"kind": "get"}'::jsonb || fault);
	RETURN NEXT is(code_of('SELECT sprite_get_or_create(''h'', egress_policy())'), expected, what);
	RETURN NEXT is(code_of('SELECT sprite_get_or_create(''h'', egress_policy())'), 'none', '... and the next call works');
END
$$;
SELECT refuses(what, jsonb_build_object('body', body), '08P01') FROM (VALUES
	('no body', ''), ('no JSON', 'hello'), ('an array', '[]'), ('null', 'null'), ('a string', '"x"'), ('two documents', '{' || :'good' || '}{}'),
	('junk behind', '{' || :'good' || '} x'), ('a document cut short', '{' || :'good'), ('a comment', '/* x */{' || :'good' || '}'),
	('single quotes', '{''id'': ''x''}'), ('a trailing comma', '{' || :'good' || ',}'),
	('a name that is missing', '{"id": "x", "status": "s", "url": "u"}'), ('null', '{"id": "x", "name": null, "status": "s", "url": "u"}'),
	('a number', '{"id": "x", "name": 7, "status": "s", "url": "u"}'), ('another''s', '{"id": "x", "name": "i", "status": "s", "url": "u"}'),
	('a status that is missing', '{"id": "x", "name": "h", "url": "u"}'), ('no text', '{"id": "x", "name": "h", "status": [], "url": "u"}'),
	('a url that is missing', '{"id": "x", "name": "h", "status": "s"}'), ('an object', '{"id": "x", "name": "h", "status": "s", "url": {}}'),
	('an id that is a number', '{"id": 7, "name": "h", "status": "s", "url": "u"}'), ('true', '{"id": true, "name": "h", "status": "s", "url": "u"}'),
	('huge', '{"id": "' || repeat('x', 256) || '", "name": "h", "status": "s", "url": "u"}'),
	('an id with a control character', '{"id": "a\nb", "name": "h", "status": "s", "url": "u"}'),
	('an id with a NUL', '{"id": "a\u0000b", "name": "h", "status": "s", "url": "u"}'),
	('a lone surrogate', '{' || :'good' || ', "x": "\ud800"}'), ('the other half', '{' || :'good' || ', "x": "\udc00"}'),
	('a surrogate pair in the wrong order', '{' || :'good' || ', "x": "\udc00\ud800"}'),
	('a duplicate key', '{' || :'good' || ', "id": "other"}'), ('a duplicate key in disguise', '{' || :'good' || ', "\u0069d": "other"}'),
	('a duplicate key further in', '{' || :'good' || ', "x": [{"a": 1, "a": 1}]}'),
	('NaN', '{' || :'good' || ', "x": NaN}'), ('Infinity', '{' || :'good' || ', "x": -Infinity}'), ('True', '{' || :'good' || ', "x": True}'),
	('deep nesting', '{' || :'good' || ', "x": ' || repeat('[', 100) || repeat(']', 100) || '}'),
	('very deep nesting', repeat('{"a":', 100000)),
	('a time that is none', '{' || :'good' || ', "created_at": "yesterday"}'), ('a time in month 13', '{' || :'good' || ', "created_at": "2026-13-01T00:00:00Z"}')
) AS v(what, body);
SELECT refuses('bytes that are not UTF-8', jsonb_build_object('raw_hex', encode(convert_to(E'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 6\r\n\r\n{"', 'UTF8') || '\xff223a317d'::bytea, 'hex')), '08P01');
SELECT refuses('a NUL byte', jsonb_build_object('raw_hex', encode(convert_to(E'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\r\n{}', 'UTF8') || '\x00'::bytea, 'hex')), '08P01');
SELECT refuses('another content type', jsonb_build_object('headers', '{"Content-Type": "text/html"}'::jsonb), '08P01');
SELECT refuses('a content type that only begins right', jsonb_build_object('headers', '{"Content-Type": "application/jsonx"}'::jsonb), '08P01');
SELECT refuses('another status', '{"status": 204}', '08P01');
SELECT refuses('a status that nobody knows', '{"status": 299, "body": {}}', '08P01');
SELECT refuses('a body over the limit that says so', '{"raw": "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000000\r\n\r\n"}', '54000');
SELECT refuses('a header line that is too long', jsonb_build_object('headers', jsonb_build_object('X-Long', repeat('x', 100000))), '54000');
SELECT is(code_of('SELECT sprite_attach(''h'')'), 'none', 'headers of 8 KB are not') FROM (SELECT sim.fault(jsonb_build_object('kind', 'get', 'headers', jsonb_build_object('X-Long', repeat('x', 8192))))) AS f;
SELECT refuses('interim replies without end', jsonb_build_object('raw', repeat(E'HTTP/1.1 100 Continue\r\n\r\n', 10000)), '54000');
SELECT refuses('what is not HTTP', '{"raw": "SSH-2.0-OpenSSH\r\n"}', '08P01');
SELECT refuses('HTTP 0.9', '{"raw": "hello"}', '08P01');
SELECT refuses('a byte now and then', '{"slow": 5}', '08006');
SELECT refuses('a redirect', '{"status": 307, "headers": {"Location": "https://evil.example/"}}', '08P01');

-- a stream without end is refused without being taken in
SELECT sim.fault('{"kind": "get", "stream": 1000000000}');
SELECT is(code_of('SELECT sprite_get_or_create(''h'', egress_policy())'), '54000', 'a body without end');
SELECT ok((sim.call('GET', 'state')->>'streamed_bytes')::bigint < 40000000, 'is cut off near the limit');
SET sprite_lockdown.max_response_bytes = '1kB';
SELECT is(code_of('SELECT sprite_get_or_create(''h'', egress_policy())'), 'none', 'a limit of 1 kB does for a Sprite');
SELECT sim.do('list-of-some-length-' || i, 'create') FROM generate_series(1, 9) AS i;
SELECT is(code_of('SELECT count(*) FROM sprite_list()'), '54000', 'but not for a list');
RESET sprite_lockdown.max_response_bytes;

-- the other calls
CREATE FUNCTION wrong(kind text, body text, query text, expected text) RETURNS text LANGUAGE plpgsql AS
$$
BEGIN
	PERFORM sim.fault(jsonb_build_object('kind', kind, 'body', body));
	RETURN is(code_of(query), expected, format('%s that answers %s', kind, left(body, 60)));
END
$$;
SELECT wrong('list', b, 'SELECT count(*) FROM sprite_list()', '08P01') FROM unnest(ARRAY['{}', '{"sprites": {}}', '{"sprites": [7]}', '{"sprites": [{}]}', '{"sprites": [], "next_continuation_token": 7}']) AS b;
SELECT sim.fault('{"kind": "list", "times": 3, "body": "{\"sprites\": [], \"next_continuation_token\": \"aA==\"}"}');
SELECT is(code_of('SELECT count(*) FROM sprite_list()'), '08P01', 'a list that goes round in a circle');
SELECT sim.reset();
SELECT sim.do('h', 'create', '{"id": "new-vm"}');
SELECT wrong('policy_get', b, 'SELECT sprite_get_or_create(''h'', egress_policy())', '08P01') FROM unnest(ARRAY['', '[]', '{"rules": {}}', '{"rules": [7]}', '{"rules": [{"domain": "*", "domain": "*", "action": "deny"}]}']) AS b;
SELECT is((SELECT egress_policy_token LIKE 'new-vm:%' FROM machine_sessions WHERE session_key = 'h'), false, 'nothing of it was recorded');
SELECT wrong('policy_get', '{"rules": [{"domain": "*", "action": 7}]}', 'SELECT sprite_get_or_create(''h'', egress_policy())', 'SP007');
SELECT is(code_of('SELECT sprite_get_or_create(''h'', egress_policy())'), 'none', 'the call after all that works');
SELECT ok(sim.vm('h')->'policy' = egress_policy() AND NOT sim.ran_open('h'), 'and nothing ever ran in an open VM');

SELECT * FROM finish();
