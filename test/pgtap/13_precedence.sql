-- When several reasons hold, the first of the table is reported: every combination of what may
-- be known of a Sprite, for the plan and for the call, and a push for all of them but proven.
SELECT plan(30);

-- What a state is made of, and the first reason that holds in it.
CREATE TABLE states AS
SELECT row_number() OVER () AS n, s.*,
	CASE WHEN NOT there THEN 'fresh'
		WHEN NOT identity THEN 'no_identity'
		WHEN token = 'none' THEN 'no_proof'
		WHEN token = 'of another VM' THEN 'replaced'
		WHEN token = 'of another policy' OR (newest = 'confirmed' AND journal_policy = 'another') THEN 'policy_changed'
		WHEN newest = 'intent' THEN 'in_doubt'
		WHEN epoch = 'another' THEN 'epoch_changed'
		WHEN age = 'too old' THEN 'expired'
		WHEN newest = 'drifted' THEN 'drifted'
		ELSE 'proven' END AS expected
FROM (SELECT * FROM unnest('{true,false}'::boolean[]) AS there, unnest('{true,false}'::boolean[]) AS identity,
		unnest('{none,of another VM,of another policy,right}'::text[]) AS token, unnest('{asked for,another}'::text[]) AS journal_policy,
		unnest('{confirmed,intent,drifted}'::text[]) AS newest, unnest('{this,another}'::text[]) AS epoch, unnest('{fine,too old}'::text[]) AS age) AS s
-- what was confirmed before the newest entry is history; of what comes before all of it, the states in which the most holds are enough
WHERE (newest = 'confirmed' OR (journal_policy = 'asked for' AND epoch = 'this'))
AND ((there AND identity) OR (age = 'too old' AND (newest <> 'confirmed' OR (journal_policy = 'another' AND epoch = 'another'))));

CREATE FUNCTION enter(kind text, hash text, epoch text, recorded_at timestamptz) RETURNS void LANGUAGE sql AS
$$ INSERT INTO lockdown_journal (recorded_at, role_name, server_name, sprite_name, kind, action, sprite_id, to_hash, epoch)
   VALUES (recorded_at, current_user, 'sprites', 's', kind, CASE WHEN kind = 'intent' THEN 'push' END, 'vm-1', hash, epoch) $$;
CREATE FUNCTION bring_about(s states, this_epoch text) RETURNS void LANGUAGE plpgsql AS
$$
DECLARE
	wanted text := hash_egress_policy();
	other text := hash_egress_policy('open');
	at timestamptz := CASE WHEN s.age = 'fine' THEN now() - interval '1 hour' ELSE now() - interval '1 month' END;
	an_epoch text := CASE WHEN s.epoch = 'this' THEN this_epoch ELSE 'another' END;
BEGIN
	IF (sim.vm('s') IS NOT NULL) <> s.there THEN
		PERFORM sim.do('s', CASE WHEN s.there THEN 'create' ELSE 'delete' END, CASE WHEN s.there THEN '{"id": "vm-1"}'::jsonb ELSE '{}' END);
	END IF;
	PERFORM sim.switch(jsonb_build_object('id_form', CASE WHEN s.identity THEN 'sprite-uuid' ELSE 'none' END));
	DELETE FROM machine_sessions;
	DELETE FROM lockdown_journal;
	INSERT INTO machine_sessions VALUES ('s', 'sprites', 's', 'vm-1',
		CASE s.token WHEN 'of another VM' THEN 'vm-0:' || wanted WHEN 'of another policy' THEN 'vm-1:' || other WHEN 'right' THEN 'vm-1:' || wanted END, at, at, at);
	PERFORM enter('confirmed', CASE WHEN s.journal_policy = 'another' THEN other ELSE wanted END, an_epoch, at);
	IF s.newest <> 'confirmed' THEN
		PERFORM enter(s.newest, wanted, an_epoch, at);
	END IF;
	-- an entry about a failure says nothing
	PERFORM enter('failed', other, an_epoch, now());
END
$$;
SELECT reason AS first FROM sprite_get_or_create('s', egress_policy()) \gset
SELECT epoch FROM lockdown_journal LIMIT 1 \gset
SELECT sim.do('s', 'delete');
SELECT is(:'first'::text, 'fresh', 'the first of all');

-- Each state in turn, those of one VM one after the other.
CREATE TABLE found (n bigint, planned text, would_apply boolean, would_create boolean, told text, applied boolean, fresh boolean, pushes int);
CREATE FUNCTION find_all(this_epoch text) RETURNS void LANGUAGE plpgsql AS
$$
DECLARE
	s states;
	f found;
	p record;
	h sprite_handle;
BEGIN
	FOR s IN SELECT * FROM states ORDER BY there DESC, n LOOP
		PERFORM bring_about(s, this_epoch);
		PERFORM sim.clear();
		SELECT * INTO p FROM sprite_lockdown_plan('s', egress_policy());
		IF sim.counts() <> '{"get": 1}' THEN
			RAISE EXCEPTION 'a plan made other requests: %', sim.counts();
		END IF;
		SELECT * INTO h FROM sprite_get_or_create('s', egress_policy());
		INSERT INTO found VALUES (s.n, p.reason, p.would_apply, p.would_create, h.reason, h.applied, h.fresh, sim.requests('policy_set'));
		IF h.applied AND sim.vm('s')->'policy' <> egress_policy() THEN
			RAISE EXCEPTION 'state %: the VM runs something else', s;
		END IF;
	END LOOP;
END
$$;
SET sprite_lockdown.proof_max_age = '7d';
-- no mkdir is really run, which is what takes the time
SELECT sim.fault(jsonb_build_object('kind', 'exec', 'times', 1000, 'raw_hex', encode(convert_to(E'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n', 'UTF8') || '\x0300', 'hex')));
SELECT find_all(:'epoch');

CREATE TABLE reasons AS SELECT * FROM unnest('{fresh,no_identity,no_proof,replaced,policy_changed,in_doubt,epoch_changed,expired,drifted,proven}'::text[]) WITH ORDINALITY AS r(reason, place);
SELECT is((SELECT count(*) FROM found), (SELECT count(*) FROM states), 'every state was brought about');
SELECT is((SELECT array_agg(DISTINCT expected ORDER BY expected) FROM states), (SELECT array_agg(reason ORDER BY reason) FROM reasons), 'and every reason is the first somewhere');
SELECT is((SELECT string_agg(DISTINCT format('%s, not %s: %s', told, expected, s::text), E'\n') FROM states AS s JOIN found USING (n) WHERE expected = reason AND told <> expected), NULL, 'the call reports ' || reason || ' wherever it is the first')
FROM reasons ORDER BY place;
SELECT is((SELECT string_agg(DISTINCT format('%s, not %s: %s', planned, expected, s::text), E'\n') FROM states AS s JOIN found USING (n) WHERE expected = reason AND planned <> expected), NULL, 'the plan knows that it will be ' || reason)
FROM reasons ORDER BY place;
SELECT is_empty('SELECT * FROM found WHERE applied <> (told <> ''proven'') OR pushes <> applied::int OR would_apply <> applied', 'every reason but proven pushes once, and none twice');
SELECT is_empty('SELECT * FROM found WHERE would_create <> fresh OR fresh <> (told = ''fresh'')', 'fresh is what was created');

-- a caller with a token of its own and no row: the same order
CREATE FUNCTION told(token text, VARIADIC changes text[] DEFAULT '{}') RETURNS text LANGUAGE plpgsql AS
$$
DECLARE
	s states;
BEGIN
	SELECT * INTO s FROM states WHERE there AND identity AND expected = 'proven';
	IF 'no id' = ANY (changes) THEN s.identity := false; END IF;
	IF 'other policy confirmed' = ANY (changes) THEN s.journal_policy := 'another'; END IF;
	IF 'intent' = ANY (changes) THEN s.newest := 'intent'; END IF;
	IF 'epoch' = ANY (changes) THEN s.epoch := 'another'; END IF;
	IF 'old' = ANY (changes) THEN s.age := 'too old'; END IF;
	PERFORM bring_about(s, current_setting('test.epoch'));
	DELETE FROM machine_sessions;
	RETURN (SELECT reason FROM sprite_ensure_lockdown('s', egress_policy(), token));
END
$$;
SELECT sim.do('s', 'create', '{"id": "vm-1"}') WHERE sim.vm('s') IS NULL;
SELECT sim.do('s', 'replace', '{"id": "vm-1"}') WHERE sim.vm('s')->>'id' <> 'vm-1';
SET test.epoch = :'epoch';
SELECT lockdown_token('vm-1', hash_egress_policy()) AS token \gset
SELECT results_eq(format($$ VALUES (told(NULL, 'old')), (told('vm-0:x', 'old', 'epoch', 'intent')), (told('vm-1:x', 'old', 'epoch')), (told(%1$L, 'other policy confirmed', 'old')), (told(%1$L, 'intent', 'old')),
	(told(%1$L, 'epoch', 'old')), (told(%1$L, 'old')), (told(%1$L)), (told(%1$L, 'no id', 'intent', 'old')) $$, :'token'),
	$$ VALUES ('no_proof'), ('replaced'), ('policy_changed'), ('policy_changed'), ('in_doubt'), ('epoch_changed'), ('expired'), ('proven'), ('no_identity') $$, 'a token that the caller keeps is judged in the same order');
-- a token that was right once: somebody has pushed another policy since
RESET sprite_lockdown.proof_max_age;
SELECT sim.switch('{"id_form": "sprite-uuid"}');
SELECT sim.do('stale', 'create');
SELECT egress_policy_token AS stale FROM sprite_ensure_lockdown('stale', egress_policy()) \gset
SELECT is(reason, 'no_proof', 'a session asks for another policy') FROM sprite_get_or_create('stale', egress_policy('open'), 'a session');
SELECT is(reason, 'policy_changed', 'the stale token equals what is asked for, but the VM runs something else') FROM sprite_ensure_lockdown('stale', egress_policy(), :'stale');
SELECT is(sim.vm('stale')->'policy', egress_policy(), 'which the push puts right');
SELECT is(reason, 'policy_changed', 'as the session is told in turn') FROM sprite_get_or_create('stale', egress_policy('open'), 'a session');

SELECT * FROM finish();
