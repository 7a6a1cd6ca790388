-- Commands in the VM: what arrives is what was given, what comes back is what was written, and
-- nothing that a command writes is taken for anything else.
SELECT plan(65);
SELECT sprite_get_or_create('vm', egress_policy());
CREATE FUNCTION run(command text, args text[] DEFAULT '{}', stdin bytea DEFAULT NULL, env jsonb DEFAULT NULL, cwd text DEFAULT '/workspace', timeout interval DEFAULT '30 s')
RETURNS text LANGUAGE sql AS
$$ SELECT concat_ws('|', exit_code, encode(stdout, 'escape'), encode(stderr, 'escape')) FROM sprite_exec('vm', command, args, cwd, env, stdin, timeout) $$;
CREATE FUNCTION sh(script text, stdin bytea DEFAULT NULL, timeout interval DEFAULT '30 s') RETURNS text LANGUAGE sql AS
$$ SELECT run('sh', ARRAY['-c', script], stdin, timeout => timeout) $$;
CREATE FUNCTION code(query text) RETURNS text LANGUAGE plpgsql AS
$$ BEGIN EXECUTE query; RETURN 'none'; EXCEPTION WHEN OTHERS OR QUERY_CANCELED THEN RETURN SQLSTATE; END $$;

-- arguments
SELECT is(run('printf', ARRAY['<%s>', w]), '0|<' || encode(convert_to(w, 'UTF8'), 'escape') || '>|', 'argument ' || quote_literal(w))
FROM unnest(ARRAY['a b', '', '''', '"', E'two\nlines', E'ends\n', '$(id)', '`id`', '$HOME', '\', '-n', '--', '*', '~', ';', '&', '%s', 'ünï', '漢字', '--end', E'\t']) AS w;
SELECT is(run('printf', ARRAY['%s,', 'a', '', 'b']), '0|a,,b,|', 'empty arguments count');
SELECT is(exit_code || ' ' || length(stdout), '0 1000000', 'a megabyte of arguments')
FROM sprite_exec('vm', 'printf', ARRAY['%s'] || array_fill(repeat('x', 100000), ARRAY[10]));
SELECT is(run('true', cwd => '/workspace/de ep/''er'), '0||', 'a working directory with a space and a quote');
SELECT is(run('pwd', cwd => '/workspace/de ep/''er'), '0|/workspace/de ep/''er' || E'\n|', 'is entered');
SELECT sh('rm -rf /workspace');
SELECT is(sh('pwd'), E'0|/workspace\n|', 'a workspace that was deleted is made again');
SELECT is(run('printenv', '{X}', env => '{"X": "a=b ''$(c)''\n"}'), E'0|a=b ''$(c)''\n\n|', 'an environment');
SELECT alike(run('printenv', '{PATH}', env => '{"X": "y"}'), '0|%/bin%', 'is added to the VM''s own');

-- input and outputs
SELECT is(sprite_exec('vm', 'cat', stdin => all_bytes), ROW(0, all_bytes, ''::bytea)::record, 'every byte goes in and comes out')
FROM (SELECT string_agg(decode(lpad(to_hex(i), 2, '0'), 'hex'), '') AS all_bytes FROM generate_series(0, 255) AS i) AS b;
SELECT is(sh('cat', ''), '0||', 'an empty input');
SELECT is(sh('cat'), '0||', 'no input');
SELECT is(sh('printf out; printf err >&2; exit 3'), '3|out|err', 'stdout, stderr and exit code apart');
SELECT is(sh('printf "\003\000"; exit 9'), E'9|\x03\\000|', 'output that looks like an exit');
SELECT is(sh('printf "\001\002\003\001" >&2; printf "\002\003\007"; exit 1'), E'1|\x02\x03\x07|\x01\x02\x03\x01', 'and like message ids');
SELECT is(sh('cat /proc/$PPID/cmdline | tr "\000" " "') !~ '[0-9a-f]{32} ended', true, 'the mark is not to be had from the command line');
SELECT is(run('sh', ARRAY['-c', 'exit ' || c]), c || '||', 'exit code ' || c) FROM unnest('{0,1,126,127,128,255}'::int[]) AS c;
SELECT is(run('sh', ARRAY['-c', 'kill -' || s || ' $$; sleep 5']), 128 + s || '||', 'signal ' || s) FROM unnest('{2,9,15}'::int[]) AS s;
SELECT alike(run('/no/such/program'), '127|%', 'a program that is not there');
SELECT is(sh('sleep 20 & echo left'), E'0|left\n|', 'what a command leaves running is not waited for');

-- however the platform frames its reply
SELECT sim.switch('{"exec_framing": "merged"}');
SELECT is(sh('printf out; printf err >&2; exit 3'), '3|out|err', 'one chunk for all messages');
SELECT sim.switch('{"exec_framing": "split"}');
SELECT is(sh('printf out; printf err >&2; exit 3'), '3|out|err', 'chunks that end amid a message');
SELECT sim.switch('{"exec_framing": "no_exit"}');
SELECT is(sh('printf out; exit 3'), '3|out|', 'the platform''s own exit message is not needed');
SELECT sim.switch('{"exec_framing": "chunks"}');

-- limits
SET sprite_lockdown.max_response_bytes = 100000;
SELECT is(length(stdout), 100000, 'as much output as is allowed') FROM sprite_exec('vm', 'head', '{-c,100000,/dev/zero}');
SELECT is(code($$ SELECT sprite_exec('vm', 'head', '{-c,100001,/dev/zero}') $$), '54000', 'a byte more');
SELECT is(code($$ SELECT sprite_exec('vm', 'sh', '{-c,"yes >&2"}') $$), '54000', 'an endless stderr');
RESET sprite_lockdown.max_response_bytes;
SELECT is(code($$ SELECT sprite_exec('vm', 'sh', '{-c,"trap \"\" TERM INT HUP; sleep 3; sleep 3; : >/workspace/late"}', timeout => '300 ms') $$), '57000', 'a time-out');
SET statement_timeout = '700ms';
SELECT is(code($$ SELECT sprite_exec('vm', 'sh', '{-c,"sleep 3; : >/workspace/late"}') $$), '57014', 'a cancel');
RESET statement_timeout;
SELECT pg_sleep(3.2);
SELECT is(sprite_read_file('vm', '/workspace/late'), NULL, 'kill the command');
SELECT is(sh('echo alive'), E'0|alive\n|', 'and not the VM');

-- replies that are lost
SELECT sim.fault('{"kind": "exec", "name": "vm", "drop": "before"}');
SELECT is(sh('echo x >>/workspace/once; echo done'), E'0|done\n|', 'a connection that drops before the command began is tried again');
SELECT sim.fault('{"kind": "exec", "name": "vm", "drop": "after"}');
SELECT is(code($$ SELECT sprite_exec('vm', 'sh', '{-c,"echo y >>/workspace/once"}') $$), '08006', 'one that drops after leaves the outcome unknown');
SELECT is(encode(sprite_read_file('vm', '/workspace/once'), 'escape'), E'x\ny\n', 'and the command is not run again');
SELECT sim.fault('{"kind": "exec", "name": "vm", "drop": "before", "times": 2}');
SELECT sim.clear();
SELECT is(sh('echo done'), E'0|done\n|', 'two that drop are');
SELECT is(sim.requests('exec'), 3, 'so the third try counts');
SELECT sim.fault('{"kind": "exec", "name": "vm", "drop": "before", "times": 3}');
SELECT is(code($$ SELECT sprite_exec('vm', 'sh', '{-c,"echo z >>/workspace/once"}') $$), '08006', 'three are enough');
SELECT is(encode(sprite_read_file('vm', '/workspace/once'), 'escape'), E'x\ny\n', 'and then it is not run either');
SELECT sim.fault('{"kind": "exec", "name": "vm", "status": 503}');
SELECT is(sh('echo done'), E'0|done\n|', 'an unavailable VM is tried again');
SELECT sim.fault('{"kind": "exec", "name": "vm", "body": ""}');
SELECT is(code($$ SELECT sprite_exec('vm', 'true') $$), '08006', 'an empty reply is no exit code 0');

SELECT * FROM finish();
