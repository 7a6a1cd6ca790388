-- Who may do what.
CREATE SCHEMA "We ird.Schema";
CREATE EXTENSION sprite_lockdown SCHEMA "We ird.Schema";
ALTER SERVER sprites OPTIONS (SET api_url 'http://127.0.0.1:1');
ALTER EXTENSION sprite_lockdown SET SCHEMA public;

-- the catalog: volatility, parallel safety, who may execute
SELECT p.proname, p.provolatile AS vol, p.proparallel AS par, p.proisstrict AS strict,
       has_function_privilege('public', p.oid, 'EXECUTE') AS public,
       obj_description(p.oid, 'pg_proc') IS NOT NULL AS comment
FROM pg_proc AS p JOIN pg_depend AS d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
     JOIN pg_extension AS e ON e.oid = d.refobjid AND e.extname = 'sprite_lockdown'
ORDER BY p.proname COLLATE "C";
-- everything else has a comment too
SELECT c.relname, a.attname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0
WHERE c.relname IN ('machine_sessions', 'lockdown_journal') AND col_description(c.oid, a.attnum) IS NULL;
SELECT obj_description('"We ird.Schema".machine_sessions'::regclass) IS NOT NULL AS tbl,
       obj_description('"We ird.Schema".sprite_handle'::regtype, 'pg_type') IS NOT NULL AS typ,
       (SELECT obj_description(oid, 'pg_foreign_server') IS NOT NULL FROM pg_foreign_server WHERE srvname = 'sprites') AS srv,
       (SELECT obj_description(oid, 'pg_foreign_data_wrapper') IS NOT NULL FROM pg_foreign_data_wrapper WHERE fdwname = 'sprite_lockdown') AS fdw;
-- the rows are part of a dump
SELECT cardinality(extconfig) AS configured FROM pg_extension WHERE extname = 'sprite_lockdown';

CREATE ROLE regress_sprite_app;
GRANT USAGE ON SCHEMA "We ird.Schema" TO regress_sprite_app;
\set VERBOSITY sqlstate
\set good '''{"rules": [{"domain": "*", "action": "deny"}]}'''

SET ROLE regress_sprite_app;
-- pure functions are for everybody
SELECT "We ird.Schema".hash_egress_policy() IS NOT NULL AS pure;
-- EXECUTE is needed
SELECT "We ird.Schema".sprite_get_or_create('demo', :good);
SELECT "We ird.Schema".sprite_ensure_lockdown('demo', :good);
SELECT "We ird.Schema".sprite_attach('demo');
SELECT "We ird.Schema".sprite_lockdown_plan('demo', :good);
SELECT "We ird.Schema".sprite_destroy('demo');
SELECT "We ird.Schema".sprite_list();
SELECT "We ird.Schema".sprite_network_policy('demo');
RESET ROLE;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA "We ird.Schema" TO regress_sprite_app;
SET ROLE regress_sprite_app;
-- USAGE on the server is needed
SELECT "We ird.Schema".sprite_get_or_create('demo', :good);
RESET ROLE;
GRANT USAGE ON FOREIGN SERVER sprites TO regress_sprite_app;
SET ROLE regress_sprite_app;
-- a user mapping is needed
SELECT "We ird.Schema".sprite_get_or_create('demo', :good);
-- the server must exist and be ours
SELECT "We ird.Schema".sprite_get_or_create('demo', :good, server => 'nowhere');
RESET ROLE;
CREATE FOREIGN DATA WRAPPER regress_sprite_other;
CREATE SERVER regress_sprite_other FOREIGN DATA WRAPPER regress_sprite_other;
GRANT USAGE ON FOREIGN SERVER regress_sprite_other TO regress_sprite_app;
CREATE USER MAPPING FOR regress_sprite_app SERVER sprites OPTIONS (token 'secret');
SET ROLE regress_sprite_app;
SELECT "We ird.Schema".sprite_get_or_create('demo', :good, server => 'regress_sprite_other');
-- with all of it, and no rights on the table, a request is tried
SELECT "We ird.Schema".sprite_get_or_create('demo', :good);
-- the table is for nobody
SELECT * FROM "We ird.Schema".machine_sessions;
INSERT INTO "We ird.Schema".machine_sessions VALUES ('k', 'sprites', 'demo', 'id', 'id:hash');
UPDATE "We ird.Schema".machine_sessions SET egress_policy_token = 'id:hash';
DELETE FROM "We ird.Schema".machine_sessions;
SELECT * FROM "We ird.Schema".lockdown_journal;
INSERT INTO "We ird.Schema".lockdown_journal (role_name, server_name, sprite_name, kind, epoch) VALUES ('r', 's', 'demo', 'confirmed', 'e');
SELECT * FROM "We ird.Schema".lockdown_in_doubt;

RESET ROLE;

DROP EXTENSION sprite_lockdown CASCADE;
DROP SCHEMA "We ird.Schema";
DROP SERVER regress_sprite_other;
DROP FOREIGN DATA WRAPPER regress_sprite_other;
SET client_min_messages = warning;
DROP OWNED BY regress_sprite_app CASCADE;
DROP ROLE regress_sprite_app;
-- nothing is left
SELECT count(*) FROM pg_foreign_data_wrapper WHERE fdwname = 'sprite_lockdown';
SELECT count(*) FROM pg_foreign_server WHERE srvname = 'sprites';
SELECT count(*) FROM pg_class WHERE relname LIKE 'machine_sessions%' OR relname LIKE 'lockdown_%';
