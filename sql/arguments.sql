-- Arguments are refused before any request.  The server leads to a port that nobody
-- listens on, so a request would end in 08001: any other SQLSTATE shows that none was made.
CREATE EXTENSION sprite_lockdown;
ALTER SERVER sprites OPTIONS (SET api_url 'http://127.0.0.1:1');
CREATE USER MAPPING FOR CURRENT_USER SERVER sprites OPTIONS (token 'secret');
\set VERBOSITY sqlstate
\set good '''{"rules": [{"domain": "*", "action": "deny"}]}'''

-- all is well, so a request is tried
SELECT sprite_get_or_create('demo', :good);
SELECT sprite_attach('demo');
SELECT sprite_lockdown_plan('demo', :good);
SELECT sprite_ensure_lockdown('demo', :good);
SELECT sprite_destroy('demo');
SELECT sprite_list();
SELECT sprite_network_policy('demo');

-- names
CREATE FUNCTION code_of(query text) RETURNS text LANGUAGE plpgsql AS
$$
BEGIN
	EXECUTE query;
	RETURN 'none';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END
$$;
SELECT n AS name, f AS function, code_of(format(f, n))
FROM unnest(ARRAY['../x', 'a/b', 'a%2fb', repeat('a', 64), '', E'a\nb', 'Demo', 'a.b', '.', '..', '-a', 'a-', 'a_b', ' a', E'\u00e9', E'a\u212a']) AS n,
     unnest(ARRAY['SELECT sprite_get_or_create(%L, ''{"rules": [{"domain": "*", "action": "deny"}]}'')',
                  'SELECT sprite_destroy(%L)']) AS f
WHERE code_of(format(f, n)) <> '22023';
SELECT n AS name, code
FROM unnest(ARRAY['../x', 'a/b', 'a%2fb', repeat('a', 64), '', E'a\nb', 'Demo', repeat('a', 63), 'a', '0', 'a-0']) AS n,
     code_of(format('SELECT sprite_attach(%L)', n)) AS code;
SELECT code_of('SELECT sprite_list(''a_b'')'), code_of('SELECT sprite_list(''a-'')'), code_of('SELECT sprite_list(NULL)');

-- nulls
SELECT sprite_get_or_create(NULL, :good);
SELECT sprite_get_or_create('demo', NULL);
SELECT sprite_get_or_create('demo', :good, server => NULL);
SELECT sprite_ensure_lockdown(NULL, :good);
SELECT sprite_ensure_lockdown('demo', NULL);
SELECT sprite_attach(NULL);
SELECT sprite_lockdown_plan(NULL, :good);
SELECT sprite_lockdown_plan('demo', NULL);
SELECT sprite_destroy(NULL);
SELECT sprite_network_policy(NULL);
SELECT sprite_get_or_create('demo', :good, session_key => '');

-- every error of policy_problems(), and what is no policy at all
SELECT f AS function, policy
FROM (VALUES ('{"rules": []}'), ('[]'), ('{}'), ('null'), ('{"rules": null}'), ('{"rules": [{"domain": 1}]}'),
             ('{"rules": [{"domain": "a.com", "action": "allow"}]}'),
             ('{"rules": [{"domain": "*", "action": "deny"}, {"domain": "a.com", "action": "deny"}, {"domain": "a.com", "action": "allow"}]}'),
             ('{"rules": [{"domain": "*", "action": "deny"}, {"domain": "*.b.c", "action": "deny"}, {"domain": "*.c", "action": "allow"}]}'),
             ('{"rules": [{"domain": "*", "action": "deny", "x": "y"}]}'), ('{"rules": [{"domain": "*", "action": "drop"}]}'),
             ('{"rules": [{"domain": "*", "action": "deny"}, {"include": "ai", "domain": "a.com"}]}'),
             ('{"rules": [{"domain": "*", "action": "deny"}, {"domain": "A.com", "action": "allow"}]}'),
             ('{"rules": [{"domain": "*", "action": "deny"}, {"domain": "1.2.3.4", "action": "allow"}]}'),
             ('{"rules": [{"domain": "*", "action": "deny"}, {}]}'), ('{"rules": [{"domain": "*", "action": "deny"}], "x": 1}')) AS v(policy),
     unnest(ARRAY['sprite_get_or_create', 'sprite_ensure_lockdown', 'sprite_lockdown_plan']) AS f
WHERE code_of(format('SELECT %I(''demo'', %L)', f, policy)) <> '22023';

-- configuration of a create
SELECT config, code_of(format('SELECT sprite_get_or_create(''demo'', ''{"rules": [{"domain": "*", "action": "deny"}]}'', config => %L)', config))
FROM unnest(ARRAY['{}', '{"ram_mb": 2048, "cpus": 2, "storage_gb": 10, "region": "iad"}', '[]', '7', '{"ram_mb": "2048"}', '{"ram_mb": 0}',
                  '{"ram_mb": -1}', '{"cpus": 1.5}', '{"cpus": 1e30}', '{"cpus": 2147483648}', '{"region": 7}', '{"region": ""}', '{"region": "a b"}',
                  '{"region": null}', '{"disk": 1}', '{"cpus": [1]}', '{"region": {"a": 1}}']) AS config;

-- nothing is sent from a read-only transaction
BEGIN READ ONLY;
SELECT sprite_get_or_create('demo', :good);
ROLLBACK;
BEGIN READ ONLY;
SELECT sprite_ensure_lockdown('demo', :good);
ROLLBACK;
BEGIN READ ONLY;
SELECT sprite_destroy('demo');
ROLLBACK;
-- what changes nothing may be asked in one
BEGIN READ ONLY;
SELECT sprite_lockdown_plan('demo', :good);
ROLLBACK;

SELECT count(*) FROM machine_sessions;
DROP FUNCTION code_of;
DROP EXTENSION sprite_lockdown CASCADE;
