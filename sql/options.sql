-- Options of servers and user mappings.
SET client_min_messages = warning;
CREATE EXTENSION sprite_lockdown;
SET sprite_lockdown.max_attempts = 1;

--
-- Servers
--
CREATE SERVER s FOREIGN DATA WRAPPER sprite_lockdown;
CREATE SERVER s FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (api_ulr 'https://a.example');
CREATE SERVER s FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (api_url 'https://a.example', cafile '/x');
CREATE SERVER s FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (host 'a.example');
CREATE SERVER s FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (api_url 'https://a.example', token 'do-not-show');
CREATE SERVER s FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (api_url 'https://a.example', verify 'off');
CREATE FOREIGN DATA WRAPPER w VALIDATOR sprite_lockdown_validator OPTIONS (api_url 'https://a.example');
ALTER FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (ADD api_url 'https://a.example');
CREATE SERVER s FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (api_url 'https://a.example', ca_file 'relative.pem');
CREATE SERVER s FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (api_url 'https://a.example', ca_file '');
CREATE SERVER s FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (api_url 'http://a.example');
ALTER SERVER sprites OPTIONS (DROP api_url);
ALTER SERVER sprites OPTIONS (SET api_url 'ftp://a.example');
SELECT srvoptions FROM pg_foreign_server WHERE srvname = 'sprites';

-- addresses
CREATE FUNCTION accepted(url text) RETURNS text LANGUAGE plpgsql AS
$$
BEGIN
	EXECUTE format('CREATE SERVER probe FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (api_url %L)', url);
	DROP SERVER probe;
	RETURN 'yes';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END
$$;
SELECT url, accepted(url) FROM unnest(ARRAY[
	'https://api.sprites.dev', 'https://api.sprites.dev/', 'https://api.sprites.dev:8443', 'HTTPS://API.SPRITES.DEV',
	'https://192.0.2.1', 'https://[2001:db8::1]:8443',
	'http://localhost:1', 'http://127.0.0.1:1', 'http://127.0.0.1:1/', 'http://127.9.8.7', 'http://[::1]', 'http://[::1]:1']) AS url;
-- what is none, or is one to some programs and another to others
SELECT url, accepted(url) FROM unnest(ARRAY[
	'', 'a.example', 'a.example:443', '//a.example', 'https:', 'https://', 'https:a.example', 'https://:443',
	'https://a.example:port', 'https://a.example:99999', 'https://[::1', 'https://*.example',
	'ftp://127.0.0.1', 'gopher://127.0.0.1', 'file:///etc/passwd', 'file://127.0.0.1/etc/passwd', 'javascript:alert(1)',
	'https://user@a.example', 'https://user:pw@a.example', 'https://:pw@a.example', 'https://@a.example',
	'https://a.example?x=1', 'https://a.example/?x=1', 'https://a.example?', 'https://a.example#x', 'https://a.example#',
	'https://a.example/#', 'https://a b', ' https://a.example', 'https://a.example ', 'https://a.example\@b', 'https:\\a.example'])
	AS url;
-- plain http to anything but loopback
SELECT url, accepted(url) FROM unnest(ARRAY[
	'http://api.sprites.dev', 'HTTP://api.sprites.dev', 'http://127.0.0.1.evil.example', 'http://localhost.evil.example',
	'http://127.evil.example', 'http://xlocalhost', 'http://localhostx', 'http://localhost.localdomain',
	'http://127.0.0.1@evil.example', 'http://localhost:1@evil.example', 'http://127.0.0.1\@evil.example',
	'http://127.0.0.1#@evil.example', 'http://127.0.0.1?@evil.example', 'http://evil.example#127.0.0.1', 'http://evil.example?127.0.0.1',
	'http://127.0.0.1%2eevil.example', 'http://localhost%2eevil.example', 'http://127.0.0.1%00.evil.example',
	'http://evil.example%00127.0.0.1', 'http://127.0.0.1,evil.example', 'http://127.0.0.1:80:80', 'http://127.0.0.256',
	'http://10.0.0.1', 'http://128.0.0.1', 'http://0.0.0.0', 'http://0', 'http://169.254.169.254', 'http://[::]', 'http://[::2]',
	'http://[::ffff:127.0.0.1]', 'http://[::127.0.0.1]', 'http://[fe80::1]']) AS url;
-- control characters and what is not ASCII
SELECT to_hex(code) AS character, accepted('https://a.example' || chr(code)) AS at_end,
	accepted('https://a' || chr(code) || 'b.example') AS inside
FROM unnest(ARRAY[1, 9, 10, 13, 27, 32, 127, 233]) AS code;
SELECT accepted(E'https://a.example\r\nX-Evil: y');

--
-- User mappings
--
CREATE SERVER s FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (api_url 'http://127.0.0.1:1');
CREATE USER MAPPING FOR CURRENT_USER SERVER s;
CREATE USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (tokn 'do-not-show');
CREATE USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (tokenfile '/x');
CREATE USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (password 'do-not-show');
CREATE USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (token 'do-not-show', api_url 'https://a.example');
CREATE USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (token 'do-not-show', token_file '/x');
CREATE USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (token '');
CREATE USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (token 'do not show');
CREATE USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (token E'do-not-show\r\nX-Evil: y');
CREATE USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (token_file '');
CREATE USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (token_file 'relative');
\set VERBOSITY sqlstate
CREATE USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (token 'x');
ALTER USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (DROP token);
ALTER USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (ADD token_file '/x');
ALTER USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (ADD token_file '/x', DROP token);
ALTER USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (ADD token 'x', DROP token_file);
-- 08001: the token is in order, and a request was tried
CREATE FUNCTION code_with(option text, value text) RETURNS text LANGUAGE plpgsql AS
$$
BEGIN
	DROP USER MAPPING IF EXISTS FOR CURRENT_USER SERVER s;
	EXECUTE format('CREATE USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (%I %L)', option, value);
	PERFORM sprite_attach('demo', 's');
	RETURN 'none';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END
$$;
SELECT code_with('token', repeat('a', 4096)) AS long, code_with('token', repeat('a', 4097)) AS too_long,
	code_with('token', '!"#$%&''()*+,-./:;<=>?@[\]^_`{|}~') AS punctuation;
SELECT to_hex(code) AS character, code_with('token', chr(code) || 'secret') AS at_begin,
	code_with('token', 'sec' || chr(code) || 'ret') AS inside,
	code_with('token', 'secret' || chr(code)) AS at_end
FROM unnest(ARRAY[1, 9, 10, 13, 27, 32, 127, 233]) AS code;

-- token files, in a directory that the server makes
CREATE TABLE scratch (dir text);
COPY scratch FROM PROGRAM '
	umask 077 && dir=$(mktemp -d) && cd "$dir" &&
	printf secret > plain && printf "secret\n" > newline && printf "secret\r\n" > crlf &&
	printf "secret\n\n" > newlines && printf "two\nlines\n" > lines && printf "secret \n" > blank_at_end && printf " \n" > blank &&
	: > empty && printf "\n" > only_newline && printf "a\000b" > nul && printf "caf\303\251" > not_ascii &&
	head -c 4096 /dev/zero | tr "\000" a > long && { cat long; printf a; } > too_long &&
	cp plain private && chmod 0400 private && cp plain group && chmod 0640 group && cp plain group_writes && chmod 0620 group_writes &&
	cp plain world && chmod 0604 world && cp plain world_writes && chmod 0602 world_writes && cp plain unreadable && chmod 0200 unreadable &&
	ln -s plain link && ln -s world link_to_world && ln -s nowhere dangling && ln -s loop loop && mkdir directory && mkfifo fifo && pwd';
SELECT file, code_with('token_file', dir || '/' || file) AS code FROM scratch, unnest(ARRAY[
	'plain', 'newline', 'crlf', 'private', 'group', 'link', 'long',
	'newlines', 'lines', 'blank_at_end', 'blank', 'empty', 'only_newline', 'nul', 'not_ascii', 'too_long',
	'group_writes', 'world', 'world_writes', 'link_to_world', 'unreadable',
	'missing', 'dangling', 'loop', 'plain/x', 'directory', 'fifo']) AS file;
-- what is no file, or has no name that a file could have
SELECT code_with('token_file', '/dev/null') AS device, code_with('token_file', '/' || repeat('a', 300)) AS long_name,
	code_with('token_file', '/' || repeat('a/', 3000)) AS long_path;
-- it is read at each call
DO $$
BEGIN
	EXECUTE (SELECT format('ALTER USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (DROP token, ADD token_file %L)',
							dir || '/plain') FROM scratch);
END
$$;
SELECT sprite_attach('demo', 's');
COPY scratch TO PROGRAM 'read -r dir && chmod 0644 "$dir/plain"';
SELECT sprite_attach('demo', 's');
COPY scratch TO PROGRAM 'read -r dir && rm "$dir/plain"';
SELECT sprite_attach('demo', 's');

-- a file of certificates must be one; opening a FIFO would wait for its writer, and could not be canceled
CREATE FUNCTION code_with_ca(file text) RETURNS text LANGUAGE plpgsql AS
$$
BEGIN
	EXECUTE format('CREATE SERVER tls FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (api_url %L, ca_file %L)',
				   'https://127.0.0.1:1', file);
	CREATE USER MAPPING FOR CURRENT_USER SERVER tls OPTIONS (token 'x');
	PERFORM sprite_attach('demo', 'tls');
	RETURN 'none';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END
$$;
SELECT file, code_with_ca(dir || '/' || file) AS code
FROM scratch, unnest(ARRAY['private', 'world', 'fifo', 'directory']) AS file;
COPY scratch TO PROGRAM 'read -r dir && rm -r "$dir"';

--
-- What makes the server read files is for superusers, as is changing what has it
--
CREATE ROLE regress_sprite_owner;
GRANT USAGE ON FOREIGN DATA WRAPPER sprite_lockdown TO regress_sprite_owner;
SET ROLE regress_sprite_owner;
CREATE SERVER o FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (api_url 'https://a.example', ca_file '/etc/passwd');
CREATE SERVER o FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (api_url 'https://a.example');
ALTER SERVER o OPTIONS (ADD ca_file '/etc/passwd');
ALTER SERVER o OPTIONS (SET api_url 'http://a.example');
CREATE USER MAPPING FOR CURRENT_USER SERVER o OPTIONS (token_file '/etc/passwd');
CREATE USER MAPPING FOR PUBLIC SERVER o OPTIONS (token_file '/etc/passwd');
CREATE USER MAPPING FOR CURRENT_USER SERVER o OPTIONS (token 'x');
ALTER USER MAPPING FOR CURRENT_USER SERVER o OPTIONS (ADD token_file '/etc/passwd', DROP token);
ALTER USER MAPPING FOR CURRENT_USER SERVER o OPTIONS (SET token 'y');
RESET ROLE;
ALTER SERVER o OPTIONS (ADD ca_file '/etc/ca.pem');
ALTER USER MAPPING FOR regress_sprite_owner SERVER o OPTIONS (ADD token_file '/run/token', DROP token);
SET ROLE regress_sprite_owner;
ALTER SERVER o OPTIONS (SET api_url 'https://evil.example');
ALTER SERVER o OPTIONS (SET ca_file '/etc/passwd');
ALTER USER MAPPING FOR CURRENT_USER SERVER o OPTIONS (SET token_file '/etc/passwd');
-- to take it away does not read a file
ALTER SERVER o OPTIONS (DROP ca_file);
ALTER USER MAPPING FOR CURRENT_USER SERVER o OPTIONS (ADD token 'x', DROP token_file);
RESET ROLE;
DROP SERVER o CASCADE;
DROP OWNED BY regress_sprite_owner;
DROP ROLE regress_sprite_owner;

-- the validator, called by hand
SELECT sprite_lockdown_validator('{api_url=https://a.example}', 'pg_foreign_server'::regclass);
SELECT sprite_lockdown_validator('{api_url=http://a.example}', 'pg_foreign_server'::regclass);
SELECT sprite_lockdown_validator('{api_url}', 'pg_foreign_server'::regclass);
SELECT sprite_lockdown_validator('{}', 'pg_class'::regclass);
SELECT sprite_lockdown_validator('{api_url=https://a.example}', 'pg_class'::regclass);
SELECT sprite_lockdown_validator(NULL, NULL) IS NULL AS strict;

DROP TABLE scratch;
DROP FUNCTION code_with, code_with_ca, accepted;
DROP EXTENSION sprite_lockdown CASCADE;
