/* sql/sprite_lockdown--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION sprite_lockdown" to load this file. \quit

--
-- Pure functions
--
CREATE FUNCTION @extschema@.hash_policy(policy jsonb)
RETURNS text
AS 'MODULE_PATHNAME'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.hash_policy(jsonb) IS
'SHA3-256 of a network policy, in which the order of rules and keys does not count';

CREATE FUNCTION @extschema@.egress_policy(
	mode text DEFAULT 'allowlist',
	allowlist text[] DEFAULT '{}'
)
RETURNS jsonb
AS 'MODULE_PATHNAME'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.egress_policy(text, text[]) IS
'a network policy built from options: "allowlist" allows the entries that survive and denies the rest, "open" denies only the platform''s internal surface';

CREATE FUNCTION @extschema@.hash_egress_policy(
	mode text DEFAULT 'allowlist',
	allowlist text[] DEFAULT '{}'
)
RETURNS text
AS 'MODULE_PATHNAME'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.hash_egress_policy(text, text[]) IS
'hash_policy() of the policy that egress_policy() builds from the same options';

CREATE FUNCTION @extschema@.sanitize_allowlist(allowlist text[])
RETURNS text[]
AS 'MODULE_PATHNAME'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.sanitize_allowlist(text[]) IS
'the entries that survive as hosts or *.host, trimmed and lower-cased, each once and in order';

CREATE FUNCTION @extschema@.policy_problems(
	policy jsonb,
	OUT rule integer,
	OUT severity text,
	OUT code text,
	OUT message text
)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'policy_problems_sql'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE ROWS 10;
COMMENT ON FUNCTION @extschema@.policy_problems(jsonb) IS
'what is wrong with a network policy: errors, for which it is refused, and warnings; rule is NULL for the policy as a whole';

CREATE FUNCTION @extschema@.lockdown_token(sprite_id text, policy_hash text)
RETURNS text
AS 'MODULE_PATHNAME'
LANGUAGE C IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.lockdown_token(text, text) IS
'<sprite id>:<policy hash>; NULL when either is NULL or empty';

CREATE FUNCTION @extschema@.should_apply_policy(fresh boolean, applied_token text, desired_token text)
RETURNS boolean
AS 'MODULE_PATHNAME'
LANGUAGE C IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.should_apply_policy(boolean, text, text) IS
'whether a policy must be pushed, from the tokens alone; true when anything is NULL or empty';

--
-- Argument vectors for work in a VM whose workspace may be gone
--
CREATE FUNCTION @extschema@.spawn_with_self_healing_cwd(command text, args text[], cwd text)
RETURNS text[]
AS 'MODULE_PATHNAME'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.spawn_with_self_healing_cwd(text, text[], text) IS
'an argv that makes cwd, enters it or exits 1, and becomes the command';

CREATE FUNCTION @extschema@.fs_recovery_exec(directories text[] DEFAULT '{}')
RETURNS text[]
AS 'MODULE_PATHNAME'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.fs_recovery_exec(text[]) IS
'an argv that makes the directories and ignores failure; without any it only wakes the VM';

CREATE FUNCTION @extschema@.parent_dir(path text)
RETURNS text
AS 'MODULE_PATHNAME'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.parent_dir(text) IS
'the parent of a POSIX path; / when nothing stands before its last slash';

--
-- Connection
--
CREATE FUNCTION @extschema@.sprite_lockdown_validator(options text[], catalog oid)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT;
COMMENT ON FUNCTION @extschema@.sprite_lockdown_validator(text[], oid) IS
'checks the options of servers (api_url, ca_file) and user mappings (token, token_file)';

CREATE FOREIGN DATA WRAPPER sprite_lockdown
	VALIDATOR @extschema@.sprite_lockdown_validator;
COMMENT ON FOREIGN DATA WRAPPER sprite_lockdown IS
'where the Sprites platform is and as whom it is spoken to; has no tables';

CREATE SERVER sprites FOREIGN DATA WRAPPER sprite_lockdown
	OPTIONS (api_url 'https://api.sprites.dev');
COMMENT ON SERVER sprites IS 'the Sprites platform';

--
-- Session rows
--
CREATE TABLE @extschema@.machine_sessions (
	session_key text PRIMARY KEY,
	server_name name NOT NULL,
	sprite_name text NOT NULL,
	sprite_id text,
	egress_policy_token text,
	created_at timestamptz NOT NULL DEFAULT pg_catalog.now(),
	last_active_at timestamptz NOT NULL DEFAULT pg_catalog.now(),
	updated_at timestamptz NOT NULL DEFAULT pg_catalog.now()
);
CREATE INDEX machine_sessions_sprite_idx
	ON @extschema@.machine_sessions (sprite_name);

COMMENT ON TABLE @extschema@.machine_sessions IS
'which Sprite a session has, and what is recorded of the network policy it runs; written by the functions of sprite_lockdown only';
COMMENT ON COLUMN @extschema@.machine_sessions.session_key IS
'the caller''s name for the session; by default the name of the Sprite';
COMMENT ON COLUMN @extschema@.machine_sessions.server_name IS
'foreign server that was asked';
COMMENT ON COLUMN @extschema@.machine_sessions.sprite_name IS
'name of the Sprite; names are reused by other VM instances';
COMMENT ON COLUMN @extschema@.machine_sessions.sprite_id IS
'the platform''s id of the VM instance; NULL when it reported none';
COMMENT ON COLUMN @extschema@.machine_sessions.egress_policy_token IS
'<sprite id>:<policy hash> of the last confirmed lockdown; NULL when nothing is proven';
COMMENT ON COLUMN @extschema@.machine_sessions.created_at IS
'when the session was first linked to a Sprite';
COMMENT ON COLUMN @extschema@.machine_sessions.last_active_at IS
'start of the transaction that last got a hand-back for this session';
COMMENT ON COLUMN @extschema@.machine_sessions.updated_at IS
'start of the transaction that last wrote link and token; the age of the proof counts from here';

-- A caller who can write a token has forged it.
REVOKE ALL ON @extschema@.machine_sessions FROM PUBLIC;

SELECT pg_catalog.pg_extension_config_dump('@extschema@.machine_sessions', '');

--
-- Journal
--
CREATE TABLE @extschema@.lockdown_journal (
	entry_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	recorded_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	role_name name NOT NULL,
	server_name name NOT NULL,
	sprite_name text NOT NULL,
	session_key text,
	kind text NOT NULL CHECK (kind IN ('intent', 'confirmed', 'failed', 'drifted')),
	action text CHECK (action IN ('create', 'push', 'destroy')),
	reason text,
	sprite_id text,
	from_hash text,
	to_hash text,
	epoch text NOT NULL,
	intent_id bigint,
	sqlstate text
);
CREATE INDEX lockdown_journal_sprite_idx
	ON @extschema@.lockdown_journal (sprite_name, entry_id);

COMMENT ON TABLE @extschema@.lockdown_journal IS
'what was sent to change a VM, by whom and why, and whether it was confirmed; the evidence behind the tokens, appended to by the functions of sprite_lockdown only';
COMMENT ON COLUMN @extschema@.lockdown_journal.entry_id IS
'order of the entries; those of one Sprite are written under its lock';
COMMENT ON COLUMN @extschema@.lockdown_journal.recorded_at IS
'when the entry was written';
COMMENT ON COLUMN @extschema@.lockdown_journal.role_name IS
'current role of the caller';
COMMENT ON COLUMN @extschema@.lockdown_journal.server_name IS
'foreign server that was asked';
COMMENT ON COLUMN @extschema@.lockdown_journal.sprite_name IS
'name of the Sprite';
COMMENT ON COLUMN @extschema@.lockdown_journal.session_key IS
'session, if the call had one';
COMMENT ON COLUMN @extschema@.lockdown_journal.kind IS
'intent: something is about to be sent; confirmed: it was done and verified; failed: how it ended otherwise, for the record; drifted: another policy was found than the confirmed one';
COMMENT ON COLUMN @extschema@.lockdown_journal.action IS
'create, push or destroy';
COMMENT ON COLUMN @extschema@.lockdown_journal.reason IS
'why the policy was pushed';
COMMENT ON COLUMN @extschema@.lockdown_journal.sprite_id IS
'VM instance, as far as it was known';
COMMENT ON COLUMN @extschema@.lockdown_journal.from_hash IS
'policy that was confirmed before, if it was known';
COMMENT ON COLUMN @extschema@.lockdown_journal.to_hash IS
'policy that was asked for';
COMMENT ON COLUMN @extschema@.lockdown_journal.epoch IS
'system identifier, timeline, database and table: a proof of another epoch is none';
COMMENT ON COLUMN @extschema@.lockdown_journal.intent_id IS
'the intent that this entry is about';
COMMENT ON COLUMN @extschema@.lockdown_journal.sqlstate IS
'error that a failed entry ended with';

REVOKE ALL ON @extschema@.lockdown_journal FROM PUBLIC;

SELECT pg_catalog.pg_extension_config_dump('@extschema@.lockdown_journal', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.lockdown_journal_entry_id_seq', '');

CREATE VIEW @extschema@.lockdown_in_doubt AS
SELECT server_name, sprite_name, entry_id AS intent_id, recorded_at, role_name, session_key,
	action, reason, sprite_id, from_hash, to_hash
FROM (
	SELECT DISTINCT ON (server_name, sprite_name) *
	FROM @extschema@.lockdown_journal
	WHERE kind <> 'failed'
	ORDER BY server_name, sprite_name, entry_id DESC
) AS newest
WHERE kind = 'intent'
-- another server may have led to the same VM since
AND NOT EXISTS (
	SELECT FROM @extschema@.lockdown_journal AS later
	WHERE later.sprite_name = newest.sprite_name AND later.sprite_id = newest.sprite_id
	AND later.entry_id > newest.entry_id AND later.kind <> 'failed'
);
COMMENT ON VIEW @extschema@.lockdown_in_doubt IS
'Sprites to which something was sent that was never confirmed: it is under way, was rolled back, or its backend was lost; the next hand-back repairs it';
REVOKE ALL ON @extschema@.lockdown_in_doubt FROM PUBLIC;

CREATE FUNCTION @extschema@.prune_lockdown_journal(keep interval)
RETURNS bigint
LANGUAGE sql STRICT
SET search_path = pg_catalog, pg_temp
AS $$
	WITH ranked AS (
		SELECT entry_id, intent_id, entry_id = max(entry_id) OVER by_server AS is_newest,
			-- what another server may have to know
			entry_id = max(entry_id) OVER by_vm AND min(server_name) OVER by_name <> max(server_name) OVER by_name AS is_shared
		FROM @extschema@.lockdown_journal
		WHERE kind <> 'failed'
		WINDOW by_server AS (PARTITION BY server_name, sprite_name),
			by_vm AS (PARTITION BY sprite_name, sprite_id),
			by_name AS (PARTITION BY sprite_name)
	), newest AS (
		SELECT entry_id, intent_id FROM ranked WHERE is_newest OR is_shared
	), pruned AS (
		DELETE FROM @extschema@.lockdown_journal AS j
		WHERE recorded_at < now() - keep
		AND NOT EXISTS (SELECT FROM newest AS n WHERE j.entry_id IN (n.entry_id, n.intent_id))
		RETURNING 1
	)
	SELECT count(*) FROM pruned
$$;
COMMENT ON FUNCTION @extschema@.prune_lockdown_journal(interval) IS
'deletes entries older than keep, but never what a proof or a doubt rests on; returns how many';
REVOKE EXECUTE ON FUNCTION @extschema@.prune_lockdown_journal(interval) FROM PUBLIC;

--
-- Hand-backs
--
CREATE TYPE @extschema@.sprite_handle AS (
	session_key text,
	name text,
	sprite_id text,
	status text,
	url text,
	fresh boolean,
	applied boolean,
	reason text,
	policy_hash text,
	egress_policy_token text
);
COMMENT ON TYPE @extschema@.sprite_handle IS
'a Sprite as it was handed back: which VM instance it is, whether this call created it (fresh) or pushed its policy (applied) and why (reason)';

CREATE FUNCTION @extschema@.sprite_get_or_create(
	name text,
	policy jsonb,
	session_key text DEFAULT NULL,
	config jsonb DEFAULT NULL,
	server name DEFAULT 'sprites'
)
RETURNS @extschema@.sprite_handle
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.sprite_get_or_create(text, jsonb, text, jsonb, name) IS
'finds or creates the Sprite, pushes the network policy unless it is proven for that very VM instance, and records the proof with the session';

CREATE FUNCTION @extschema@.sprite_ensure_lockdown(
	name text,
	policy jsonb,
	applied_token text DEFAULT NULL,
	config jsonb DEFAULT NULL,
	server name DEFAULT 'sprites'
)
RETURNS @extschema@.sprite_handle
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.sprite_ensure_lockdown(text, jsonb, text, jsonb, name) IS
'like sprite_get_or_create, for callers that keep the token themselves; without a token the policy is always pushed';

CREATE FUNCTION @extschema@.sprite_attach(
	name text,
	server name DEFAULT 'sprites'
)
RETURNS @extschema@.sprite_handle
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.sprite_attach(text, name) IS
'looks a Sprite up by name; never pushes, never creates, proves nothing; NULL when it is gone';

CREATE FUNCTION @extschema@.sprite_lockdown_plan(
	name text,
	policy jsonb,
	session_key text DEFAULT NULL,
	server name DEFAULT 'sprites',
	OUT "exists" boolean,
	OUT sprite_id text,
	OUT would_create boolean,
	OUT would_apply boolean,
	OUT reason text
)
RETURNS record
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.sprite_lockdown_plan(text, jsonb, text, name) IS
'what sprite_get_or_create would do now, found out by one request and without any effect';

CREATE FUNCTION @extschema@.sprite_destroy(
	name text,
	server name DEFAULT 'sprites'
)
RETURNS boolean
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.sprite_destroy(text, name) IS
'deletes the VM and its session rows; false when it was already gone';

CREATE FUNCTION @extschema@.sprite_list(
	prefix text DEFAULT '',
	server name DEFAULT 'sprites',
	OUT name text,
	OUT sprite_id text,
	OUT status text,
	OUT url text,
	OUT created_at timestamptz,
	OUT updated_at timestamptz,
	OUT last_running_at timestamptz,
	OUT organization text
)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100;
COMMENT ON FUNCTION @extschema@.sprite_list(text, name) IS
'all Sprites whose name begins with prefix, as the platform lists them';

CREATE FUNCTION @extschema@.sprite_network_policy(
	name text,
	server name DEFAULT 'sprites'
)
RETURNS jsonb
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.sprite_network_policy(text, name) IS
'the network policy that the VM says it runs';

--
-- Work in the VM
--
CREATE FUNCTION @extschema@.sprite_exec(
	name text,
	command text,
	args text[] DEFAULT '{}',
	cwd text DEFAULT '/workspace',
	env jsonb DEFAULT NULL,
	stdin bytea DEFAULT NULL,
	timeout interval DEFAULT '30 s',
	server name DEFAULT 'sprites',
	allow_unproven boolean DEFAULT false,
	OUT exit_code integer,
	OUT stdout bytea,
	OUT stderr bytea
)
RETURNS record
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.sprite_exec(text, text, text[], text, jsonb, bytea, interval, name, boolean) IS
'runs a command once in cwd, which is made if it is not there; the time-out kills the command, not the VM';

CREATE FUNCTION @extschema@.sprite_write_file(
	name text,
	path text,
	content bytea,
	mode integer DEFAULT NULL,
	server name DEFAULT 'sprites',
	allow_unproven boolean DEFAULT false
)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.sprite_write_file(text, text, bytea, integer, name, boolean) IS
'writes a file and makes its parents; mode is that of chmod, as a number (420 is 0644)';

CREATE FUNCTION @extschema@.sprite_read_file(
	name text,
	path text,
	server name DEFAULT 'sprites',
	allow_unproven boolean DEFAULT false
)
RETURNS bytea
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.sprite_read_file(text, text, name, boolean) IS
'the bytes of a file; NULL when there is no such file';

-- What reaches the platform is for whom it is granted to.
REVOKE EXECUTE ON FUNCTION
	@extschema@.sprite_get_or_create(text, jsonb, text, jsonb, name),
	@extschema@.sprite_ensure_lockdown(text, jsonb, text, jsonb, name),
	@extschema@.sprite_attach(text, name),
	@extschema@.sprite_lockdown_plan(text, jsonb, text, name),
	@extschema@.sprite_destroy(text, name),
	@extschema@.sprite_list(text, name),
	@extschema@.sprite_network_policy(text, name),
	@extschema@.sprite_exec(text, text, text[], text, jsonb, bytea, interval, name, boolean),
	@extschema@.sprite_write_file(text, text, bytea, integer, name, boolean),
	@extschema@.sprite_read_file(text, text, name, boolean)
FROM PUBLIC;
