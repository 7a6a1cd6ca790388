-- What a hand-back sends and writes, by its reason, and what an intent costs.
CREATE TABLE seen (reason text, requests integer, entries bigint, intents bigint);

-- One hand-back: what the platform saw, and what the journal got.
CREATE PROCEDURE note(name text, policy jsonb DEFAULT egress_policy()) LANGUAGE plpgsql AS
$$
DECLARE
	last bigint := coalesce(max(entry_id), 0) FROM lockdown_journal;
	why text;
BEGIN
	PERFORM sim.clear();
	SELECT h.reason INTO why FROM sprite_get_or_create(name, policy) AS h;
	INSERT INTO seen SELECT why, sim.requests(), count(*), count(*) FILTER (WHERE kind = 'intent') FROM lockdown_journal WHERE entry_id > last;
END
$$;

CALL note('a');
CALL note('a');
CALL note('a', egress_policy('open'));
UPDATE machine_sessions SET egress_policy_token = NULL;
CALL note('a', egress_policy('open'));
SELECT sim.do('a', 'replace') \g /dev/null
CALL note('a', egress_policy('open'));
BEGIN; SELECT sprite_get_or_create('a', egress_policy()) \g /dev/null
ROLLBACK;
CALL note('a', egress_policy('open'));
UPDATE lockdown_journal SET epoch = 'another';
CALL note('a', egress_policy('open'));
UPDATE lockdown_journal SET recorded_at = now() - interval '2 days';
SET sprite_lockdown.proof_max_age = '1 d';
CALL note('a', egress_policy('open'));
RESET sprite_lockdown.proof_max_age;
INSERT INTO lockdown_journal (role_name, server_name, sprite_name, kind, epoch)
SELECT current_user, 'sprites', 'a', 'drifted', epoch FROM lockdown_journal ORDER BY entry_id DESC LIMIT 1;
CALL note('a', egress_policy('open'));
SELECT sim.switch('{"id_form": "none"}') \g /dev/null
CALL note('b');
CALL note('b');
SELECT sim.switch('{"id_form": "sprite-uuid"}') \g /dev/null
SELECT reason, requests, entries AS "journal entries", intents AS "background workers" FROM seen;

-- A destroy of what is not there is one intent, one request and one confirmation; a look at
-- what is not there is one request.  A new connection is here for a measure.
CREATE EXTENSION dblink;
CREATE TABLE took (what text, ms double precision);
CREATE PROCEDURE measure(what text, query text, n integer) LANGUAGE plpgsql AS
$$
DECLARE
	start timestamptz;
BEGIN
	FOR i IN 1..n LOOP
		start := clock_timestamp();
		EXECUTE query;
		INSERT INTO took VALUES (what, extract(epoch FROM clock_timestamp() - start) * 1000);
		COMMIT;
	END LOOP;
END
$$;
SELECT reason FROM sprite_get_or_create('warm', egress_policy()) \g /dev/null
CALL measure('look', $$ SELECT sprite_attach('absent') $$, 1000);
CALL measure('warm', $$ SELECT sprite_get_or_create('warm', egress_policy()) $$, 1000);
CALL measure('intent', $$ SELECT sprite_destroy('absent') $$, 1000);
CALL measure('connection', format($$ SELECT dblink_connect('c', 'dbname=%s host=%s port=%s'), dblink_disconnect('c') $$,
	current_database(), current_setting('unix_socket_directories'), current_setting('port')), 200);

CREATE TABLE median AS
SELECT what, count(*) AS n, percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) AS ms FROM took GROUP BY what;
SELECT round((i.ms - l.ms)::numeric, 1) AS "an intent, ms (median of 1,000)",
	round(c.ms::numeric, 1) AS "a new connection, ms",
	round(((i.ms - l.ms) / c.ms)::numeric, 2) AS "intent / connection",
	round((w.ms)::numeric, 2) AS "a proven hand-back, ms",
	round((l.ms)::numeric, 2) AS "a look alone, ms"
FROM median AS i, median AS l, median AS c, median AS w
WHERE i.what = 'intent' AND l.what = 'look' AND c.what = 'connection' AND w.what = 'warm';
