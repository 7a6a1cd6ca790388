-- Pure functions: canonical form, hash, construction, problems, tokens, argument vectors.
CREATE EXTENSION sprite_lockdown;
\set VERBOSITY terse

-- Neither the order of rules nor that of keys counts; everything else does.
SELECT hash_policy('{"rules": [{"domain": "a.com", "action": "allow"}, {"domain": "*", "action": "deny"}]}') =
       hash_policy('{"rules": [{"action": "deny", "domain": "*"}, {"action": "allow", "domain": "a.com"}]}') AS same;
SELECT count(DISTINCT hash_policy(policy)) FROM (VALUES
    ('{"rules": [{"domain": "a.com", "action": "allow"}]}'::jsonb),
    ('{"rules": [{"domain": "b.com", "action": "allow"}]}'),
    ('{"rules": [{"domain": "a.com", "action": "deny"}]}'),
    ('{"rules": [{"include": "a.com"}]}'),
    ('{"rules": [{"domain": "a.com", "action": "allow"}, {"domain": "a.com", "action": "allow"}]}'),
    ('{"rules": []}'),
    ('{"rules": [{}]}')) AS v(policy);
-- No rules hash the empty string.
SELECT hash_policy('{"rules": []}');
SELECT hash_policy(NULL) IS NULL AS strict;

-- What is no policy is an error that names the rule.
\set VERBOSITY default
SELECT hash_policy('[]');
SELECT hash_policy('{}');
SELECT hash_policy('{"rules": {}}');
SELECT hash_policy('{"rules": [{"domain": "*", "action": "deny"}, 7]}');
SELECT hash_policy('{"rules": [{"domain": "*", "action": null}]}');
SELECT hash_policy('{"rules": [{"domain": ["*"], "action": "deny"}]}');
SELECT hash_policy('"rules"');
\set VERBOSITY terse

-- Construction
SELECT egress_policy();
SELECT jsonb_array_length(egress_policy('allowlist', '{a.com,b.com}')->'rules');
SELECT egress_policy('open', '{a.com}');
SELECT egress_policy('closed');
SELECT egress_policy(NULL) IS NULL AS strict;
SELECT hash_egress_policy('allowlist', '{GitHub.com}') = hash_egress_policy('allowlist', '{" github.com "}') AS same,
       hash_egress_policy() = hash_policy(egress_policy()) AS by_hash;
SELECT sanitize_allowlist(ARRAY['b.com', 'A.com', ' b.com', NULL, '1.2.3.4', '*', '*.c.com', 'https://d.com',
                                E'e.com\u3000', E'\uFEFFf.com', E'\u212A.com', E'\u0130.com']);
SELECT sanitize_allowlist('{}');
SELECT sanitize_allowlist('{{a.com},{b.com}}');

-- All that is built is without problems.
SELECT count(*) FROM (VALUES ('allowlist', '{}'::text[]), ('allowlist', '{a.com,*.b.com}'), ('open', '{}')) AS v(mode, list),
       LATERAL policy_problems(egress_policy(mode, list));

-- Problems
CREATE FUNCTION problems(rules jsonb) RETURNS TABLE (rule int, severity text, code text) LANGUAGE sql AS
$$ SELECT rule, severity, code FROM policy_problems(jsonb_build_object('rules', rules)) $$;
SELECT * FROM problems('[]');
SELECT * FROM problems('[{"domain": "a.com", "action": "allow"}]');
SELECT * FROM problems('[{"domain": "*", "action": "deny"}, {"domain": "a.com", "action": "allow"}, {"domain": "a.com", "action": "deny"}]');
SELECT * FROM problems('[{"domain": "*", "action": "deny"}, {"domain": "*", "action": "allow"}]');
SELECT * FROM problems('[{"domain": "*", "action": "deny"}, {"domain": "*.b.c", "action": "allow"}, {"domain": "*.c", "action": "deny"}]');
SELECT * FROM problems('[{"domain": "*", "action": "deny"}, {"domain": "*.a.b.c.d", "action": "deny"}, {"domain": "*.d", "action": "allow"}]');
SELECT * FROM problems('[{"domain": "*", "action": "deny"}, {"domain": "*.b.c", "action": "allow"}, {"domain": "*.c", "action": "allow"}, {"domain": "x.b.c", "action": "deny"}]');
-- Of several above it the nearest is named that does not agree.
SELECT rule, message FROM policy_problems('{"rules": [{"domain": "*", "action": "deny"}, {"domain": "*.d", "action": "deny"},
    {"domain": "*.c.d", "action": "deny"}, {"domain": "*.b.c.d", "action": "allow"}, {"domain": "*.a.b.c.d", "action": "allow"}]}');
SELECT * FROM problems('[{"domain": "*", "action": "deny", "port": "1"}]');
SELECT * FROM problems('[{"domain": "*", "action": "refuse"}]');
SELECT * FROM problems('[{"domain": "*", "action": "deny"}, {"domain": "a.com"}, {"action": "deny"}, {}]');
SELECT * FROM problems('[{"domain": "*", "action": "deny"}, {"include": "defaults"}, {"include": "defaults"}, {"include": ""}]');
SELECT * FROM problems('[{"domain": "*", "action": "deny"}, {"include": "ai", "domain": "a.com"}, {"include": "ai", "action": "deny"}]');
SELECT * FROM problems('[{"domain": "*", "action": "deny"}, {"domain": "a.com", "action": "allow"}, {"domain": "a.com", "action": "allow"}]');
SELECT * FROM problems('[{"domain": "*", "action": "deny"}, {"domain": "x.internal", "action": "allow"}, {"domain": "*.io", "action": "allow"}]');
SELECT * FROM problems('[{"domain": "*", "action": "deny"}, {"domain": "api.sprites.dev", "action": "allow"}, {"domain": "*.sprites.dev", "action": "allow"}, {"domain": "sprites.dev", "action": "allow"}]');
SELECT * FROM policy_problems('{"rules": [{"domain": "*", "action": "deny"}], "version": 1}');
SELECT d AS domain, p.message
FROM unnest(ARRAY['A.com', '1.2.3.4', '::1', '[::1]', 'a.com:443', 'http://a.com', 'a.com/x', 'a.com.', '*.', '', 'a.*.com', '**', '*a.com',
                  'a..com', '-a.com', 'a-.com', 'a b', E'b\u00fccher.de', repeat('a', 64) || '.com', repeat('a.', 127) || 'com']) WITH ORDINALITY AS u(d, n),
     LATERAL policy_problems(jsonb_build_object('rules', jsonb_build_array(
         jsonb_build_object('domain', '*', 'action', 'deny'), jsonb_build_object('domain', d, 'action', 'allow')))) AS p
WHERE p.code = 'invalid_domain' ORDER BY n;
SELECT * FROM problems('[{"domain": "*", "action": "deny"}, {"domain": "flycast", "action": "deny"}, {"domain": "_api.internal", "action": "deny"}, {"domain": "a_b.com", "action": "allow"}, {"domain": "1.2.3", "action": "allow"}]');
DROP FUNCTION problems;

-- Tokens
SELECT lockdown_token('vm1', 'h'), lockdown_token(NULL, 'h') IS NULL AS no_id, lockdown_token('', 'h') IS NULL AS empty_id,
       lockdown_token('vm1', NULL) IS NULL AS no_hash, lockdown_token('vm1', '') IS NULL AS empty_hash;
SELECT f AS fresh, a AS applied, d AS desired, should_apply_policy(f, a, d)
FROM (VALUES (false, 'vm1:h', 'vm1:h'), (true, 'vm1:h', 'vm1:h'), (NULL, 'vm1:h', 'vm1:h'), (false, NULL, 'vm1:h'), (false, '', 'vm1:h'),
             (false, 'vm1:h', NULL), (false, 'vm1:h', ''), (false, '', ''), (false, 'vm2:h', 'vm1:h'), (false, 'vm1:g', 'vm1:h'),
             (false, 'vm1:h', 'vm1:H'), (false, 'vm1:h ', 'vm1:h')) AS v(f, a, d);

-- Argument vectors
SELECT spawn_with_self_healing_cwd('ls', '{-la}', '/workspace');
SELECT (spawn_with_self_healing_cwd('$(reboot)', ARRAY['a b', '"', '''', ';', '', E'\n', '-x', E'\u00e9'], '/a "b"; $(c)'))[4:];
SELECT (spawn_with_self_healing_cwd('a', '{}', '/x'))[3] = (spawn_with_self_healing_cwd('b', '{"; c"}', '$(d)'))[3] AS script_is_constant;
SELECT spawn_with_self_healing_cwd('', '{}', '/');
SELECT spawn_with_self_healing_cwd('ls', '{}', '');
SELECT spawn_with_self_healing_cwd('ls', '{NULL}', '/');
SELECT spawn_with_self_healing_cwd(NULL, '{}', '/') IS NULL AS strict;
SELECT fs_recovery_exec();
SELECT fs_recovery_exec('{/a,"/b c"}');
SELECT fs_recovery_exec('{NULL}');
SELECT p AS path, parent_dir(p)
FROM unnest(ARRAY['/workspace/a.txt', '/workspace/a/', '/workspace', '/', '//', '', 'a', 'a/b', './a', '../a', '/a//b', '/a/b//', '..']) AS p;

-- Errors that a program can branch on
CREATE FUNCTION sqlstate_of(expression text) RETURNS text LANGUAGE plpgsql AS
$$ BEGIN EXECUTE 'SELECT ' || expression; RETURN NULL; EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE; END $$;
SELECT e AS expression, sqlstate_of(e)
FROM unnest(ARRAY[$$hash_policy('[]')$$, $$hash_policy('{"rules": [{"a": 1}]}')$$, $$policy_problems('{"rules": 1}')$$, $$egress_policy('closed')$$,
                  $$hash_egress_policy('')$$, $$sanitize_allowlist('{{a.com}}')$$, $$spawn_with_self_healing_cwd('', '{}', '/')$$,
                  $$spawn_with_self_healing_cwd('ls', '{}', '')$$, $$spawn_with_self_healing_cwd('ls', '{NULL}', '/')$$,
                  $$fs_recovery_exec('{NULL}')$$, $$fs_recovery_exec('{{/a}}')$$]) AS e;
DROP FUNCTION sqlstate_of;

-- All are immutable, safe in parallel workers, and need no search_path.
SELECT proname, provolatile, proparallel, proisstrict
FROM pg_proc
WHERE proname IN ('hash_policy', 'egress_policy', 'hash_egress_policy', 'sanitize_allowlist', 'policy_problems', 'lockdown_token',
                  'should_apply_policy', 'spawn_with_self_healing_cwd', 'fs_recovery_exec', 'parent_dir')
ORDER BY proname COLLATE "C";
SET search_path = '';
SELECT public.hash_policy(public.egress_policy('open')) = public.hash_egress_policy('open') AS same,
       (SELECT count(*) FROM public.policy_problems('{"rules": []}')) AS problems;
RESET search_path;

DROP EXTENSION sprite_lockdown;
