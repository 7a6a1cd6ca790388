-- The configuration of a create: it reaches the platform as it is given, and only for a create;
-- what is none is refused before any request.
SELECT plan(16);
CREATE FUNCTION code_of(query text) RETURNS text LANGUAGE plpgsql AS
$$ BEGIN EXECUTE query; RETURN 'none'; EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE; END $$;
CREATE FUNCTION sent(name text) RETURNS SETOF jsonb LANGUAGE sql AS
$$ SELECT (l->>'body')::jsonb FROM sim.log(name) AS l WHERE l->>'kind' = 'create' ORDER BY (l->>'seq')::int $$;
CREATE TEMP TABLE good (name text, config jsonb);
INSERT INTO good SELECT 'g' || n, config FROM unnest(ARRAY['{"ram_mb": 4096, "cpus": 2, "storage_gb": 20, "region": "iad"}', '{"ram_mb": 1}', '{"cpus": 2147483647}', '{"storage_gb": 1e3}', '{"region": "iad"}',
	'{"region": "a\"b\\c/d<e>"}', jsonb_build_object('region', repeat('r', 64))]::jsonb[]) WITH ORDINALITY AS c(config, n);
CREATE TEMP TABLE calls AS SELECT unnest('{sprite_get_or_create,sprite_ensure_lockdown}'::text[]) AS f;

SELECT is_empty($$ SELECT name, config, code FROM good, code_of(format('SELECT sprite_get_or_create(%L, egress_policy(), config => %L)', name, config)) AS code WHERE code <> 'none' $$, 'a configuration of any of its members is accepted');
SELECT results_eq('SELECT sent(name) FROM good', $$ SELECT jsonb_build_object('name', name, 'config', config) FROM good $$, 'and sent with the create as it is');
SELECT is(reason, 'fresh', 'ensure_lockdown takes one too') FROM sprite_ensure_lockdown('e', egress_policy(), config => '{"cpus": 3}');
SELECT results_eq($$ SELECT sent('e') $$, $$ VALUES ('{"name": "e", "config": {"cpus": 3}}'::jsonb) $$, 'and sends it');
SELECT is_empty($$ SELECT name, code FROM (VALUES ('n1', 'NULL'), ('n2', '{}')) AS v(name, config), code_of(format('SELECT sprite_get_or_create(%L, egress_policy(), config => %s)', name, CASE config WHEN 'NULL' THEN config ELSE quote_literal(config) END)) AS code WHERE code <> 'none' $$, 'none is none');
SELECT set_eq($$ SELECT sent(name) FROM unnest('{n1,n2}'::text[]) AS name $$, $$ VALUES ('{"name": "n1"}'::jsonb), ('{"name": "n2"}') $$, 'and nothing of it is sent');

-- a create that is tried again says the same again
SELECT sim.fault('{"kind": "create", "status": 503}');
SELECT is(reason, 'fresh', 'a create that is tried twice') FROM sprite_get_or_create('twice', egress_policy(), config => '{"cpus": 2, "region": "iad"}');
SELECT results_eq($$ SELECT sent('twice') $$, $$ SELECT '{"name": "twice", "config": {"cpus": 2, "region": "iad"}}'::jsonb FROM generate_series(1, 2) $$, 'says the same twice');

-- an existing Sprite
SELECT sim.clear();
SELECT is(reason, 'proven', 'for a Sprite that exists it says nothing') FROM sprite_get_or_create('g1', egress_policy(), config => '{"cpus": 8}');
SELECT is(sim.counts(), '{"get": 1}', 'and costs nothing');

-- what is none
CREATE TEMP TABLE bad AS SELECT unnest(ARRAY['null', '[]', '7', '"iad"', 'true', '[{"cpus": 1}]', '{"cpu": 1}', '{"Cpus": 1}', '{"": 1}', '{"cpus": 1, "disk": 1}', '{"cpus": 0}', '{"cpus": -1}', '{"cpus": 1.5}', '{"cpus": 2.0}', '{"cpus": 2147483648}', '{"cpus": 1e99}',
	'{"cpus": "2"}', '{"cpus": true}', '{"cpus": null}', '{"cpus": []}', '{"cpus": [1]}', '{"cpus": {"n": 1}}', '{"ram_mb": 0}', '{"storage_gb": "x"}', '{"region": ""}', '{"region": " "}', '{"region": "a b"}', '{"region": "a\n"}', '{"region": "\u00e9"}',
	'{"region": null}', '{"region": 7}', '{"region": ["iad"]}', '{"region": {"a": "b"}}', '{"environment": {"A": "b"}}', '{"url_settings": {"auth": "public"}}', jsonb_build_object('region', repeat('r', 65))::text]) AS config;
SELECT sim.clear();
SELECT is_empty($$ SELECT f, name, config, code FROM bad, calls, unnest('{g1,nowhere}'::text[]) AS name, code_of(format('SELECT %s(%L, egress_policy(), config => %L)', f, name, config)) AS code WHERE code <> '22023' $$,
	'anything else is refused with 22023, whether or not the Sprite exists');
SELECT is(sim.requests(), 0, 'and not one request is made');
SELECT is((SELECT count(*) FROM lockdown_journal WHERE sprite_name = 'nowhere') + (SELECT count(*) FROM machine_sessions WHERE sprite_name = 'nowhere'), 0::bigint, 'nor any row');

-- a platform that refuses it
SELECT sim.fault('{"kind": "create", "status": 400, "body": {"errors": ["invalid region"]}}');
SELECT throws_ok($$ SELECT sprite_get_or_create('refused', egress_policy(), config => '{"region": "nowhere"}') $$, '22023', NULL, 'a configuration that the platform refuses');
SELECT is(sim.requests('create'), 1, 'is not tried again');
SELECT is((SELECT count(*) FROM machine_sessions WHERE sprite_name = 'refused'), 0::bigint, 'and leaves no row');

SELECT * FROM finish();
