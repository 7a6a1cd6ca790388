-- Settings: types, units, ranges, and who may change what weakens the promise.
SET client_min_messages = warning;
CREATE EXTENSION sprite_lockdown;
CREATE ROLE regress_sprite_caller;
\set VERBOSITY sqlstate
SELECT hash_egress_policy() IS NOT NULL AS loaded;

SELECT name, boot_val, unit, context, vartype, min_val, max_val, enumvals, short_desc <> '' AS described
FROM pg_settings WHERE name LIKE 'sprite_lockdown.%' ORDER BY name COLLATE "C";

-- units
SET sprite_lockdown.connect_timeout = '1500ms';
SHOW sprite_lockdown.connect_timeout;
SET sprite_lockdown.request_timeout = '2min';
SHOW sprite_lockdown.request_timeout;
SET sprite_lockdown.call_timeout = '1h';
SHOW sprite_lockdown.call_timeout;
SET sprite_lockdown.proof_max_age = '7d';
SHOW sprite_lockdown.proof_max_age;
SET sprite_lockdown.max_response_bytes = '1MB';
SHOW sprite_lockdown.max_response_bytes;
SET sprite_lockdown.verify_push = 'IDENTITY';
SHOW sprite_lockdown.verify_push;
SET sprite_lockdown.policy_check = warn;
SHOW sprite_lockdown.policy_check;
RESET ALL;
SET client_min_messages = warning;
SELECT count(*) AS not_at_default FROM pg_settings WHERE name LIKE 'sprite_lockdown.%' AND setting <> boot_val;

-- ranges: the ends are in, what is beyond them is out
CREATE FUNCTION code_of(name text, value text) RETURNS text LANGUAGE plpgsql AS
$$
BEGIN
	PERFORM set_config(name, value, true);
	RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END
$$;
SELECT name, code_of(name, min_val) AS min, code_of(name, max_val) AS max,
	code_of(name, (min_val::bigint - 1)::text) AS below, code_of(name, (max_val::bigint + 1)::text) AS above,
	code_of(name, 'soon') AS word, code_of(name, '1 parsec') AS unit, code_of(name, '') AS empty
FROM pg_settings WHERE name LIKE 'sprite_lockdown.%' AND vartype = 'integer' ORDER BY name COLLATE "C";
SELECT name, value, code_of(name, value) FROM pg_settings, unnest(enumvals || '{on,true,0,none,""}'::text[]) AS value
WHERE name LIKE 'sprite_lockdown.%' AND vartype = 'enum' ORDER BY name COLLATE "C", value COLLATE "C";

--
-- Who may set them
--
CREATE FUNCTION try(OUT name text, OUT by_set text, OUT by_function text) RETURNS SETOF record LANGUAGE plpgsql AS
$$
BEGIN
	FOR name IN SELECT s.name FROM pg_settings AS s WHERE s.name LIKE 'sprite_lockdown.%' ORDER BY s.name COLLATE "C" LOOP
		by_set := code_of(name, (SELECT boot_val FROM pg_settings AS s WHERE s.name = try.name));
		BEGIN
			EXECUTE format('CREATE FUNCTION pg_temp.setter() RETURNS text LANGUAGE sql SET %s = %L AS %L', name,
						   (SELECT boot_val FROM pg_settings AS s WHERE s.name = try.name), 'SELECT ''ok''');
			EXECUTE 'SELECT pg_temp.setter()' INTO by_function;
			DROP FUNCTION pg_temp.setter();
		EXCEPTION WHEN OTHERS THEN
			by_function := SQLSTATE;
		END;
		RETURN NEXT;
	END LOOP;
END
$$;
SET ROLE regress_sprite_caller;
SELECT * FROM try();
ALTER ROLE regress_sprite_caller SET sprite_lockdown.verify_push = 'off';
ALTER ROLE regress_sprite_caller SET sprite_lockdown.max_attempts = 1;
RESET ROLE;
ALTER ROLE regress_sprite_caller RESET ALL;
-- a superuser may, also in a function for others
CREATE FUNCTION loosened() RETURNS text LANGUAGE sql SECURITY DEFINER SET sprite_lockdown.verify_push = 'off'
	AS $$ SELECT current_setting('sprite_lockdown.verify_push') $$;
SET ROLE regress_sprite_caller;
SELECT loosened(), current_setting('sprite_lockdown.verify_push') AS outside;
RESET ROLE;
DROP FUNCTION loosened();
-- so may a role that was granted it, where that exists (from PostgreSQL 15); silence is good
DO $$
BEGIN
	IF current_setting('server_version_num')::int >= 150000 THEN
		EXECUTE 'GRANT SET ON PARAMETER sprite_lockdown.proof_max_age TO regress_sprite_caller';
		SET LOCAL ROLE regress_sprite_caller;
		ASSERT code_of('sprite_lockdown.proof_max_age', '1h') = 'ok';
		ASSERT code_of('sprite_lockdown.verify_push', 'off') = '42501';
		RESET ROLE;
		EXECUTE 'REVOKE SET ON PARAMETER sprite_lockdown.proof_max_age FROM regress_sprite_caller';
	END IF;
END
$$;
-- names of settings that do not exist are refused (from PostgreSQL 15)
DO $$
BEGIN
	IF current_setting('server_version_num')::int >= 150000 THEN
		ASSERT code_of('sprite_lockdown.verify_pushes', 'off') <> 'ok';
	END IF;
END
$$;

-- what was set before the library is loaded does not survive it, if its setter may not
\c -
SET client_min_messages = error;
SET ROLE regress_sprite_caller;
SET sprite_lockdown.verify_push = 'off';
SET sprite_lockdown.policy_check = 'warn';
SET sprite_lockdown.proof_max_age = '1h';
SET sprite_lockdown.max_attempts = 5;
SELECT hash_egress_policy() IS NOT NULL AS loaded;
SELECT name, setting FROM pg_settings WHERE name LIKE 'sprite_lockdown.%' AND setting <> boot_val;
RESET ROLE;
-- nor does what is out of range
\c -
SET client_min_messages = error;
SET sprite_lockdown.max_attempts = 0;
SET sprite_lockdown.verify_push = 'never';
SELECT hash_egress_policy() IS NOT NULL AS loaded;
SELECT name, setting FROM pg_settings WHERE name LIKE 'sprite_lockdown.%' AND setting <> boot_val;

DROP FUNCTION try, code_of;
DROP ROLE regress_sprite_caller;
DROP EXTENSION sprite_lockdown;
