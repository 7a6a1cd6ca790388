-- A policy is hashed as UTF-8 whatever the database's encoding: the values are the same in all three.
SET client_min_messages = warning;
\set VERBOSITY terse
\set utf8 :DBNAME
\set latin1 regression_sprite_latin1
\set sql_ascii regression_sprite_sql_ascii
\set policy '{"rules": [{"domain": "bücher.example", "clé": "é"}, {"domain": "*", "action": "deny"}]}'
CREATE DATABASE :latin1 TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C';
CREATE DATABASE :sql_ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C';

SET client_encoding = 'UTF8';
CREATE EXTENSION sprite_lockdown;
SELECT current_setting('server_encoding') AS encoding, hash_policy(:'policy');
SELECT rule, code, message FROM policy_problems(:'policy');
DROP EXTENSION sprite_lockdown;

\c :latin1
SET client_encoding = 'UTF8';
CREATE EXTENSION sprite_lockdown;
SELECT current_setting('server_encoding') AS encoding, hash_policy(:'policy');
SELECT octet_length('bücher') AS octets;
-- Messages come back in the database's encoding.
SELECT rule, code, message FROM policy_problems(:'policy');
SELECT hash_policy('{"rules": [{"é": null}]}');
-- The no-break space is white space, and other letters beyond ASCII are in no host.
SELECT sanitize_allowlist(ARRAY[chr(160) || 'A.com' || chr(160), 'bücher.example', 'b.com']);
SELECT hash_egress_policy('allowlist', ARRAY[chr(160) || 'GitHub.com']) = hash_egress_policy('allowlist', '{github.com}') AS same;
SELECT spawn_with_self_healing_cwd('é', '{à}', '/ü') @> '{é,à,/ü}' AS as_it_is, parent_dir('/ü/é');

\c :sql_ascii
SET client_encoding = 'SQL_ASCII';
CREATE EXTENSION sprite_lockdown;
SELECT current_setting('server_encoding') AS encoding, hash_policy(:'policy');
SELECT rule, code, message FROM policy_problems(:'policy');
-- Here bytes may be anything; what is not UTF-8 is an error and is never hashed.
SELECT hash_policy(jsonb_build_object('rules', jsonb_build_array(jsonb_build_object('domain', E'b\xfccher.example'))));
\echo :LAST_ERROR_SQLSTATE
SELECT hash_policy(jsonb_build_object('rules', jsonb_build_array(jsonb_build_object(E'cl\xe9', 'x'))));
\echo :LAST_ERROR_SQLSTATE
SELECT count(*) FROM policy_problems(jsonb_build_object('rules', '[]'::jsonb, E'cl\xe9', 'x'));
\echo :LAST_ERROR_SQLSTATE
SELECT egress_policy('allowlist', ARRAY[E'b\xfccher.example']);
\echo :LAST_ERROR_SQLSTATE
-- A surrogate or an overlong form is no UTF-8 either: it would sort where nothing is defined.
SELECT sanitize_allowlist(ARRAY[E'a.com\xed\xa0\x80']);
\echo :LAST_ERROR_SQLSTATE
SELECT sanitize_allowlist(ARRAY[E'\xc0\xa0a.com']);
\echo :LAST_ERROR_SQLSTATE
SELECT sanitize_allowlist(ARRAY[E'\xe2\x80\x83A.com\xe3\x80\x80', E'\xe2\x84\xaa.com']);

\c :utf8
DROP DATABASE :latin1;
DROP DATABASE :sql_ascii;
