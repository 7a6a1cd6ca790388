-- Files: any bytes under any name, parents that are not there, a VM that sleeps, and what is no file.
SELECT plan(47);
SELECT sprite_get_or_create('vm', egress_policy());
CREATE FUNCTION code(query text) RETURNS text LANGUAGE plpgsql AS
$$ BEGIN EXECUTE query; RETURN 'none'; EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE; END $$;
-- writes, reads back, and has the VM itself look
CREATE FUNCTION goes_there_and_back(path text, content bytea) RETURNS boolean LANGUAGE plpgsql AS
$$ BEGIN PERFORM sprite_write_file('vm', path, content); RETURN sprite_read_file('vm', path) = content; END $$;

SELECT sim.clear();
SELECT ok(goes_there_and_back('/workspace/f', 'text'), 'a file');
SELECT is(sim.counts(), '{"fs_read": 1, "fs_write": 1}', 'is one request each way');
SELECT ok(goes_there_and_back('/workspace/none', ''), 'an empty one');
SELECT ok(goes_there_and_back('/workspace/bytes', (SELECT string_agg(decode(lpad(to_hex(i), 2, '0'), 'hex'), '') FROM generate_series(0, 255) AS i)), 'every byte');
SET sprite_lockdown.max_response_bytes = '64MB';
SELECT ok(goes_there_and_back('/workspace/large', convert_to(repeat('0123456789abcdef', 4194304), 'UTF8')), '64 MB');
SET sprite_lockdown.max_response_bytes = 1000000;
SELECT is(code($$ SELECT sprite_read_file('vm', '/workspace/large') $$), '54000', 'more than is allowed');
RESET sprite_lockdown.max_response_bytes;

-- names
SELECT ok(goes_there_and_back('/workspace/' || n, convert_to(n, 'UTF8')), 'a file named ' || quote_literal(n))
FROM unnest(ARRAY['a b', 'a%20b', '%', '?', '#', 'a&b=c', 'a+b', E'new\nline', 'ünï漢', '''', '"', '-n', '$(id)', '\', '~', '...', '.hidden']) AS n;
SELECT is(stdout, convert_to(n, 'UTF8'), 'the VM has it under that name: ' || quote_literal(n))
FROM unnest(ARRAY['a b', '%', '?', E'new\nline', 'ünï漢', '-n']) AS n, LATERAL sprite_exec('vm', 'cat', ARRAY['./' || n]);
SELECT is(sprite_read_file('vm', 'workspace/f'), 'text', 'a relative path is taken from the root');
SELECT is(sprite_read_file('vm', '/workspace/x/../f'), 'text', 'dots are for the VM to resolve');
SELECT is(code($$ SELECT sprite_read_file('vm', '') $$), '22023', 'an empty path');

-- parents and modes
SELECT sprite_exec('vm', 'rm', '{-rf,/workspace}', cwd => '/');
SELECT sim.clear();
SELECT ok(goes_there_and_back('/workspace/deep/er/f', 'x'), 'parents are made');
SELECT is(sim.requests('fs_write'), 1, 'by the platform');
SELECT sim.switch('{"mkdir_params": "mkdir_only"}');
SELECT ok(goes_there_and_back('/workspace/other/f', 'x'), 'whatever it calls the parameter');
SELECT sim.switch('{"mkdir_params": "both"}');
SELECT sim.clear();
SELECT sim.fault('{"kind": "fs_write", "name": "vm", "status": 404, "body": "{\"error\": \"no such file or directory\", \"code\": \"ENOENT\"}"}');
SELECT ok(goes_there_and_back('/workspace/third/f', 'x'), 'or by a command, where it does not');
SELECT is(sim.counts(), '{"exec": 1, "fs_read": 1, "fs_write": 2}', 'and one more try');
SELECT sprite_write_file('vm', '/workspace/mode', 'x', 493);
SELECT is(stdout, E'755\n', 'a mode') FROM sprite_exec('vm', 'stat', '{-c,%a,mode}');
SELECT is(code($$ SELECT sprite_write_file('vm', '/workspace/mode', 'x', 4096) $$), '22023', 'that is none');

-- what is no file
SELECT sim.clear();
SELECT is(sprite_read_file('vm', '/workspace/nothing'), NULL, 'a file that is not there is NULL');
SELECT is(sim.counts(), '{"fs_read": 1}', 'after one request');
SELECT is(code($$ SELECT sprite_read_file('gone', '/f', allow_unproven => true) $$), 'SP005', 'a VM that is not there is an error');
SELECT sim.fault('{"kind": "fs_read", "name": "vm", "status": 403}');
SELECT is(code($$ SELECT sprite_read_file('vm', '/workspace/nothing') $$), 'SP004', 'so is a refusal');
SELECT sim.fault('{"kind": "fs_read", "name": "vm", "status": 500, "times": 2}');
SELECT is(code($$ SELECT sprite_read_file('vm', '/workspace/nothing') $$), 'SP003', 'and a failure that lasts');
SELECT sim.fault('{"kind": "fs_read", "name": "vm", "status": 404, "body": "<html>not found</html>"}');
SELECT is(code($$ SELECT sprite_read_file('vm', '/workspace/nothing') $$), 'SP005', 'and a 404 from who knows whom');

-- a VM that sleeps
SET sprite_lockdown.request_timeout = '500ms';
SELECT sim.do('vm', 'sleep');
SELECT sim.clear();
SELECT is(sprite_read_file('vm', '/workspace/deep/er/f'), 'x', 'a VM that sleeps is woken');
SELECT is(sim.counts(), '{"exec": 1, "fs_read": 2}', 'by one command');

SELECT * FROM finish();
