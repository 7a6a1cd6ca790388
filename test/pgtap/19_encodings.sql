-- Databases of other encodings: the whole of a hand-back in LATIN1, EUC_JP and SQL_ASCII, text
-- of the platform that the encoding can hold and text that it cannot, and hashes that are those of UTF-8.
CREATE DATABASE pgtap_latin1 TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C';
CREATE DATABASE pgtap_euc_jp TEMPLATE template0 ENCODING 'EUC_JP' LC_COLLATE 'C' LC_CTYPE 'C';
CREATE DATABASE pgtap_sql_ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C';
SELECT plan(63);
SET client_min_messages = warning;
CREATE EXTENSION dblink SCHEMA public;

-- One value of a query there, or its SQLSTATE.  Text is UTF-8 on the way, as here.
CREATE FUNCTION there(query text) RETURNS text LANGUAGE plpgsql AS
$$
BEGIN
	RETURN (SELECT v FROM public.dblink('there', query) AS d(v text));
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END
$$;
CREATE FUNCTION go(encoding text) RETURNS void LANGUAGE plpgsql AS
$$
BEGIN
	PERFORM public.dblink_connect('there', format('host=%s port=%s dbname=pgtap_%s', split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port'), lower(encoding)));
	PERFORM public.dblink_exec('there', format($q$ SET client_min_messages = error; CREATE EXTENSION sprite_lockdown; ALTER SERVER sprites OPTIONS (SET api_url %L); CREATE USER MAPPING FOR CURRENT_USER SERVER sprites OPTIONS (token %L); SET sprite_lockdown.max_attempts = 1 $q$,
		sim.url(), current_setting('sprite_test.token')));
END
$$;
CREATE FUNCTION is_right(name text, policy jsonb DEFAULT egress_policy()) RETURNS boolean LANGUAGE sql AS
$$ SELECT coalesce(sim.vm(name)->'policy' = policy AND NOT sim.ran_open(name), false) $$;

-- word: what the encoding can hold; foreign: what it cannot, NULL if there is nothing
CREATE FUNCTION works(encoding text, word text, "foreign" text) RETURNS SETOF text LANGUAGE plpgsql AS
$$
DECLARE
	warm text := format('SELECT reason FROM sprite_get_or_create(''e'', egress_policy(''allowlist'', ARRAY[%L, ''a.com'']), %L)', word || '.com', word);
	strange jsonb := jsonb_build_object('rules', jsonb_build_array('{"domain": "*", "action": "deny"}'::jsonb, jsonb_build_object('domain', word || '.com', 'action', 'allow')));
	here text := hash_policy(strange);
BEGIN
	PERFORM sim.reset(), go(encoding);
	RETURN NEXT is(there('SHOW server_encoding'), encoding, encoding);

	-- the whole of it, under a session key that is not ASCII
	RETURN NEXT is(there(warm), 'fresh', '... created');
	RETURN NEXT ok(is_right('e', egress_policy('allowlist', '{a.com}')), '... and locked down; an entry that is no host is dropped');
	PERFORM sim.clear();
	RETURN NEXT is(there(warm), 'proven', '... proven');
	RETURN NEXT is(sim.counts(), '{"get": 1}', '... with one request');
	RETURN NEXT is(there('SELECT session_key FROM machine_sessions'), word, '... under a key that is kept as it is');
	RETURN NEXT is(there('SELECT string_agg(session_key, '' '') FROM lockdown_journal WHERE kind = ''intent'''), word, '... also by the worker that writes the journal');
	RETURN NEXT is(there('SELECT sprite_network_policy(''e'')')::jsonb, egress_policy('allowlist', '{a.com}'), '... the policy reads back');
	RETURN NEXT is(there('SELECT hash_egress_policy(''allowlist'', ''{a.com}'')'), hash_egress_policy('allowlist', '{a.com}'), '... and hashes as it does here');
	PERFORM sim.do('e', 'replace');
	RETURN NEXT is(there(warm), 'replaced', '... replaced');

	-- an id and a status of the platform's that are not ASCII
	PERFORM sim.do('i', 'create', jsonb_build_object('id', 'vm-' || word));
	RETURN NEXT is(there('SELECT reason FROM sprite_get_or_create(''i'', egress_policy())'), 'no_proof', '... an id that is not ASCII');
	RETURN NEXT is(there('SELECT reason || '' '' || egress_policy_token FROM sprite_get_or_create(''i'', egress_policy())'), 'proven vm-' || word || ':' || hash_egress_policy(), '... is compared whole');
	PERFORM sim.fault(jsonb_build_object('kind', 'list', 'body', jsonb_build_object('sprites', jsonb_build_array(jsonb_build_object('name', 'l', 'status', word)))::text));
	RETURN NEXT is(there('SELECT status FROM sprite_list()'), word, '... as is text in a list');

	-- a policy that is not ASCII, which strict would refuse: it is sent and hashed as UTF-8
	PERFORM public.dblink_exec('there', 'SET sprite_lockdown.policy_check = ''warn''');
	RETURN NEXT is(there(format('SELECT policy_hash FROM sprite_get_or_create(''p'', %L)', strange)), here, '... a policy that is not ASCII hashes as its UTF-8');
	RETURN NEXT ok(is_right('p', strange), '... is sent and read back as such');
	RETURN NEXT is(there(format('SELECT reason FROM sprite_get_or_create(''p'', %L)', strange)), 'proven', '... and proven');
	PERFORM public.dblink_exec('there', 'RESET sprite_lockdown.policy_check');

	-- an error of the platform in words that the encoding may not have
	PERFORM sim.fault(jsonb_build_object('kind', 'policy_set', 'status', 400, 'body', word || coalesce("foreign", '')));
	RETURN NEXT is(there('SELECT reason FROM sprite_get_or_create(''err'', egress_policy())'), 'SP006', '... a refusal is a refusal in any words');
	IF "foreign" IS NOT NULL THEN
		PERFORM sim.do('f', 'create', jsonb_build_object('id', 'vm-' || "foreign"));
		RETURN NEXT is(there('SELECT reason FROM sprite_get_or_create(''f'', egress_policy())'), '22P05', '... an id that the encoding does not have is an error');
		RETURN NEXT is(row(sim.vm('f')->>'pushes', there('SELECT count(*) FROM machine_sessions WHERE sprite_name = ''f''')), row('0'::text, '0'::text), '... before anything was done');
		PERFORM sim.do('f', 'policy', jsonb_build_object('rules', jsonb_build_array(jsonb_build_object('domain', "foreign", 'action', 'allow'))));
		RETURN NEXT is(there('SELECT sprite_network_policy(''f'')'), '22P05', '... so is such a policy of a VM');
	END IF;
	PERFORM public.dblink_disconnect('there');
END
$$;
SELECT works('LATIN1', U&'caf\00e9', U&'\65e5\672c');
SELECT works('EUC_JP', U&'\65e5\672c', U&'\20ac');
SELECT works('SQL_ASCII', U&'caf\00e9 \65e5\672c', NULL);

-- bytes that are text in SQL_ASCII and not in UTF-8 cannot be sent
SELECT public.dblink_connect('there', format('host=%s port=%s dbname=pgtap_sql_ascii', split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port')));
SELECT public.dblink_exec('there', 'SET sprite_lockdown.policy_check = ''warn''');
SELECT sim.clear();
SELECT is(there($$ SELECT sprite_get_or_create('bytes', ('{"rules": [{"domain": "a' || E'\xff' || '.com", "action": "allow"}]}')::jsonb) $$), '22021', 'SQL_ASCII: a policy of bytes that are not UTF-8 is refused');
SELECT is(there($$ SELECT reason FROM sprite_get_or_create('e', egress_policy('allowlist', ARRAY[E'\xff.com', 'a.com'])) $$), '22021', 'so is an allowlist that has such an entry');
-- a message with the bytes could not be sent to a client of UTF-8, so the code is caught there
SELECT public.dblink_exec('there', 'CREATE FUNCTION code_of(query text) RETURNS text LANGUAGE plpgsql AS $f$ BEGIN EXECUTE query; RETURN ''none''; EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE; END $f$');
SELECT is(there($$ SELECT code_of('SELECT sprite_attach(E''a\xff'')') $$), '22023', 'a name of them is no name');
SELECT is(sim.requests(), 0, 'before any request');
SELECT is(there($$ SELECT reason FROM sprite_get_or_create('e', egress_policy('allowlist', '{a.com}'), E'\xff') $$), 'no_proof', 'a session key may be any bytes');
SELECT is(there($$ SELECT reason FROM sprite_get_or_create('e', egress_policy('allowlist', '{a.com}'), E'\xff') $$), 'proven', 'and is found again');
SELECT public.dblink_disconnect('there');

DROP DATABASE pgtap_latin1;
DROP DATABASE pgtap_euc_jp;
DROP DATABASE pgtap_sql_ascii;
SELECT * FROM finish();
