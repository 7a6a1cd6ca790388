-- Two foreign servers that lead to one account: what is pushed by way of one is seen by way of the other.
SELECT plan(34);
CREATE SERVER mine FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (api_url 'https://unused.example');
SELECT sim.point_server('mine');
CREATE FUNCTION reason(name text, server name, policy jsonb DEFAULT egress_policy(), session_key text DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS
$$ BEGIN RETURN (SELECT h.reason FROM sprite_get_or_create(name, policy, coalesce(session_key, server || '/' || name), server => server) AS h); EXCEPTION WHEN SQLSTATE 'SP003' THEN RETURN SQLSTATE; END $$;
CREATE FUNCTION runs(name text, policy jsonb DEFAULT egress_policy()) RETURNS boolean LANGUAGE sql AS
$$ SELECT sim.vm(name)->'policy' = policy AND NOT sim.ran_open(name) $$;

-- the other server's push
SELECT is(reason('shared', 'sprites'), 'fresh', 'policy 1 by way of one server');
SELECT is(reason('shared', 'mine', egress_policy('open')), 'no_proof', 'policy 2 by way of another');
SELECT ok(runs('shared', egress_policy('open')), 'the VM runs policy 2');
SELECT is(reason('shared', 'sprites'), 'policy_changed', 'the first server is not believed any more');
SELECT ok(runs('shared'), 'and pushes policy 1');
SELECT is(reason('shared', 'mine', egress_policy('open')), 'policy_changed', 'nor is the second');
SELECT ok(runs('shared', egress_policy('open')), 'which pushes policy 2');
SELECT is(reason('shared', 'mine', egress_policy('open')), 'proven', 'a proof by one server');
SELECT sim.clear();
SELECT is(reason('shared', 'sprites', egress_policy('open')), 'proven', 'is one by the other');
SELECT is(sim.requests(), 1, 'and costs one request');

-- what the other server began
BEGIN; SELECT reason('shared', 'mine'); ROLLBACK;
SELECT ok(runs('shared'), 'a push by the other server is rolled back');
SELECT is(reason('shared', 'sprites', egress_policy('open')), 'in_doubt', 'and leaves a doubt here');
SELECT ok(runs('shared', egress_policy('open')), 'which is settled');
SELECT is(reason('shared', 'sprites', egress_policy('open')), 'proven', 'for good');
SELECT is(reason('shared', 'mine', egress_policy('open')), 'proven', 'for the other server too');
SELECT is((SELECT count(*) FROM lockdown_in_doubt WHERE sprite_name = 'shared'), 0::bigint, 'and the view says so');

-- a create that came too late, and then pushed under an intent that names no VM
SELECT is(reason('late', 'sprites', egress_policy('open')), 'fresh', 'a Sprite');
INSERT INTO lockdown_journal (role_name, server_name, sprite_name, kind, action, epoch) VALUES (current_user, 'mine', 'late', 'intent', 'create', '-');
SELECT is(reason('late', 'sprites', egress_policy('open')), 'in_doubt', 'an intent of the other server that names no VM is a doubt');
SELECT is(reason('late', 'sprites', egress_policy('open')), 'proven', 'until the next push');
INSERT INTO lockdown_journal (role_name, server_name, sprite_name, kind, action, epoch) VALUES (current_user, 'mine', 'late', 'intent', 'create', '-');
INSERT INTO lockdown_journal (role_name, server_name, sprite_name, kind, action, epoch, intent_id, sprite_id, to_hash)
SELECT current_user, 'mine', 'late', 'confirmed', 'create', '-', max(entry_id), 'of another account', hash_egress_policy() FROM lockdown_journal;
SELECT is(reason('late', 'sprites', egress_policy('open')), 'proven', 'one that was confirmed of another VM is none: the server leads elsewhere');
INSERT INTO lockdown_journal (role_name, server_name, sprite_name, kind, action, epoch) VALUES (current_user, 'mine', 'late', 'intent', 'destroy', '-');
SELECT is(reason('late', 'sprites', egress_policy('open')), 'proven', 'nor is a destroy, after which there is no VM');
INSERT INTO lockdown_journal (role_name, server_name, sprite_name, kind, sprite_id, epoch) SELECT current_user, 'mine', 'late', 'drifted', sim.vm('late')->>'id', epoch FROM lockdown_journal WHERE kind = 'confirmed' AND server_name = 'sprites' LIMIT 1;
SELECT is(reason('late', 'sprites', egress_policy('open')), 'drifted', 'drift that the other server found counts');

-- the caller's own token
CREATE TEMP TABLE own AS SELECT egress_policy_token AS token FROM sprite_ensure_lockdown('own', egress_policy());
SELECT is(reason('own', 'mine', egress_policy('open')), 'no_proof', 'another server changes the policy');
SELECT is(h.reason, 'policy_changed', 'of which a token of the caller''s own says nothing, and the journal does') FROM own, LATERAL sprite_ensure_lockdown('own', egress_policy(), token) AS h;
SELECT ok(runs('own'), 'so it is pushed');

-- destroyed and created by the other server
SELECT is(sprite_destroy('own', 'mine'), true, 'a Sprite that the other server destroys');
SELECT is(reason('own', 'mine', egress_policy('open')), 'fresh', 'and creates');
SELECT is(h.reason, 'replaced', 'is another VM') FROM own, LATERAL sprite_ensure_lockdown('own', egress_policy(), token) AS h;
SELECT ok(runs('own'), 'that gets its policy');

-- rows that are all there is to go by
TRUNCATE lockdown_journal;
UPDATE machine_sessions SET egress_policy_token = lockdown_token(sim.vm('shared')->>'id', hash_egress_policy()) WHERE session_key = 'mine/shared';
UPDATE machine_sessions SET egress_policy_token = lockdown_token(sim.vm('shared')->>'id', hash_egress_policy('open')) WHERE session_key = 'sprites/shared';
SELECT is(reason('shared', 'sprites', egress_policy('open')), 'policy_changed', 'rows of two servers that contradict each other prove nothing');
SELECT is(reason('shared', 'mine', egress_policy('open')), 'proven', 'and agree after the push');

-- pruning keeps what the other server has to know
SELECT is(reason('shared', 'mine'), 'policy_changed', 'the other server pushes');
INSERT INTO lockdown_journal (role_name, server_name, sprite_name, kind, action, epoch, sprite_id) VALUES (current_user, 'mine', 'shared', 'confirmed', 'push', '-', 'elsewhere');
UPDATE machine_sessions SET egress_policy_token = lockdown_token(sim.vm('shared')->>'id', hash_egress_policy('open')) WHERE session_key = 'sprites/shared';
UPDATE lockdown_journal SET recorded_at = now() - interval '1 year';
SELECT prune_lockdown_journal('30 days');
SELECT is(reason('shared', 'sprites', egress_policy('open')), 'policy_changed', 'and its entry for this VM stays, though it is not its newest');
SELECT ok(runs('shared', egress_policy('open')), 'so the policy is right');
SELECT * FROM finish();
