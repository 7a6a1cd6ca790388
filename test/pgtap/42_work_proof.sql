-- No work reaches a VM that is not proven to run a policy, unless the caller does without.
SELECT plan(32);
CREATE FUNCTION code(query text) RETURNS text LANGUAGE plpgsql AS
$$ BEGIN EXECUTE query; RETURN 'none'; EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE; END $$;
-- what the three functions say, together
CREATE FUNCTION works(name text, more text DEFAULT '') RETURNS text LANGUAGE sql AS
$$ SELECT string_agg(DISTINCT code(format(q, name, more)), ' ') FROM unnest(ARRAY['SELECT sprite_exec(%L, ''true''%s)', 'SELECT sprite_read_file(%L, ''/etc/passwd''%s)', 'SELECT sprite_write_file(%L, ''/tmp/f'', ''''%s)']) AS q $$;

-- never handed back
SELECT sim.do('open', 'create');
SELECT sim.clear();
SELECT is(works('open'), 'SP007', 'a Sprite that was never handed back');
SELECT is(works('missing'), 'SP007', 'one that does not exist');
SELECT is(sim.requests(), 0, 'is sent nothing');
SELECT is(works('open', ', allow_unproven => true'), 'none', 'unless the caller does without');
SELECT is(works('open', ', allow_unproven => NULL'), 'SP007', 'NULL is no');
SELECT is(works('open', ', allow_unproven => false'), 'SP007', 'nor is false a yes');

-- handed back
SELECT reason FROM sprite_get_or_create('vm', egress_policy());
SELECT is(works('vm'), 'none', 'one that was handed back');
SELECT sim.clear();
SELECT is(works('vm'), 'none', 'again');
SELECT is(sim.counts(), '{"exec": 1, "fs_read": 1, "fs_write": 1}', 'by one request each');
BEGIN;
SELECT reason FROM sprite_get_or_create('own', egress_policy());
SELECT is(works('own'), 'none', 'also in the transaction of the hand-back');
ROLLBACK;
SELECT is(works('own'), 'SP007', 'and not after its rollback');
SELECT reason FROM sprite_get_or_create('own', egress_policy());
SELECT is(works('own'), 'none', 'until the next');

-- in doubt
BEGIN; SELECT sprite_get_or_create('vm', egress_policy('open')); ROLLBACK;
SELECT is(works('vm'), 'SP007', 'one that is in doubt');
SELECT reason FROM sprite_get_or_create('vm', egress_policy());
SELECT is(works('vm'), 'none', 'until it is settled');
BEGIN; SELECT sprite_destroy('vm'); ROLLBACK;
SELECT is(works('vm'), 'SP007', 'one that was destroyed in a transaction that was rolled back');
SELECT reason FROM sprite_get_or_create('vm', egress_policy());
SELECT sprite_destroy('vm');
SELECT is(works('vm'), 'SP007', 'one that was destroyed');

-- proofs that are none any more
SELECT reason FROM sprite_get_or_create('vm', egress_policy());
INSERT INTO lockdown_journal (role_name, server_name, sprite_name, kind, epoch) SELECT current_user, 'sprites', 'vm', 'drifted', epoch FROM lockdown_journal ORDER BY entry_id DESC LIMIT 1;
SELECT is(works('vm'), 'SP007', 'one that has drifted');
SELECT reason FROM sprite_get_or_create('vm', egress_policy());
UPDATE lockdown_journal SET epoch = '1/1/1/1' WHERE sprite_name = 'vm';
SELECT is(works('vm'), 'SP007', 'one whose proof is of another epoch');
SELECT reason FROM sprite_get_or_create('vm', egress_policy());
UPDATE lockdown_journal SET recorded_at = now() - interval '60 days' WHERE sprite_name = 'vm';
SELECT is(works('vm'), 'none', 'an old proof');
SET sprite_lockdown.proof_max_age = '50 d';
SELECT is(works('vm'), 'SP007', 'that is too old');
SET sprite_lockdown.proof_max_age = '61 d';
SELECT is(works('vm'), 'none', 'or not yet');
RESET sprite_lockdown.proof_max_age;
SELECT sim.switch('{"id_form": "none"}');
SELECT reason FROM sprite_get_or_create('anonymous', egress_policy());
SELECT is(works('anonymous'), 'SP007', 'one without an identity');
SELECT sim.switch('{"id_form": "sprite-uuid"}');

-- rows that another service has left
SELECT sim.do('legacy', 'create', jsonb_build_object('policy', egress_policy()));
INSERT INTO machine_sessions VALUES ('legacy', 'sprites', 'legacy', sim.vm('legacy')->>'id', NULL);
SELECT is(works('legacy'), 'SP007', 'a row without a token');
UPDATE machine_sessions SET egress_policy_token = lockdown_token(sim.vm('legacy')->>'id', hash_egress_policy()) WHERE session_key = 'legacy';
SELECT is(works('legacy'), 'none', 'a row with one, as a hand-back believes it');

-- by way of another server
CREATE SERVER mine FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (api_url 'https://unused.example');
SELECT sim.point_server('mine');
SELECT is(works('vm', ', server => ''mine'''), 'SP007', 'a server by which it was never handed back');
SELECT reason FROM sprite_get_or_create('vm', egress_policy(), server => 'mine');
SELECT is(works('vm', ', server => ''mine'''), 'none', 'and one by which it was');
BEGIN; SELECT sprite_get_or_create('vm', egress_policy('open')); ROLLBACK;
SELECT is(works('vm', ', server => ''mine'''), 'SP007', 'what is begun by way of the one is a doubt to the other');

SELECT reason FROM sprite_get_or_create('vm', egress_policy());
INSERT INTO lockdown_journal (role_name, server_name, sprite_name, kind, action, epoch) VALUES (current_user, 'elsewhere', 'vm', 'intent', 'create', '-');
INSERT INTO lockdown_journal (role_name, server_name, sprite_name, kind, action, epoch, intent_id, sprite_id, to_hash)
SELECT current_user, 'elsewhere', 'vm', 'confirmed', 'create', '-', max(entry_id), 'of another account', hash_egress_policy('open') FROM lockdown_journal;
SELECT is(works('vm'), 'none', 'a Sprite of the same name in another account is none of ours');

-- privileges and arguments
SELECT is(code($$ SELECT sprite_exec('vm', NULL) $$), '22004', 'no command');
SELECT is(code($$ SELECT sprite_exec('vm', 'true', timeout => '-1 s') $$), '22023', 'a time-out that is none');
SELECT is(code($$ SELECT sprite_exec('vm', 'true', env => '{"a=b": "c"}') $$), '22023', 'a variable that is none');
CREATE ROLE pgtap_work; GRANT USAGE ON SCHEMA sprite TO pgtap_work; SET ROLE pgtap_work;
SELECT is(code($$ SELECT sprite.sprite_exec('vm', 'true') $$), '42501', 'EXECUTE is not for everybody');
RESET ROLE; DROP OWNED BY pgtap_work; DROP ROLE pgtap_work;

SELECT * FROM finish();
