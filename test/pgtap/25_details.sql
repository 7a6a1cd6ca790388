-- Every SQLSTATE of the platform's own, and what DETAIL says and never says.
SELECT plan(37);
SET sprite_lockdown.max_attempts = 1;
SET sprite_lockdown.request_timeout = '1s';
CREATE FUNCTION failure(fault jsonb, query text DEFAULT 'SELECT sprite_get_or_create(''d'', egress_policy())',
	OUT code text, OUT message text, OUT detail text, OUT hint text) LANGUAGE plpgsql AS
$$
BEGIN
	PERFORM sim.reset();
	PERFORM sim.do('d', 'create');
	PERFORM sim.fault(fault);
	EXECUTE query;
EXCEPTION WHEN query_canceled OR OTHERS THEN
	GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
END
$$;

-- codes by kind of refusal and call
SELECT is((failure(f::jsonb)).code, c, f || ' is ' || c) FROM (VALUES
	('{"kind": "policy_set", "status": 429}', 'SP001'), ('{"kind": "policy_set", "status": 409}', 'SP002'), ('{"kind": "policy_set", "status": 500}', 'SP003'),
	('{"kind": "policy_set", "status": 408}', 'SP003'), ('{"kind": "policy_set", "status": 401}', 'SP004'), ('{"kind": "policy_set", "status": 403}', 'SP004'),
	('{"kind": "policy_set", "status": 404}', 'SP005'), ('{"kind": "policy_set", "status": 410}', 'SP005'), ('{"kind": "policy_set", "status": 400}', 'SP006'),
	('{"kind": "policy_set", "status": 422}', 'SP006'), ('{"kind": "policy_set", "status": 418}', '08P01'), ('{"kind": "policy_set", "status": 202, "body": "x"}', '08P01'),
	('{"kind": "policy_get", "status": 404}', 'SP005'), ('{"kind": "exec", "status": 404}', 'SP005'), ('{"kind": "exec", "status": 400}', 'SP007'),
	('{"kind": "policy_set", "hang": 9}', '08006'), ('{"kind": "policy_get", "drop": "before", "times": 9}', '08006')) AS v(f, c);

-- DETAIL
CREATE TEMP TABLE f AS SELECT * FROM failure('{"kind": "policy_set", "status": 429, "headers": {"Retry-After": "17", "Fly-Request-Id": "01ABC-iad"}, "body": {"error": "policy_rate_limited", "message": "slow down"}}');
SELECT is(detail, 'Phase: policy_set; HTTP status: 429; platform code: policy_rate_limited; retry after: 17 s; attempts: 1; Fly-Request-Id: 01ABC-iad; text: slow down', 'DETAIL has all that is known') FROM f;
SELECT isnt(hint, '', 'and there is a hint') FROM f;
SELECT ok(detail LIKE '%platform code: in_code;%text: prose%', 'a code in "code"') FROM failure('{"kind": "policy_set", "status": 400, "body": {"error": "prose of a kind", "code": "in_code"}}');
SELECT ok(detail LIKE '%platform code: in_error_code;%text: prose%', 'a code in "error_code"') FROM failure('{"kind": "policy_set", "status": 400, "body": {"error": "prose of a kind", "error_code": "in_error_code"}}');
SELECT ok(detail LIKE '%text: first%' AND detail NOT LIKE '%code:%', 'prose in "errors"') FROM failure('{"kind": "policy_set", "status": 400, "body": {"errors": ["first of all", "second"]}}');
SELECT ok(detail LIKE '%text: plain words%', 'plain text') FROM failure('{"kind": "policy_set", "status": 400, "body": "plain words"}');
SELECT ok(detail LIKE '%retry after: 5 s%', 'the body''s retry_after_seconds comes first') FROM failure('{"kind": "policy_set", "status": 429, "headers": {"Retry-After": "17"}, "body": {"error": "x", "retry_after_seconds": 5}}');
SELECT ok(detail NOT LIKE '%retry after%', 'nonsense is no time') FROM failure('{"kind": "policy_set", "status": 429, "headers": {"Retry-After": "soon"}, "body": {"error": "x", "retry_after_seconds": -5}}');
SELECT ok(detail LIKE '%timed out%', 'a time-out says so') FROM failure('{"kind": "policy_set", "hang": 9}');
SELECT ok(length(detail) < 1300, 'a long text is cut') FROM failure(jsonb_build_object('kind', 'policy_set', 'status', 400, 'body', repeat(U&'long \00e9', 2000)));
SELECT ok(detail NOT LIKE E'%\n%' AND detail LIKE '%a b%', 'control characters do not get through') FROM failure('{"kind": "policy_set", "status": 400, "body": "a\nb"}');
SET sprite_lockdown.max_attempts = 2;
SELECT ok(detail LIKE '%attempts: 2%', 'attempts are counted') FROM failure('{"kind": "policy_set", "status": 503, "times": 2}');
SET sprite_lockdown.max_attempts = 1;
SELECT ok(code = 'SP007' AND detail LIKE '%' || hash_egress_policy() || '%' || hash_egress_policy('open') || '%', 'a read-back that differs names both hashes')
FROM failure(jsonb_build_object('kind', 'policy_get', 'body', egress_policy('open')::text));

-- the token is in nothing of it, not even when the platform repeats it
SELECT current_setting('sprite_test.token') AS token \gset
SELECT is(position(:'token' IN concat(code, message, detail, hint)), 0, 'the token is not repeated: ' || what)
FROM (VALUES ('in a message', '{"error": "no", "message": "bad token TOKEN!"}'), ('in an error', '{"error": "TOKEN"}'), ('in errors', '{"errors": ["TOKEN TOKEN"]}'),
	('at the cut', '{"error": "' || repeat('x', 1010) || 'TOKEN"}')) AS v(what, body),
	LATERAL failure(jsonb_build_object('kind', 'policy_set', 'status', 400, 'body', replace(body, 'TOKEN', :'token')::jsonb)) AS f;
SELECT is(position(:'token' IN concat(code, message, detail, hint)), 0, 'nor in plain text') FROM failure(jsonb_build_object('kind', 'policy_set', 'status', 400, 'body', 'Authorization: Bearer ' || :'token'));
SELECT is(position(:'token' IN concat(code, message, detail, hint)), 0, 'nor as a request id') FROM failure(jsonb_build_object('kind', 'policy_set', 'status', 400, 'headers', jsonb_build_object('Fly-Request-Id', :'token')));
SELECT is(position(:'token' IN concat(code, message, detail, hint)), 0, 'nor in what a command said') FROM failure(jsonb_build_object('kind', 'exec', 'body', E'\u0002' || :'token' || E'\u0003\u0001'));

SELECT * FROM finish();
