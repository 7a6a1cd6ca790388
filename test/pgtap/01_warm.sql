-- A warm hand-back costs one request and changes nothing on the platform.
SELECT plan(16);

SELECT is(reason, 'fresh', 'the first hand-back creates')
FROM sprite_get_or_create('warm', egress_policy('allowlist', '{github.com}'));
CREATE TEMP TABLE first AS SELECT l->'conn' AS conn FROM sim.log() AS l;
SELECT is((SELECT count(DISTINCT conn) FROM first), 1::bigint, 'its requests go over one connection');
SELECT sim.clear();

SELECT is(reason, 'proven', 'the second finds the proof') FROM sprite_get_or_create('warm', egress_policy('allowlist', '{github.com}'));
SELECT is(sim.counts(), '{"get": 1}', 'a warm hand-back is exactly one request: no push, no exec');
SELECT is((SELECT count(*) FROM sim.log() AS l WHERE l->>'body' <> ''), 0::bigint, 'and no body is sent');
SELECT is((SELECT l->>'path' FROM sim.log() AS l), '/v1/sprites/warm', 'it asks for the Sprite itself');
SELECT set_eq($$ SELECT l->'conn' FROM sim.log() AS l $$, 'SELECT conn FROM first', 'over the connection of the first hand-back');
SELECT is((sim.vm('warm')->>'pushes')::int, 1, 'the VM was pushed to once in its life');

-- the handle
SELECT results_eq(
	$$ SELECT session_key, name, fresh, applied, policy_hash, egress_policy_token = sprite_id || ':' || policy_hash, sprite_id = sim.vm('warm')->>'id'
	   FROM sprite_get_or_create('warm', egress_policy('allowlist', '{github.com}')) $$,
	$$ VALUES ('warm', 'warm', false, false, hash_egress_policy('allowlist', '{github.com}'), true, true) $$,
	'the handle says what was found');

-- many calls in one statement are as many requests, over one connection
SELECT sim.clear();
SELECT is(count(*), 100::bigint, 'many calls in one statement')
FROM generate_series(1, 100) AS i, LATERAL sprite_get_or_create('warm', egress_policy('allowlist', array_append('{github.com}', repeat(' ', i % 2)))) AS h
WHERE h.reason = 'proven';
SELECT is(sim.requests(), 100, 'are as many requests');
SELECT is((sim.report()->>'connections')::int, 1, 'over one connection');

-- the row
CREATE TEMP TABLE before AS SELECT * FROM machine_sessions;
SELECT is(reason, 'proven', 'a later transaction') FROM sprite_get_or_create('warm', egress_policy('allowlist', '{github.com}'));
SELECT ok(m.last_active_at > b.last_active_at, 'moves last_active_at') FROM machine_sessions AS m, before AS b;
SELECT ok(row(m.session_key, m.server_name, m.sprite_name, m.sprite_id, m.egress_policy_token, m.created_at, m.updated_at) =
          row(b.session_key, b.server_name, b.sprite_name, b.sprite_id, b.egress_policy_token, b.created_at, b.updated_at), 'and nothing else')
FROM machine_sessions AS m, before AS b;
SELECT is((SELECT count(*) FROM machine_sessions), 1::bigint, 'there is one row');

SELECT * FROM finish();
