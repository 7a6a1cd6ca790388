-- Where the platform's sources disagree: one test for each point that the calls meet.
SELECT plan(31);
CREATE FUNCTION hand_back(name text, policy jsonb DEFAULT egress_policy()) RETURNS text LANGUAGE plpgsql AS
$$ BEGIN RETURN (SELECT reason FROM sprite_get_or_create(name, policy)); EXCEPTION WHEN query_canceled OR OTHERS THEN RETURN SQLSTATE; END $$;

-- 1: a push ends with 204, or 200 with a body: neither is believed
SELECT sim.switch('{"policy_set": "200_body"}');
SELECT is(hand_back('d1'), 'fresh', '1: 200 with a body is accepted');
SELECT is(sim.requests('policy_get'), 1, '1: and the policy read back');
SELECT sim.switch('{"policy_set": "200_fewer"}');
SELECT is(hand_back('d1', egress_policy('open')), 'SP007', '1: a 200 whose body, and VM, have fewer rules is no lockdown');
-- 2: a create ends with 201 or 200, with or without an id
SELECT sim.reset(), sim.switch('{"create_status": 200, "create_body": "no_id"}');
SELECT is(hand_back('d2'), 'fresh', '2: 200 without an id is accepted');
SELECT is(hand_back('d2'), 'proven', '2: and the id learned');
SELECT sim.switch('{"id_form": "none"}');
SELECT is(hand_back('d2'), 'no_identity', '2: without an id anywhere nothing is proven');
-- 3: a name that is taken is 409, or 400 in prose
SELECT sim.reset(), sim.switch('{"duplicate": "400"}'), sim.do('d3', 'create'), sim.fault('{"kind": "get", "status": 404}');
SELECT is(hand_back('d3'), 'no_proof', '3: a name that is taken has an unknown policy');
SELECT is(sim.vm('d3')->'policy', egress_policy(), '3: which is pushed');
-- 4: what is missing is 404, 410 or 500
SELECT sim.reset(), sim.switch('{"missing": "500"}');
SELECT is(hand_back('d4'), 'fresh', '4: a 500 is settled with the list');
SELECT sim.fault('{"kind": "get", "status": 500}');
SELECT is(hand_back('d4'), 'SP003', '4: and is a failure for what is there');
SELECT is(sim.requests('create', 'd4'), 1, '4: which creates nothing');
-- 5: a delete ends with 204 or 200, and what is missing is done
SELECT sim.reset(), sim.do('d5', 'create'), sim.switch('{"delete_status": 200}');
SELECT is(sprite_destroy('d5'), true, '5: 200 is a delete');
SELECT is(sprite_destroy('d5'), false, '5: 404 is done');
SELECT sim.switch('{"missing": "500"}');
SELECT is(sprite_destroy('d5'), false, '5: so is a 500 for what the list does not have');
SELECT sim.do('d5', 'create'), sim.fault('{"kind": "delete", "status": 500, "times": 9}');
SELECT throws_ok($$ SELECT sprite_destroy('d5') $$, 'SP003', NULL, '5: but not for what it has');
-- 6: ids are opaque
SELECT sim.reset(), sim.do('d6', 'create', '{"id": "any:thing/at all"}');
SELECT is(hand_back('d6'), 'no_proof', '6: an id of any form');
SELECT is(hand_back('d6'), 'proven', '6: is compared whole');
SELECT sim.do('d6', 'replace', '{"id": "any:thing/at al"}');
SELECT is(hand_back('d6'), 'replaced', '6: to the last character');
-- 7: has_more may lie
SELECT sim.reset();
SELECT sim.do('d7-' || i, 'create') FROM generate_series(1, 60) AS i;
SELECT sim.switch('{"list_has_more": "lies_true"}');
SELECT is((SELECT count(*) FROM sprite_list('d7-')), 60::bigint, '7: has_more without a token is the end');
SELECT sim.switch('{"list_has_more": "lies_false"}');
SELECT is((SELECT count(*) FROM sprite_list('d7-')), 60::bigint, '7: a token without has_more is not');
-- 8: pages of 50
SELECT ok(bool_and(l->'query' @> '[["max_results", "50"]]'), '8: pages are asked for by 50') FROM sim.log() AS l WHERE l->>'kind' = 'list';
SELECT sim.switch('{"list_items": "short"}');
SELECT is((SELECT count(*) FROM sprite_list('d7-') WHERE sprite_id IS NULL AND updated_at IS NOT NULL), 60::bigint, '8: items may be short');
-- 9: wait_for_capacity is never sent
SELECT sim.reset();
SELECT is(hand_back('d9'), 'fresh', '9: a create');
SELECT is((SELECT (l->>'body')::jsonb FROM sim.log() AS l WHERE l->>'kind' = 'create'), '{"name": "d9"}', '9: says the name and nothing else');
-- 16: an explicit rule for *, never an empty list
SELECT is(hand_back('d16', '{"rules": []}'), '22023', '16: no rules are refused');
SELECT is(hand_back('d16', '{"rules": [{"domain": "a.com", "action": "allow"}]}'), '22023', '16: so are allows without a rule for *');
-- 17: nothing that depends on precedence
SELECT is(hand_back('d17', '{"rules": [{"domain": "*", "action": "deny"}, {"domain": "*.a.com", "action": "allow"}, {"domain": "*.b.a.com", "action": "deny"}]}'), '22023', '17: so are nested wildcards that disagree');
-- 18: a restore may reset the policy, which no id shows
SELECT sim.switch('{"restore": "resets"}');
SELECT sim.do('d9', 'policy', '{"rules": []}');
SELECT is(sprite_network_policy('d9'), '{"rules": []}', '18: what the VM runs can be asked');
SELECT is((SELECT reason FROM sprite_ensure_lockdown('d9', egress_policy())), 'no_proof', '18: and a push asked for without a token');
SELECT is(sim.vm('d9')->'policy', egress_policy(), '18: puts it right');
-- 19: exec framing
SELECT sim.switch('{"exec_framing": "merged"}');
SELECT is(hand_back('d19'), 'fresh', '19: the exit code is the end of the body, however it is cut');

SELECT * FROM finish();
