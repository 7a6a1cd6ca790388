-- Options of servers and user mappings.
CREATE EXTENSION sprite_lockdown;
\set VERBOSITY default

-- servers
CREATE SERVER s FOREIGN DATA WRAPPER sprite_lockdown;
CREATE SERVER s FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (api_ulr 'https://a.example');
CREATE SERVER s FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (host 'a.example');
CREATE SERVER s FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (api_url 'https://a.example', token 'x');
CREATE FOREIGN DATA WRAPPER w VALIDATOR sprite_lockdown_validator OPTIONS (api_url 'https://a.example');
CREATE SERVER s FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (api_url 'https://a.example', ca_file 'relative.pem');
CREATE FUNCTION accepted(url text) RETURNS boolean LANGUAGE plpgsql AS
$$
BEGIN
	EXECUTE format('CREATE SERVER probe FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (api_url %L)', url);
	DROP SERVER probe;
	RETURN true;
EXCEPTION WHEN invalid_parameter_value THEN
	RETURN false;
END
$$;
SELECT url, accepted(url) FROM unnest(ARRAY[
	'https://api.sprites.dev', 'https://api.sprites.dev/', 'https://api.sprites.dev:8443', 'http://localhost:1', 'http://127.0.0.1:1', 'http://127.9.8.7',
	'http://[::1]:1', 'HTTPS://API.SPRITES.DEV',
	'http://api.sprites.dev', 'http://127.0.0.1.evil.example', 'http://localhost.evil.example', 'http://127.0.0.1@evil.example', 'http://evil.example#127.0.0.1',
	'http://10.0.0.1', 'http://0.0.0.0', 'http://[::]', 'http://[::ffff:127.0.0.1]', 'https://user@a.example', 'https://user:pw@a.example', 'https://a.example?x=1', 'https://a.example#x',
	'ftp://127.0.0.1', 'file:///etc/passwd', 'a.example', '', 'https://', 'https://a b', E'https://a.example\r\nX: y', E'https://a.example\t', 'https://a.example\@b', E'https://\u00e9.example']) AS url;

-- user mappings
CREATE SERVER s FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (api_url 'http://127.0.0.1:1');
CREATE USER MAPPING FOR CURRENT_USER SERVER s;
CREATE USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (tokn 'x');
CREATE USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (password 'x');
CREATE USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (token 'x', token_file '/x');
CREATE USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (token '');
CREATE USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (token 'do not show');
CREATE USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (token E'do-not-show\r\nX: y');
CREATE USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (token_file 'relative');
CREATE USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (token_file '/nonexistent/token');
-- 58P01: the file is looked for at each call
\set VERBOSITY sqlstate
SELECT sprite_attach('demo', 's');
ALTER USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (DROP token_file);
ALTER USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (ADD token 'x');
ALTER USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (ADD token 'x', DROP token_file);
SELECT sprite_attach('demo', 's');

-- what makes the server read files is for superusers
CREATE ROLE regress_sprite_owner;
GRANT USAGE ON FOREIGN DATA WRAPPER sprite_lockdown TO regress_sprite_owner;
SET ROLE regress_sprite_owner;
CREATE SERVER o FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (api_url 'https://a.example', ca_file '/etc/passwd');
CREATE SERVER o FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (api_url 'https://a.example');
CREATE USER MAPPING FOR CURRENT_USER SERVER o OPTIONS (token_file '/etc/passwd');
CREATE USER MAPPING FOR CURRENT_USER SERVER o OPTIONS (token 'x');
ALTER SERVER o OPTIONS (ADD ca_file '/etc/passwd');
RESET ROLE;
DROP SERVER o CASCADE;
DROP OWNED BY regress_sprite_owner;
DROP ROLE regress_sprite_owner;

-- token files: made by the server, below its data directory
DO $$
DECLARE
	dir text := current_setting('data_directory') || '/pg_stat_tmp/';
BEGIN
	EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', format(
		'cd "%s" && umask 077 && printf secret > t_plain && printf "secret\n" > t_newline && printf "secret\r\n" > t_crlf'
		' && printf "two\nlines\n" > t_lines && : > t_empty && printf "\n" > t_blank && head -c 5000 /dev/zero | tr "\0" a > t_long'
		' && mkdir -p t_dir && { test -p t_fifo || mkfifo t_fifo; } && printf secret > t_world && chmod 0604 t_world'
		' && printf secret > t_groupwrite && chmod 0620 t_groupwrite && printf secret > t_group && chmod 0640 t_group && printf "a\000b" > t_nul', dir));
END
$$;
CREATE FUNCTION code_with_file(file text) RETURNS text LANGUAGE plpgsql AS
$$
BEGIN
	DROP USER MAPPING IF EXISTS FOR CURRENT_USER SERVER s;
	EXECUTE format('CREATE USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (token_file %L)',
				   current_setting('data_directory') || '/pg_stat_tmp/' || file);
	PERFORM sprite_attach('demo', 's');
	RETURN 'none';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END
$$;
-- 08001: the file was good, and a request was tried
SELECT f AS file, code_with_file(f) FROM unnest(ARRAY['t_plain', 't_newline', 't_crlf', 't_group', 't_lines', 't_empty', 't_blank', 't_long', 't_nul',
	't_dir', 't_fifo', 't_world', 't_groupwrite', 't_missing']) AS f;
DO $$
BEGIN
	EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', format('cd "%s/pg_stat_tmp" && rm -rf t_*', current_setting('data_directory')));
END
$$;

DROP FUNCTION code_with_file, accepted;
DROP EXTENSION sprite_lockdown CASCADE;
