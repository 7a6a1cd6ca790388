-- A policy that is none, that is empty, or whose meaning is not defined is refused before any
-- request, by every function that takes one, whether or not the Sprite exists.
SELECT plan(14);
CREATE FUNCTION code_of(query text) RETURNS text LANGUAGE plpgsql AS
$$ BEGIN EXECUTE query; RETURN 'none'; EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE; END $$;
CREATE TEMP TABLE functions AS SELECT unnest('{sprite_get_or_create,sprite_ensure_lockdown,sprite_lockdown_plan}'::text[]) AS f;
SELECT is(reason, 'fresh', 'a Sprite that exists') FROM sprite_get_or_create('here', egress_policy());

-- what policy_problems() calls an error: one policy for each code, and more for domains
CREATE TEMP TABLE errors (code text, policy jsonb);
INSERT INTO errors VALUES
	('no_rules', '{"rules": []}'),
	('no_catch_all', '{"rules": [{"domain": "a.com", "action": "allow"}]}'),
	('no_catch_all', '{"rules": [{"domain": "*.com", "action": "deny"}]}'),
	('no_catch_all', '{"rules": [{"include": "defaults"}]}'),
	('unknown_key', '{"rules": [{"domain": "*", "action": "deny"}], "default": "allow"}'),
	('unknown_key', '{"rules": [{"domain": "*", "action": "deny"}, {"domain": "a.com", "action": "allow", "ports": "443"}]}'),
	('unknown_key', '{"rules": [{"domain": "*", "action": "deny"}, {"Domain": "a.com", "action": "allow"}]}'),
	('unknown_action', '{"rules": [{"domain": "*", "action": "drop"}]}'),
	('unknown_action', '{"rules": [{"domain": "*", "action": "deny"}, {"domain": "a.com", "action": "Allow"}]}'),
	('unknown_action', '{"rules": [{"domain": "*", "action": ""}]}'),
	('missing_action', '{"rules": [{"domain": "*"}]}'),
	('missing_domain', '{"rules": [{"domain": "*", "action": "deny"}, {"action": "allow"}]}'),
	('empty_rule', '{"rules": [{"domain": "*", "action": "deny"}, {}]}'),
	('empty_include', '{"rules": [{"domain": "*", "action": "deny"}, {"include": ""}]}'),
	('include_with_domain', '{"rules": [{"domain": "*", "action": "deny"}, {"include": "defaults", "domain": "a.com"}]}'),
	('include_with_domain', '{"rules": [{"domain": "*", "action": "deny"}, {"include": "defaults", "action": "allow"}]}'),
	('conflicting_actions', '{"rules": [{"domain": "*", "action": "deny"}, {"domain": "a.com", "action": "allow"}, {"domain": "a.com", "action": "deny"}]}'),
	('conflicting_actions', '{"rules": [{"domain": "*", "action": "deny"}, {"domain": "*", "action": "allow"}]}'),
	('nested_wildcards', '{"rules": [{"domain": "*", "action": "deny"}, {"domain": "*.b.c", "action": "deny"}, {"domain": "*.c", "action": "allow"}]}'),
	('nested_wildcards', '{"rules": [{"domain": "*", "action": "deny"}, {"domain": "*.a.b.c.d", "action": "allow"}, {"domain": "*.d", "action": "deny"}]}');
INSERT INTO errors SELECT 'invalid_domain', jsonb_build_object('rules', jsonb_build_array('{"domain": "*", "action": "deny"}'::jsonb, jsonb_build_object('domain', d, 'action', 'allow')))
FROM unnest(ARRAY['', ' ', 'A.com', 'a.com.', '.a.com', 'a..com', 'a.*.com', '**.a.com', '*a.com', 'a*', '*.', '*.*', '1.2.3.4', '*.1.2.3.4', '::1', '[::1]', '256.256.256.256',
	'a.com:443', 'https://a.com', 'a.com/x', 'a com', ' a.com', E'a.com\n', E'a\u00e9.com', E'\u212a.com', '-a.com', 'a-.com', 'user@a.com', repeat('a', 64) || '.com', rpad('a', 300, '.a')]) AS d;
SELECT is((SELECT array_agg(DISTINCT code ORDER BY code) FROM errors),
	'{conflicting_actions,empty_include,empty_rule,include_with_domain,invalid_domain,missing_action,missing_domain,nested_wildcards,no_catch_all,no_rules,unknown_action,unknown_key}'::text[],
	'every error of policy_problems() is here');
SELECT is_empty($$ SELECT code, policy FROM errors AS e WHERE NOT EXISTS (SELECT FROM policy_problems(e.policy) AS p WHERE p.code = e.code AND p.severity = 'error') $$,
	'and policy_problems() names it');

-- what is no policy at all
CREATE TEMP TABLE refused AS SELECT policy::text FROM errors UNION ALL SELECT unnest(ARRAY['{}', '[]', 'null', '7', '"rules"', 'true', '{"rules": null}', '{"rules": {}}', '{"rules": "*"}', '{"rules": 1}',
	'{"rules": [null]}', '{"rules": [7]}', '{"rules": ["*"]}', '{"rules": [[]]}', '{"rules": [{"domain": null, "action": "deny"}]}', '{"rules": [{"domain": "*", "action": null}]}',
	'{"rules": [{"domain": ["*"], "action": "deny"}]}', '{"rules": [{"domain": "*", "action": {"a": "deny"}}]}', '{"rules": [{"domain": "*", "action": true}]}', '{"Rules": [{"domain": "*", "action": "deny"}]}']);

SELECT sim.clear();
SELECT is_empty($$ SELECT f, name, policy, code FROM refused, functions, unnest('{here,nowhere}'::text[]) AS name, code_of(format('SELECT %s(%L, %L)', f, name, policy)) AS code WHERE code <> '22023' $$,
	'each is refused with 22023 by each function that takes a policy');
SELECT is(sim.requests(), 0, 'and not one request is made');
SELECT is((SELECT array_agg(session_key) FROM machine_sessions), '{here}', 'no row comes of it');
SELECT is((SELECT count(*) FROM lockdown_journal WHERE action = 'push' OR sprite_name = 'nowhere'), 0::bigint, 'and no entry in the journal');
SELECT is(sim.vm('here')->'policy', egress_policy(), 'the Sprite that exists runs what it ran');
SELECT is(code_of($$ SELECT sprite_get_or_create('here', NULL) $$), '22004', 'no policy is no policy either');
SELECT is(sim.requests(), 0, 'without a request');

-- it is the first that is looked at: before rights, server and lock
SELECT is(code_of($$ SELECT sprite_get_or_create('here', '{"rules": []}', server => 'no such server') $$), '22023', 'whatever else is wrong with the call');

-- a warning is not a refusal
CREATE TEMP TABLE warned AS SELECT policy FROM unnest(ARRAY['{"rules": [{"domain": "*", "action": "deny"}, {"domain": "*", "action": "deny"}]}', '{"rules": [{"domain": "*", "action": "deny"}, {"include": "defaults"}]}',
	'{"rules": [{"domain": "*", "action": "deny"}, {"domain": "api.sprites.dev", "action": "allow"}]}', '{"rules": [{"domain": "*", "action": "deny"}, {"domain": "_api.internal", "action": "allow"}]}']::jsonb[]) AS policy;
SELECT is((SELECT array_agg(DISTINCT p.severity) FROM warned, policy_problems(policy) AS p), '{warning}', 'policies with warnings alone');
SET client_min_messages = error;
SELECT is_empty($$ SELECT policy FROM warned WHERE code_of(format('SELECT sprite_get_or_create(''here'', %L)', policy)) <> 'none' OR sim.vm('here')->'policy' <> policy $$, 'are pushed as they are');
SELECT is_empty($$ SELECT policy FROM (VALUES ('{"rules": [{"domain": "*", "action": "allow"}]}'::jsonb), ('{"rules": [{"action": "deny", "domain": "*"}]}'), ('{"rules": [{"domain": "*", "action": "deny"}, {"domain": "*.a.com", "action": "allow"}, {"domain": "*.b.a.com", "action": "allow"}, {"domain": "a.com", "action": "deny"}]}')) AS v(policy)
	WHERE code_of(format('SELECT sprite_get_or_create(''here'', %L)', policy)) <> 'none' OR sim.vm('here')->'policy' <> policy $$, 'so are those without any');

SELECT * FROM finish();
