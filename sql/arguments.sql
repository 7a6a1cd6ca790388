-- Arguments are refused before any request.  The server leads to a port that nobody listens on,
-- so a request would end in 08001: any other SQLSTATE says that none was made.
SET client_min_messages = warning;
CREATE EXTENSION sprite_lockdown;
ALTER SERVER sprites OPTIONS (SET api_url 'http://127.0.0.1:1');
CREATE USER MAPPING FOR CURRENT_USER SERVER sprites OPTIONS (token 'secret');
SET sprite_lockdown.max_attempts = 1;
\set VERBOSITY sqlstate
\set good '''{"rules": [{"domain": "*", "action": "deny"}]}'''
CREATE FUNCTION code_of(query text) RETURNS text LANGUAGE plpgsql AS
$$
BEGIN
	EXECUTE query;
	RETURN 'none';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END
$$;

-- every argument by its name, all in order
SELECT sprite_get_or_create(name => 'demo', policy => :good, session_key => 'k', config => '{"ram_mb": 512}',
	server => 'sprites');
SELECT sprite_ensure_lockdown(name => 'demo', policy => :good, applied_token => 'id:hash', config => '{"ram_mb": 512}',
	server => 'sprites');
SELECT sprite_attach(name => 'demo', server => 'sprites');
SELECT sprite_lockdown_plan(name => 'demo', policy => :good, session_key => 'k', server => 'sprites');
SELECT sprite_destroy(name => 'demo', server => 'sprites');
SELECT sprite_list(prefix => 'de', server => 'sprites');
SELECT sprite_network_policy(name => 'demo', server => 'sprites');

--
-- Names
--
CREATE TABLE calls (n serial, function text, call text);
INSERT INTO calls (function, call)
SELECT f, format('SELECT %I(%%L%s)', f, more)
FROM (VALUES ('sprite_get_or_create', ', ''{"rules": [{"domain": "*", "action": "deny"}]}'''),
             ('sprite_ensure_lockdown', ', ''{"rules": [{"domain": "*", "action": "deny"}]}'''),
             ('sprite_lockdown_plan', ', ''{"rules": [{"domain": "*", "action": "deny"}]}'''),
             ('sprite_attach', ''), ('sprite_destroy', ''), ('sprite_network_policy', '')) AS v(f, more);
CREATE TABLE names (name text);
INSERT INTO names VALUES ('../x'), ('a/b'), ('a%2fb'), (repeat('a', 64)), (''), (E'a\nb'), ('Demo'), ('DEMO'), ('.'), ('..'),
	('/'), ('a.b'), ('a_b'), ('a:b'), ('a?b'), ('a#b'), ('a@b'), ('a\b'), ('a"b'), ('a''b'), ('a;b'), ('*'), ('-'), ('-a'), ('a-'),
	(' a'), ('a '), ('a b'), (E'a\n'), (E'\na'), (E'a\r'), (E'a\tb'), (E'a\x01'), (E'a\x7f'), ('a' || chr(233)), (repeat('a', 63) || '-'), (repeat('a', 1000000));
-- which of them are not refused by which function
SELECT count(*) AS tried, count(DISTINCT call) AS functions, count(*) FILTER (WHERE code <> '22023') AS not_refused
FROM names, calls, LATERAL code_of(format(call, name)) AS code;
-- and what is a name
SELECT name, count(*) FILTER (WHERE code = '08001') AS accepted_by
FROM unnest(ARRAY['a', '0', 'a0', '0-a', 'a--b', 'xn--bcher-kva', repeat('a', 63)]) AS name, calls,
	LATERAL code_of(format(call, name)) AS code GROUP BY 1 ORDER BY name COLLATE "C";
-- the beginning of a name
SELECT prefix, code_of(format('SELECT sprite_list(%L)', prefix))
FROM unnest(ARRAY['', 'a', 'a-', 'a0', NULL, '../', 'a/', 'A', 'a%', 'a&x=1', 'a b', E'a\n', 'a_b', '*']) AS prefix;
\set VERBOSITY default
SELECT sprite_attach('../x');
SELECT sprite_attach('');
SELECT sprite_attach(repeat('a', 64));
SELECT sprite_attach('a-');
SELECT sprite_list('a/b');
\set VERBOSITY sqlstate

--
-- Nulls: name, policy and server must be given, the rest may be
--
SELECT sprite_get_or_create(NULL, :good);
SELECT sprite_get_or_create('demo', NULL);
SELECT sprite_get_or_create('demo', :good, server => NULL);
SELECT sprite_get_or_create('demo', :good, NULL, NULL);
SELECT sprite_ensure_lockdown(NULL, :good);
SELECT sprite_ensure_lockdown('demo', NULL);
SELECT sprite_ensure_lockdown('demo', :good, server => NULL);
SELECT sprite_ensure_lockdown('demo', :good, NULL, NULL);
SELECT sprite_attach(NULL);
SELECT sprite_attach('demo', NULL);
SELECT sprite_lockdown_plan(NULL, :good);
SELECT sprite_lockdown_plan('demo', NULL);
SELECT sprite_lockdown_plan('demo', :good, server => NULL);
SELECT sprite_lockdown_plan('demo', :good, NULL);
SELECT sprite_destroy(NULL);
SELECT sprite_destroy('demo', NULL);
SELECT sprite_list(NULL, NULL);
SELECT sprite_network_policy(NULL);
SELECT sprite_network_policy('demo', NULL);

--
-- Session keys: any text that an index can hold
--
SELECT code_of($$ SELECT sprite_get_or_create('demo', '{"rules": [{"domain": "*", "action": "deny"}]}', '') $$) AS empty,
	code_of($$ SELECT sprite_lockdown_plan('demo', '{"rules": [{"domain": "*", "action": "deny"}]}', '') $$) AS empty_plan,
	code_of($$ SELECT sprite_get_or_create('demo', '{"rules": [{"domain": "*", "action": "deny"}]}', E'../ ''";\n') $$) AS odd;
SELECT length(key), code_of(format('SELECT sprite_get_or_create(%L, %L, %L)', 'demo', :good, key))
FROM (SELECT string_agg(md5(i::text), '' ORDER BY i) FROM generate_series(1, 32) AS i
	  UNION ALL SELECT string_agg(md5(i::text), '' ORDER BY i) FROM generate_series(1, 100) AS i) AS v(key);

--
-- Policies: all that policy_problems() calls an error, and what is no policy at all
--
CREATE TABLE policies (n serial, policy jsonb);
INSERT INTO policies (policy) VALUES
	('{"rules": []}'),
	('{"rules": [{"domain": "a.com", "action": "allow"}]}'),
	('{"rules": [{"domain": "*", "action": "deny"}, {"domain": "a.com", "action": "deny"}, {"domain": "a.com", "action": "allow"}]}'),
	('{"rules": [{"domain": "*", "action": "deny"}, {"domain": "*", "action": "allow"}]}'),
	('{"rules": [{"domain": "*", "action": "deny"}, {"domain": "*.b.c", "action": "deny"}, {"domain": "*.c", "action": "allow"}]}'),
	('{"rules": [{"domain": "*", "action": "deny", "x": "y"}]}'),
	('{"rules": [{"domain": "*", "action": "deny"}], "x": 1}'),
	('{"rules": [{"domain": "*", "action": "deny"}, {"domain": "a.com", "action": "drop"}]}'),
	('{"rules": [{"domain": "*", "action": "deny"}, {"domain": "a.com", "action": "Allow"}]}'),
	('{"rules": [{"domain": "*", "action": "deny"}, {"include": "defaults", "domain": "a.com"}]}'),
	('{"rules": [{"domain": "*", "action": "deny"}, {"include": ""}]}'),
	('{"rules": [{"domain": "*", "action": "deny"}, {"domain": "a.com"}]}'),
	('{"rules": [{"domain": "*", "action": "deny"}, {"action": "allow"}]}'),
	('{"rules": [{"domain": "*", "action": "deny"}, {}]}');
INSERT INTO policies (policy)
SELECT jsonb_build_object('rules', jsonb_build_array(jsonb_build_object('domain', '*', 'action', 'deny'),
	jsonb_build_object('domain', domain, 'action', 'allow')))
FROM unnest(ARRAY['', 'A.com', '1.2.3.4', '[::1]', '::1', 'a.com:443', 'https://a.com', 'a.com/', 'a.com.', '.a.com', 'a..com',
	'a.*.com', '**.com', '*a.com', '*.', 'a b.com', '-a.com',
	E'a.com\n', repeat('a', 64) || '.com', 'a.com' || chr(233)]) AS domain;
-- the error codes that are covered, and what is not refused by which function
SELECT code, count(DISTINCT n) AS policies FROM policies, policy_problems(policy) WHERE severity = 'error'
GROUP BY 1 ORDER BY code COLLATE "C";
SELECT n, f AS function, policy
FROM policies, unnest(ARRAY['sprite_get_or_create', 'sprite_ensure_lockdown', 'sprite_lockdown_plan']) AS f
WHERE code_of(format('SELECT %I(''demo'', %L)', f, policy)) <> '22023' ORDER BY n;
SELECT policy, f AS function
FROM unnest(ARRAY['[]', '{}', 'null', '7', '"rules"', '{"rules": null}', '{"rules": {}}',
	'{"rules": "x"}', '{"rules": [7]}', '{"rules": [[]]}', '{"rules": [null]}',
	'{"rules": [{"domain": 1}]}', '{"rules": [{"domain": "*", "action": null}]}',
	'{"rules": [{"domain": ["*"], "action": "deny"}]}']) AS policy,
	unnest(ARRAY['sprite_get_or_create', 'sprite_ensure_lockdown', 'sprite_lockdown_plan']) AS f
WHERE code_of(format('SELECT %I(''demo'', %L)', f, policy)) <> '22023';
-- a warning is no error
SELECT n, code_of(format('SELECT sprite_get_or_create(%L, %L)', 'demo', policy)) FROM (VALUES
	(1, '{"rules": [{"domain": "*", "action": "deny"}, {"domain": "*", "action": "deny"}]}'),
	(2, '{"rules": [{"domain": "*", "action": "deny"}, {"include": "defaults"}]}'),
	(3, '{"rules": [{"domain": "*", "action": "deny"}, {"domain": "x.internal", "action": "allow"}]}'),
	(4, '{"rules": [{"domain": "*", "action": "deny"}, {"domain": "api.sprites.dev", "action": "allow"}]}'),
	(5, '{"rules": [{"domain": "*", "action": "allow"}]}')) AS v(n, policy);
-- under policy_check = warn an error is a warning, but what is no policy stays refused
SET sprite_lockdown.policy_check = 'warn';
SET client_min_messages = error;
SELECT code_of(format('SELECT sprite_get_or_create(%L, %L)', 'demo', policy)) AS code, count(*) FROM policies GROUP BY 1;
SELECT sprite_get_or_create('demo', '{"rules": [{"domain": 1}]}');
RESET sprite_lockdown.policy_check;
SET client_min_messages = warning;

--
-- Configuration of a create
--
SELECT config, code_of(format('SELECT sprite_get_or_create(%L, %L, config => %L)', 'demo', :good, config)) AS get_or_create,
	code_of(format('SELECT sprite_ensure_lockdown(%L, %L, config => %L)', 'demo', :good, config)) AS ensure_lockdown
FROM unnest(ARRAY['{}', '{"ram_mb": 2048, "cpus": 2, "storage_gb": 10, "region": "iad"}', '{"ram_mb": 1}',
	'{"cpus": 2147483647}', '{"region": "iad"}',
	'[]', '7', 'null', '"iad"', '{"ram_mb": "2048"}', '{"ram_mb": 0}', '{"ram_mb": -1}', '{"ram_mb": null}', '{"ram_mb": true}',
	'{"cpus": 1.5}', '{"cpus": 1e30}', '{"cpus": 2147483648}',
	'{"cpus": [1]}', '{"storage_gb": {}}', '{"region": 7}', '{"region": ""}', '{"region": "a b"}', '{"region": "a\nb"}',
	'{"region": null}', '{"region": {"a": 1}}',
	'{"disk": 1}', '{"RAM_MB": 1}', '{"ram_mb": 1, "image": "x"}']) AS config;
SELECT code_of(format('SELECT sprite_get_or_create(%L, %L, config => %L)', 'demo', :good, jsonb_build_object('region', region)))
FROM unnest(ARRAY[repeat('a', 64), repeat('a', 65), 'a' || chr(233)]) AS region;
\set VERBOSITY default
SELECT sprite_get_or_create('demo', :good, config => '{"disk": 1}');
SELECT sprite_get_or_create('demo', :good, config => '{"cpus": 1.5}');
\set VERBOSITY sqlstate

--
-- A transaction that may not write
--
SET default_transaction_read_only = on;
SELECT sprite_get_or_create('demo', :good);
SELECT sprite_ensure_lockdown('demo', :good);
SELECT sprite_destroy('demo');
-- what changes nothing may be asked in one
SELECT sprite_lockdown_plan('demo', :good);
SELECT sprite_attach('demo');
SELECT sprite_list();
SELECT sprite_network_policy('demo');
RESET default_transaction_read_only;

-- after all that only what was not refused has left a trace
SELECT count(*) FROM machine_sessions;
SELECT kind, action, min(sprite_name COLLATE "C"), count(DISTINCT sprite_name) AS names
FROM lockdown_journal GROUP BY 1, 2 ORDER BY 1, 2;
DROP TABLE calls, names, policies;
DROP FUNCTION code_of;
DROP EXTENSION sprite_lockdown CASCADE;
