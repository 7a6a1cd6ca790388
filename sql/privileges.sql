-- Who may do what, what the extension consists of, and that it leaves nothing behind.
--
-- The server leads to a port that nobody listens on.  So 08001 says that a call was allowed
-- and a request was tried, and any other SQLSTATE that none was.
SET client_min_messages = warning;
\set VERBOSITY sqlstate
CREATE ROLE regress_sprite_app;
CREATE ROLE regress_sprite_other;

-- All that an extension may leave in the catalogs.
CREATE TABLE before (catalog text, object text);
CREATE FUNCTION objects() RETURNS TABLE (catalog text, object text) LANGUAGE sql AS
$$
	SELECT 'pg_class', oid::text FROM pg_class UNION ALL SELECT 'pg_proc', oid::text FROM pg_proc
	UNION ALL SELECT 'pg_type', oid::text FROM pg_type UNION ALL SELECT 'pg_extension', oid::text FROM pg_extension
	UNION ALL SELECT 'pg_foreign_data_wrapper', oid::text FROM pg_foreign_data_wrapper
	UNION ALL SELECT 'pg_foreign_server', oid::text FROM pg_foreign_server
	UNION ALL SELECT 'pg_user_mapping', oid::text FROM pg_user_mapping
	UNION ALL SELECT 'pg_constraint', oid::text FROM pg_constraint UNION ALL SELECT 'pg_cast', oid::text FROM pg_cast
	UNION ALL SELECT 'pg_operator', oid::text FROM pg_operator
	UNION ALL SELECT 'pg_namespace', nspname FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp_'
	UNION ALL SELECT 'pg_description', ROW(objoid, classoid, objsubid)::text FROM pg_description
	UNION ALL SELECT 'pg_init_privs', ROW(objoid, classoid, objsubid)::text FROM pg_init_privs
	UNION ALL SELECT 'pg_depend', ROW(d.*)::text FROM pg_depend AS d
	UNION ALL SELECT 'pg_shdepend', ROW(d.*)::text FROM pg_shdepend AS d
	WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
$$;
CREATE SCHEMA "We ird.Sch-ema";
INSERT INTO before SELECT * FROM objects();

--
-- Installation
--
-- not for everybody, since it makes the server speak to the network
GRANT CREATE ON SCHEMA "We ird.Sch-ema" TO regress_sprite_other;
SET ROLE regress_sprite_other;
CREATE EXTENSION sprite_lockdown SCHEMA "We ird.Sch-ema";
-- what somebody has put in its way is not taken over
CREATE FUNCTION "We ird.Sch-ema".hash_policy(policy jsonb) RETURNS text LANGUAGE sql AS $$ SELECT 'forged' $$;
RESET ROLE;
CREATE EXTENSION sprite_lockdown SCHEMA "We ird.Sch-ema";
DROP FUNCTION "We ird.Sch-ema".hash_policy(jsonb);
CREATE TABLE "We ird.Sch-ema".machine_sessions ();
CREATE EXTENSION sprite_lockdown SCHEMA "We ird.Sch-ema";
DROP TABLE "We ird.Sch-ema".machine_sessions;
-- nor used
SET ROLE regress_sprite_other;
CREATE FUNCTION "We ird.Sch-ema".now() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN RAISE 'evil'; END $$;
CREATE DOMAIN "We ird.Sch-ema".text AS pg_catalog.text CHECK (false);
CREATE DOMAIN "We ird.Sch-ema".jsonb AS pg_catalog.jsonb CHECK (false);
RESET ROLE;
CREATE EXTENSION sprite_lockdown SCHEMA "We ird.Sch-ema";
REVOKE CREATE ON SCHEMA "We ird.Sch-ema" FROM regress_sprite_other;
DROP OWNED BY regress_sprite_other;
-- elsewhere it would not find its own table
ALTER EXTENSION sprite_lockdown SET SCHEMA public;

--
-- Contents
--
CREATE VIEW members AS
SELECT d.classid, d.objid, i.type, i.identity
FROM pg_depend AS d JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid,
     LATERAL pg_identify_object(d.classid, d.objid, 0) AS i
WHERE d.deptype = 'e' AND e.extname = 'sprite_lockdown';
SELECT p.proname AS function, pg_get_function_arguments(p.oid) AS arguments
FROM members JOIN pg_proc AS p ON classid = 'pg_proc'::regclass AND objid = p.oid ORDER BY p.proname COLLATE "C";
SELECT p.proname AS function, p.provolatile AS vol, p.proparallel AS par, p.proisstrict AS strict, p.prosecdef AS definer,
	p.proretset AS set,
       has_function_privilege('public', p.oid, 'EXECUTE') AS public, pg_get_function_result(p.oid) AS result
FROM members JOIN pg_proc AS p ON classid = 'pg_proc'::regclass AND objid = p.oid ORDER BY p.proname COLLATE "C";
SELECT type, identity FROM members WHERE type <> 'function' ORDER BY type COLLATE "C", identity COLLATE "C";
SELECT relname, attname, format_type(atttypid, atttypmod) AS type, attnotnull
FROM pg_attribute JOIN pg_class AS c ON attrelid = c.oid
WHERE relnamespace = '"We ird.Sch-ema"'::regnamespace AND relkind IN ('r', 'c') AND attnum > 0
ORDER BY relname COLLATE "C", attnum;
-- what has no comment; that of a table is that of its sequence
SELECT type, identity FROM members WHERE obj_description(objid, classid::regclass::name) IS NULL AND type <> 'sequence';
SELECT identity, attname FROM members JOIN pg_attribute AS a ON classid = 'pg_class'::regclass AND objid = attrelid
WHERE type = 'table' AND attnum > 0 AND col_description(attrelid, attnum) IS NULL;
-- what a dump would miss
SELECT identity FROM members
WHERE type IN ('table', 'sequence') AND
	objid <> ALL (SELECT unnest(extconfig) FROM pg_extension WHERE extname = 'sprite_lockdown');
-- what is granted from the start
SELECT identity, privilege_type
FROM members JOIN pg_class AS c ON classid = 'pg_class'::regclass AND objid = c.oid, aclexplode(relacl) WHERE grantee <> relowner;
SELECT srvacl FROM pg_foreign_server WHERE srvname = 'sprites';
SELECT fdwacl FROM pg_foreign_data_wrapper WHERE fdwname = 'sprite_lockdown';

--
-- What a caller needs: each of it, and no more
--
ALTER SERVER sprites OPTIONS (SET api_url 'http://127.0.0.1:1');
SET sprite_lockdown.max_attempts = 1;
CREATE FUNCTION code_of(query text) RETURNS text LANGUAGE plpgsql AS
$$
BEGIN
	EXECUTE query;
	RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END
$$;
CREATE TABLE calls (n serial, function text, arguments text);
INSERT INTO calls (function, arguments) VALUES
	('sprite_get_or_create', '''x'', ''{"rules": [{"domain": "*", "action": "deny"}]}'''),
	('sprite_ensure_lockdown', '''x'', ''{"rules": [{"domain": "*", "action": "deny"}]}'''),
	('sprite_attach', '''x'''),
	('sprite_lockdown_plan', '''x'', ''{"rules": [{"domain": "*", "action": "deny"}]}'''),
	('sprite_destroy', '''x'''),
	('sprite_list', '''x'''),
	('sprite_network_policy', '''x'''),
	('sprite_exec', '''x'', ''true'', allow_unproven => true'),
	('sprite_read_file', '''x'', ''/f'', allow_unproven => true'),
	('sprite_write_file', '''x'', ''/f'', '''', allow_unproven => true');
CREATE TABLE outcomes (step text, function text, code text);
-- Calls every function that talks to the network as the current user.
CREATE FUNCTION try(step text, server name DEFAULT 'sprites') RETURNS void LANGUAGE sql AS
$$
	INSERT INTO outcomes
	SELECT step, function, code_of(format('SELECT "We ird.Sch-ema".%I(%s, server => %L)', function, arguments, server))
	FROM calls ORDER BY n
$$;
GRANT SELECT ON calls TO PUBLIC;
GRANT INSERT ON outcomes TO PUBLIC;

SET ROLE regress_sprite_app;
SELECT try('1 nothing') \gset
RESET ROLE;
GRANT USAGE ON SCHEMA "We ird.Sch-ema" TO regress_sprite_app;
SET ROLE regress_sprite_app;
SELECT try('2 USAGE on the schema') \gset
SELECT count(*) AS pure_functions FROM (VALUES ("We ird.Sch-ema".hash_egress_policy()), ("We ird.Sch-ema".parent_dir('/a/b')),
	("We ird.Sch-ema".lockdown_token('a', 'b'))) AS v(value) WHERE value IS NOT NULL;
RESET ROLE;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA "We ird.Sch-ema" TO regress_sprite_app;
SET ROLE regress_sprite_app;
SELECT try('3 EXECUTE') \gset
RESET ROLE;
GRANT USAGE ON FOREIGN SERVER sprites TO regress_sprite_app;
SET ROLE regress_sprite_app;
SELECT try('4 USAGE on the server') \gset
RESET ROLE;
CREATE USER MAPPING FOR regress_sprite_app SERVER sprites OPTIONS (token 'secret');
SET ROLE regress_sprite_app;
SELECT try('5 a user mapping: all there is to it') \gset
RESET ROLE;
-- rights are looked up at each call, also in a session that has called before
REVOKE USAGE ON FOREIGN SERVER sprites FROM regress_sprite_app;
SET ROLE regress_sprite_app;
SELECT try('6 USAGE taken away') \gset
RESET ROLE;
GRANT USAGE ON FOREIGN SERVER sprites TO regress_sprite_app;
DROP USER MAPPING FOR regress_sprite_app SERVER sprites;
CREATE USER MAPPING FOR PUBLIC SERVER sprites OPTIONS (token 'secret');
SET ROLE regress_sprite_app;
SELECT try('7 a mapping of PUBLIC') \gset
RESET ROLE;
DROP USER MAPPING FOR PUBLIC SERVER sprites;
SET ROLE regress_sprite_app;
SELECT try('8 the mapping dropped') \gset
RESET ROLE;
SELECT try('9 a superuser without a mapping') \gset
CREATE USER MAPPING FOR regress_sprite_app SERVER sprites OPTIONS (token 'secret');
SELECT step, code, count(*) FROM outcomes GROUP BY 1, 2 ORDER BY step COLLATE "C", code COLLATE "C";
TRUNCATE outcomes;

-- one function, not all
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA "We ird.Sch-ema" FROM regress_sprite_app;
GRANT EXECUTE ON FUNCTION "We ird.Sch-ema".sprite_get_or_create TO regress_sprite_app;
SET ROLE regress_sprite_app;
SELECT try('EXECUTE on one') \gset
RESET ROLE;
SELECT function, code FROM outcomes ORDER BY code, function COLLATE "C";
TRUNCATE outcomes;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA "We ird.Sch-ema" TO regress_sprite_app;

-- a function with its owner's rights speaks as its owner, to whom the mapping belongs
GRANT CREATE ON SCHEMA public TO regress_sprite_app;
SET ROLE regress_sprite_app;
CREATE FUNCTION public.for_others() RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS
$$ BEGIN PERFORM "We ird.Sch-ema".sprite_attach('x'); RETURN 'ok'; EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE; END $$;
RESET ROLE;
SET ROLE regress_sprite_other;
SELECT public.for_others(), code_of('SELECT "We ird.Sch-ema".sprite_attach(''x'')') AS directly;
RESET ROLE;
DROP FUNCTION public.for_others();
REVOKE CREATE ON SCHEMA public FROM regress_sprite_app;

--
-- Which server
--
CREATE FOREIGN DATA WRAPPER regress_sprite_wrapper;
CREATE SERVER regress_sprite_theirs FOREIGN DATA WRAPPER regress_sprite_wrapper OPTIONS (api_url 'http://127.0.0.1:1');
CREATE USER MAPPING FOR regress_sprite_app SERVER regress_sprite_theirs OPTIONS (token 'secret');
GRANT USAGE ON FOREIGN SERVER regress_sprite_theirs TO regress_sprite_app;
-- a validator of that name is not ours
CREATE FUNCTION public.sprite_lockdown_validator(text[], oid) RETURNS void LANGUAGE plpgsql AS $$ BEGIN END $$;
CREATE FOREIGN DATA WRAPPER regress_sprite_lookalike VALIDATOR public.sprite_lockdown_validator;
CREATE SERVER regress_sprite_lookalike FOREIGN DATA WRAPPER regress_sprite_lookalike OPTIONS (api_url 'http://127.0.0.1:1');
CREATE USER MAPPING FOR regress_sprite_app SERVER regress_sprite_lookalike OPTIONS (token 'secret');
GRANT USAGE ON FOREIGN SERVER regress_sprite_lookalike TO regress_sprite_app;
-- a server of one's own
CREATE SERVER "Regress ""sprite"".server" FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (api_url 'http://127.0.0.1:1');
CREATE USER MAPPING FOR regress_sprite_app SERVER "Regress ""sprite"".server" OPTIONS (token 'secret');
GRANT USAGE ON FOREIGN SERVER "Regress ""sprite"".server" TO regress_sprite_app;
SET ROLE regress_sprite_app;
SELECT try('no such server', 'regress_sprite_nowhere') \gset
SELECT try('a server of another wrapper', 'regress_sprite_theirs') \gset
SELECT try('a server of a wrapper that looks like ours', 'regress_sprite_lookalike') \gset
SELECT try('a server with an odd name', 'Regress "sprite".server') \gset
RESET ROLE;
-- the wrapper's name is for its owner to change
ALTER FOREIGN DATA WRAPPER sprite_lockdown RENAME TO regress_sprite_renamed;
SET ROLE regress_sprite_app;
SELECT try('the wrapper renamed') \gset
RESET ROLE;
ALTER FOREIGN DATA WRAPPER regress_sprite_renamed RENAME TO sprite_lockdown;
SELECT step, code, count(*) FROM outcomes GROUP BY 1, 2 ORDER BY step COLLATE "C", code COLLATE "C";
TRUNCATE outcomes;

--
-- What the functions write is for nobody else
--
SELECT identity, r AS role, p AS privilege
FROM members, unnest(ARRAY['public', 'regress_sprite_app', 'regress_sprite_other']) AS r,
	unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) AS p
WHERE type IN ('table', 'view') AND has_table_privilege(r, objid, p);
SELECT identity, r AS role, p AS privilege
FROM members, unnest(ARRAY['public', 'regress_sprite_app', 'regress_sprite_other']) AS r,
	unnest(ARRAY['USAGE', 'SELECT', 'UPDATE']) AS p
WHERE type = 'sequence' AND has_sequence_privilege(r, objid, p);
SET ROLE regress_sprite_app;
SELECT * FROM "We ird.Sch-ema".machine_sessions;
INSERT INTO "We ird.Sch-ema".machine_sessions VALUES ('k', 'sprites', 'demo', 'id', 'id:hash');
UPDATE "We ird.Sch-ema".machine_sessions SET egress_policy_token = 'id:hash';
DELETE FROM "We ird.Sch-ema".machine_sessions;
TRUNCATE "We ird.Sch-ema".machine_sessions;
COPY "We ird.Sch-ema".machine_sessions TO STDOUT;
CREATE TRIGGER forge BEFORE INSERT ON "We ird.Sch-ema".machine_sessions FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger();
SELECT * FROM "We ird.Sch-ema".lockdown_journal;
INSERT INTO "We ird.Sch-ema".lockdown_journal (role_name, server_name, sprite_name, kind, epoch)
VALUES ('r', 's', 'demo', 'confirmed', 'e');
UPDATE "We ird.Sch-ema".lockdown_journal SET kind = 'confirmed';
DELETE FROM "We ird.Sch-ema".lockdown_journal;
TRUNCATE "We ird.Sch-ema".lockdown_journal;
SELECT nextval('"We ird.Sch-ema".lockdown_journal_entry_id_seq');
SELECT * FROM "We ird.Sch-ema".lockdown_in_doubt;
-- EXECUTE is not enough to prune what others rely on
SELECT "We ird.Sch-ema".prune_lockdown_journal('0');
RESET ROLE;
-- without its tables nothing is sent
BEGIN;
ALTER TABLE "We ird.Sch-ema".machine_sessions RENAME TO moved;
SET LOCAL ROLE regress_sprite_app;
SELECT try('no machine_sessions') \gset
COMMIT;
ALTER TABLE "We ird.Sch-ema".moved RENAME TO machine_sessions;
BEGIN;
ALTER TABLE "We ird.Sch-ema".lockdown_journal RENAME TO moved;
SET LOCAL ROLE regress_sprite_app;
SELECT try('no lockdown_journal') \gset
COMMIT;
ALTER TABLE "We ird.Sch-ema".moved RENAME TO lockdown_journal;
SELECT step, function, code FROM outcomes WHERE code <> '08001' ORDER BY step COLLATE "C" DESC, function COLLATE "C";
TRUNCATE outcomes;

--
-- What a caller puts in the way is not used (07_callers.sql shows the same beyond the request)
--
CREATE SCHEMA regress_sprite_evil AUTHORIZATION regress_sprite_app;
SET ROLE regress_sprite_app;
SET search_path = regress_sprite_evil;
DO $$
DECLARE
	op text;
	type regtype;
BEGIN
	FOREACH type IN ARRAY ARRAY['text', 'name', 'oid', 'jsonb', 'timestamptz']::regtype[] LOOP
		EXECUTE format('CREATE FUNCTION evil(%s, %1$s) RETURNS boolean LANGUAGE plpgsql AS %L', type,
					   'BEGIN RAISE ''evil''; END');
		FOREACH op IN ARRAY ARRAY['=', '<>', '<', '>', '<=', '>=', '~'] LOOP
			EXECUTE format('CREATE OPERATOR %s (LEFTARG = %s, RIGHTARG = %2$s, FUNCTION = evil)', op, type);
		END LOOP;
	END LOOP;
END
$$;
CREATE FUNCTION now() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN RAISE 'evil'; END $$;
CREATE FUNCTION starts_with(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'evil'; END $$;
CREATE FUNCTION egress_policy(text, text[]) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE 'evil'; END $$;
CREATE FUNCTION hash_policy(jsonb) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'evil'; END $$;
CREATE TABLE machine_sessions (forged text);
CREATE TEMP TABLE machine_sessions (forged text);
CREATE TEMP TABLE pg_foreign_server (forged text);
CREATE TYPE pg_temp.sprite_handle AS (forged text);
SET search_path = pg_temp, regress_sprite_evil, pg_catalog, public;
SELECT "We ird.Sch-ema".hash_egress_policy('allowlist', '{a.com}') OPERATOR(pg_catalog.=)
	"We ird.Sch-ema".hash_policy("We ird.Sch-ema".egress_policy('allowlist', '{a.com}')) AS same;
SELECT "We ird.Sch-ema".sprite_get_or_create('x', '{"rules": [{"domain": "*", "action": "deny"}]}', server => 'sprites');
SELECT "We ird.Sch-ema".sprite_ensure_lockdown('x', '{"rules": [{"domain": "*", "action": "deny"}]}', server => 'sprites');
SELECT "We ird.Sch-ema".sprite_lockdown_plan('x', '{"rules": [{"domain": "*", "action": "deny"}]}', server => 'sprites');
SELECT "We ird.Sch-ema".sprite_destroy('x');
SELECT "We ird.Sch-ema".sprite_list();
RESET ROLE;
CREATE SERVER probe FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (api_ulr 'x');
CREATE SERVER probe FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (api_url 'https://a.example');
DROP SERVER probe;
RESET search_path;
DISCARD TEMP;

--
-- Removal
--
DROP VIEW members;
DROP FUNCTION code_of, try;
DROP TABLE calls, outcomes;
DROP SCHEMA regress_sprite_evil CASCADE;
DROP SERVER regress_sprite_theirs, regress_sprite_lookalike CASCADE;
DROP FOREIGN DATA WRAPPER regress_sprite_wrapper, regress_sprite_lookalike;
DROP FUNCTION public.sprite_lockdown_validator(text[], oid);
-- what depends on it is named first
DROP EXTENSION sprite_lockdown;
DROP EXTENSION sprite_lockdown CASCADE;
REVOKE ALL ON SCHEMA "We ird.Sch-ema" FROM regress_sprite_app;
SELECT * FROM objects() EXCEPT SELECT * FROM before;
SELECT * FROM before EXCEPT SELECT * FROM objects();
DROP SCHEMA "We ird.Sch-ema";
DROP ROLE regress_sprite_app, regress_sprite_other;
DROP FUNCTION objects;
DROP TABLE before;
