-- A name that is not one DNS label is refused before any request, by every function that takes
-- one; what is a name reaches the platform as it is.
SELECT plan(13);
CREATE FUNCTION code_of(query text) RETURNS text LANGUAGE plpgsql AS
$$ BEGIN EXECUTE query; RETURN 'none'; EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE; END $$;
CREATE TEMP TABLE calls (call text);
INSERT INTO calls VALUES ('sprite_get_or_create(%L, egress_policy())'), ('sprite_ensure_lockdown(%L, egress_policy())'), ('sprite_attach(%L)'),
	('sprite_lockdown_plan(%L, egress_policy())'), ('sprite_destroy(%L)'), ('sprite_network_policy(%L)');
CREATE TEMP TABLE bad (what text, name text);
INSERT INTO bad VALUES ('parent', '../x'), ('parent alone', '..'), ('dot', '.'), ('slash', 'a/b'), ('leading slash', '/a'), ('trailing slash', 'a/'), ('encoded slash', 'a%2fb'), ('encoded dots', '%2e%2e'),
	('64 characters', repeat('a', 64)), ('a megabyte', repeat('a', 1000000)), ('empty', ''), ('newline', E'a\nb'), ('trailing newline', E'a\n'), ('carriage return and header', E'a\r\nX-Evil: 1'),
	('tab', E'a\tb'), ('control character', E'a\x01'), ('delete', E'a\x7f'), ('upper case', 'Demo'), ('all upper case', 'DEMO'), ('blank', 'a b'), ('leading blank', ' a'), ('only a blank', ' '),
	('underscore', 'a_b'), ('dots of a host', 'a.b'), ('query', 'a?x=1'), ('fragment', 'a#b'), ('backslash', E'a\\b'), ('colon', 'a:b'), ('at', 'a@b'), ('quote', 'a''b'), ('percent', '%'), ('asterisk', '*'),
	('leading hyphen', '-a'), ('trailing hyphen', 'a-'), ('hyphen', '-'), ('accent', E'\u00e9'), ('Kelvin sign', E'\u212a'), ('full-width letter', E'\uff41'), ('digit of another script', E'\u0661'), ('zero-width space', E'a\u200b');

SELECT is_empty($$ SELECT call, what, code FROM bad, calls, code_of('SELECT ' || format(call, name)) AS code WHERE code <> '22023' $$, 'what is no name is refused with 22023 by each function');
SELECT is(sim.requests(), 0, 'and not one request is made');
SELECT is((SELECT count(*) FROM machine_sessions), 0::bigint, 'no row comes of it');
SELECT is((SELECT count(*) FROM lockdown_journal), 0::bigint, 'and no entry in the journal');
SELECT is_empty($$ SELECT call, code FROM calls, code_of('SELECT ' || format(call, NULL)) AS code WHERE code <> '22004' $$, 'no name at all is 22004');
SELECT is(sim.requests(), 0, 'without a request');
-- the error does not repeat what could be a megabyte
CREATE FUNCTION message_of(query text) RETURNS text LANGUAGE plpgsql AS
$$ BEGIN EXECUTE query; RETURN NULL; EXCEPTION WHEN OTHERS THEN RETURN SQLERRM; END $$;
SELECT ok(length(message_of(format('SELECT sprite_attach(%L)', repeat(E'\u00e9', 1000000)))) < 200, 'a long name is cut in the message');

-- the limits of what is a name
CREATE TEMP TABLE good AS SELECT unnest(ARRAY['a', '0', 'a-0', 'a--b', 'xn--bcher-kva', repeat('a', 63), '0' || repeat('-', 61) || '0', 'null', 'v1']) AS name;
SELECT is_empty($$ SELECT name, code FROM good, code_of(format('SELECT sprite_get_or_create(%L, egress_policy())', name)) AS code WHERE code <> 'none' $$, 'a label of up to 63 characters is a name');
SELECT is_empty($$ SELECT name FROM good WHERE sim.vm(name)->'policy' IS DISTINCT FROM egress_policy() $$, 'of a Sprite that is locked down');
SELECT set_eq($$ SELECT DISTINCT l->>'path' FROM sim.log() AS l WHERE l->>'kind' = 'get' $$, $$ SELECT '/v1/sprites/' || name FROM good $$, 'which is asked for by it');
SELECT is_empty($$ SELECT name FROM good WHERE code_of(format('SELECT sprite_destroy(%L)', name)) <> 'none' OR sim.vm(name) IS NOT NULL $$, 'and destroyed by it');

-- the key of a session is no name: anything but nothing
SELECT is((SELECT array_agg(h.session_key) FROM unnest(ARRAY['../x', E'a\nb', 'Demo', E'\u00e9', repeat('k', 1000)]) AS k, sprite_get_or_create('a', egress_policy(), k) AS h), ARRAY['../x', E'a\nb', 'Demo', E'\u00e9', repeat('k', 1000)], 'a session key may be any text');
SELECT is(code_of($$ SELECT sprite_get_or_create('a', egress_policy(), '') $$), '22023', 'but the empty one');

SELECT * FROM finish();
