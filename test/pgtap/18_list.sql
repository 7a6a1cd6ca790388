-- sprite_list: all pages whatever the platform says of them, the prefix whatever it does with it.
SELECT plan(47);
SET sprite_lockdown.request_timeout = '2s';
CREATE FUNCTION code_of(query text) RETURNS text LANGUAGE plpgsql AS
$$ BEGIN EXECUTE query; RETURN 'none'; EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE; END $$;
CREATE FUNCTION names(prefix text DEFAULT '') RETURNS text[] LANGUAGE sql AS $$ SELECT array_agg(name ORDER BY name) FROM sprite_list(prefix) $$;

-- page boundaries, and has_more that lies in both directions
CREATE FUNCTION pages(existing int) RETURNS SETOF text LANGUAGE plpgsql AS
$$
BEGIN
	PERFORM sim.reset();
	PERFORM sim.do('s-' || i, 'create') FROM generate_series(1, existing) AS i;
	FOR lie IN 0..2 LOOP
		PERFORM sim.switch(jsonb_build_object('list_has_more', (ARRAY['right', 'lies_true', 'lies_false'])[lie + 1])), sim.clear();
		RETURN NEXT is((SELECT row(count(*), count(DISTINCT name), sim.requests()) FROM sprite_list()), row(existing::bigint, existing::bigint, greatest(ceil(existing / 50.0), 1)::int),
			format('%s Sprites, has_more %s: each once, in as few pages as may be', existing, (ARRAY['right', 'true', 'false'])[lie + 1]));
	END LOOP;
END
$$;
SELECT pages(n) FROM unnest('{0,1,49,50,51,100,101}'::int[]) AS n;
-- a platform with pages of its own size
SELECT sim.switch('{"list_page_max": 7}'), sim.clear();
SELECT is((SELECT row(count(*), count(DISTINCT name), sim.requests()) FROM sprite_list()), row(101::bigint, 101::bigint, 15), 'smaller pages are more of them');

-- the prefix
SELECT sim.reset();
SELECT sim.do(n, 'create') FROM unnest('{a,ab,ab-1,ab-2,abc,b}'::text[]) AS n;
SELECT is(names('ab'), '{ab,ab-1,ab-2,abc}', 'those that begin with the prefix');
SELECT is(names('ab-'), '{ab-1,ab-2}', 'which may end with a hyphen');
SELECT is(names('abcd'), NULL, 'or fit none');
SELECT is(names(''), '{a,ab,ab-1,ab-2,abc,b}', 'nothing is the beginning of all');
SELECT is(names(NULL), names(), 'as is NULL');
SELECT is((SELECT array_agg(DISTINCT l->'query' ORDER BY l->'query') FROM sim.log() AS l WHERE l->'query' @> '[["prefix", "ab-"]]'), ARRAY['[["max_results", "50"], ["prefix", "ab-"]]']::jsonb[], 'the platform is told');
SELECT sim.fault('{"kind": "list", "body": "{\"sprites\": [{\"name\": \"ab-9\"}, {\"name\": \"other\"}, {\"name\": \"AB-9\"}], \"has_more\": false}"}');
SELECT is(names('ab-'), '{ab-9}', 'and not believed');
SELECT sim.clear();
SELECT is_empty($$ SELECT prefix, code FROM unnest(ARRAY['../x', 'a/b', 'a%', 'A', 'a_b', 'a b', 'a&max_results=1', E'a\n', E'\u00e9', '*']) AS prefix, code_of(format('SELECT count(*) FROM sprite_list(%L)', prefix)) AS code WHERE code <> '22023' $$, 'what cannot begin a name is refused');
SELECT is(sim.requests(), 0, 'before any request');

-- what is in a row
SELECT sim.do('full', 'create', '{"id": "any id"}');
SELECT sim.fault('{"kind": "list", "body": "{\"sprites\": [{\"id\": \"i\", \"name\": \"full\", \"status\": \"warm\", \"url\": \"https://u\", \"organization\": \"o\", \"created_at\": \"2026-01-31T11:57:12.930891Z\", \"updated_at\": \"2026-02-01T00:30:00+01:00\", \"last_running_at\": null, \"labels\": [\"x\"], \"new\": {\"a\": [1]}}]}"}');
SELECT results_eq('SELECT * FROM sprite_list()', $$ VALUES ('full', 'i', 'warm', 'https://u', '2026-01-31 11:57:12.930891+00'::timestamptz, '2026-01-31 23:30:00+00'::timestamptz, NULL::timestamptz, 'o') $$, 'a full item, with its times and without what nobody asked for');
SELECT results_eq($$ SELECT sprite_id, status, organization IS NOT NULL, created_at <= updated_at, last_running_at FROM sprite_list('full') $$, $$ VALUES ('any id', 'cold', true, true, NULL::timestamptz) $$, 'as the platform writes it');
SELECT sim.switch('{"list_items": "short"}');
SELECT results_eq($$ SELECT name, sprite_id, status, url, created_at, updated_at IS NOT NULL FROM sprite_list('full') $$, $$ VALUES ('full', NULL::text, NULL::text, NULL::text, NULL::timestamptz, true) $$, 'a short item has what it has');
SELECT sim.switch('{"list_items": "full", "id_form": "empty"}');
SELECT is((SELECT sprite_id FROM sprite_list('full')), NULL, 'an empty id is none');
SELECT sim.do('full', 'delete');
SELECT is(names('full'), NULL, 'what was deleted is not there');

-- tokens are opaque
SELECT sim.clear();
SELECT sim.fault(jsonb_build_object('kind', 'list', 'body', jsonb_build_object('sprites', '[{"name": "first"}]'::jsonb, 'next_continuation_token', U&'a b&max_results=1#/?%2f+\00e9"')::text));
SELECT sim.fault('{"kind": "list", "status": 200, "body": {"sprites": [{"name": "second"}], "next_continuation_token": ""}}');
SELECT is(names(), '{first,second}', 'an empty token is the end');
SELECT is((SELECT l->'query' FROM sim.log() AS l ORDER BY (l->>'seq')::int DESC LIMIT 1), jsonb_build_array('["max_results", "50"]'::jsonb, jsonb_build_array('continuation_token', U&'a b&max_results=1#/?%2f+\00e9"')), 'a token comes back as it was, whatever is in it');
-- an empty page is not the end if there is a token
SELECT sim.fault('{"kind": "list", "body": "{\"sprites\": [], \"has_more\": true, \"next_continuation_token\": \"YQ==\"}"}');
SELECT is(names(), '{ab,ab-1,ab-2,abc,b}', 'nor is a page without items the end');

-- a failure in the middle is a failure of it all
SELECT sim.switch('{"list_page_max": 2}');
SELECT sim.fault('{"kind": "list", "skip": 1, "status": 503}');
SELECT is(code_of('CREATE TEMP TABLE partly AS SELECT * FROM sprite_list()'), 'SP003', 'a page that fails fails the list');
SELECT hasnt_table('partly', 'of which nothing is left');
SELECT sim.fault('{"kind": "list", "skip": 2, "body": "{\"sprites\": [{\"name\": 7}]}"}');
SELECT is(code_of('SELECT count(*) FROM sprite_list()'), '08P01', 'a page that makes no sense too');
SELECT is(names(), '{a,ab,ab-1,ab-2,abc,b}', 'the next list is whole');

-- it is a set like any other
BEGIN;
SELECT sim.clear();
DECLARE c SCROLL CURSOR FOR SELECT name FROM sprite_list();
SELECT results_eq('FETCH ALL FROM c', $$ VALUES ('a'), ('ab'), ('ab-1'), ('ab-2'), ('abc'), ('b') $$, 'a cursor reads it');
MOVE ABSOLUTE 0 IN c;
SELECT results_eq('FETCH 2 FROM c', $$ VALUES ('a'), ('ab') $$, 'and reads it again');
SELECT is(sim.requests(), 3, 'without asking again');
COMMIT;
SELECT is((SELECT count(*) FROM sprite_list() AS a, sprite_list('ab') AS b WHERE a.name > b.name), 10::bigint, 'it joins');

SELECT * FROM finish();
