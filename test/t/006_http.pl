# The HTTP room alone, against servers that answer as none should: what each reply is taken
# for, what is sent and what never is, that limits and time-outs bound everything, and that
# nothing is left behind.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename;
use File::Copy;
use HTTP::Tiny;
use IPC::Run;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

use constant PATIENCE => 60;            # seconds until a condition is given up

my $test_dir = abs_path(dirname(__FILE__) . '/..');
my $scratch = PostgreSQL::Test::Utils::tempdir();

sub wait_for
{
	my ($what, $condition) = @_;
	my $end = time + PATIENCE;
	until ($condition->())
	{
		die "timed out: $what" if time > $end;
		usleep(10_000);
	}
}

# The module under test: HTTP_PROBE names one, or it is built here from copies, as neither
# make nor a tree that may not be written to is to be in the way.
sub build_probe
{
	my $dir = "$scratch/probe";
	mkdir $dir or die "$dir: $!";
	copy($_, $dir) or die "$_: $!" for map { glob qq("$test_dir/$_") } qw(http_probe/*.c http_probe/Makefile ../src/http*.[ch] ../src/compat.h);
	delete local @ENV{qw(MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES)};
	system_or_bail('make', '-s', '-C', $dir, 'SRC=.', 'PG_CONFIG=' . ($ENV{PG_CONFIG} // 'pg_config'));
	return "$dir/http_probe.so";
}

my $module = $ENV{HTTP_PROBE} // build_probe();

sub build_preload
{
	my ($source) = @_;
	my $library = "$scratch/" . basename($source, '.c') . '.so';
	system_or_bail('gcc', '-shared', '-fPIC', '-o', $library, $source, '-ldl');
	return $library;
}

my @preload = map { build_preload("$test_dir/$_") } qw(lib/slow_dns.c http_probe/step_clock.c);

# The servers
my $ports_file = "$scratch/ports";
my $bad_server = IPC::Run::start([ 'python3', "$test_dir/lib/bad_server.py", $ports_file, $$ ]);
wait_for('bad_server.py', sub { -s $ports_file });
my %port = map { split } split /\n/, slurp_file($ports_file);
my $base = "http://127.0.0.1:$port{path}";
my $closed_port = PostgreSQL::Test::Cluster::get_free_port();
my $reporter = HTTP::Tiny->new(keep_alive => 0);

sub report { return decode_json($reporter->get("$base/report")->{content}) }

# How often the server was asked for the path.
sub requests { return report()->{requests}{ $_[0] } // 0 }

# An environment that would lead astray whoever listened to it
my $clock_file = "$scratch/clock_stepped";
append_to_file("$scratch/.netrc", "machine 127.0.0.1 login somebody password else\n");
my %environment = (
	LD_PRELOAD => join(' ', @preload), STEP_CLOCK => $clock_file, HOME => $scratch,
	map { $_ => "http://127.0.0.1:$closed_port" } qw(http_proxy https_proxy all_proxy HTTPS_PROXY ALL_PROXY));

my $node = PostgreSQL::Test::Cluster->new('http');
$node->init;
# what ought to be bounded and is not fails, and does not hang
$node->append_conf('postgresql.conf', "restart_after_crash = off\nstatement_timeout = 20s\n");

sub start_node
{
	local @ENV{ keys %environment } = values %environment;
	return $node->start(@_);
}

start_node();
my $columns = join ', ', map { "OUT $_" } 'outcome text', 'timed_out boolean', 'stage text', 'error text', 'status int',
	'body bytea', 'body_type text', 'request_id text', 'retry_after bigint', 'framed boolean', 'terminated boolean';
$node->safe_psql('postgres', qq(
	CREATE FUNCTION perform(text, text, text, text, bytea, int, int, bigint, text, boolean, $columns)
	AS '$module', 'http_probe' LANGUAGE C;
	CREATE FUNCTION probe(url text, method text = 'GET', bearer text = NULL, content_type text = NULL, sent bytea = NULL,
		connect_timeout int = 20000, timeout int = 30000, max_body bigint = 1000000, ca_file text = NULL,
		interruptible boolean = true, $columns)
	AS 'SELECT * FROM perform(method, url, bearer, content_type, sent, connect_timeout, timeout, max_body, ca_file, interruptible)' LANGUAGE sql;
	CREATE FUNCTION http_probe_sleep(int) RETURNS void AS '$module' LANGUAGE C;
	CREATE FUNCTION http_probe_escape(text) RETURNS text AS '$module' LANGUAGE C;
	CREATE FUNCTION http_probe_url_problem(text) RETURNS text AS '$module' LANGUAGE C;
	CREATE FUNCTION descriptors() RETURNS bigint AS 'SELECT count(*) FROM pg_ls_dir(''/proc/self/fd'')' LANGUAGE sql;
	CREATE FUNCTION kb(what text) RETURNS int
	AS 'SELECT substring(pg_read_file(''/proc/self/status'') FROM what || '':\\s+(\\d+)'')::int' LANGUAGE sql;
));

# Runs SQL in one session; its rows.
sub sql
{
	my (@statements) = @_;
	my $out = $node->safe_psql('postgres', join '', map { "$_;\n" } @statements);
	return wantarray ? split(/\n/, $out) : $out;
}

# The columns of one request's reply, joined by "|"
sub probe
{
	my ($columns, $url, $options) = @_;
	$options = $options ? ", $options" : '';
	return "SELECT $columns FROM probe('$url'$options)";
}

sub sqlstate
{
	my ($query) = @_;
	$node->psql('postgres', $query, stderr => \my $err, extra_params => [ '-v', 'VERBOSITY=sqlstate' ]);
	return $err =~ /ERROR: +(\w{5})/ ? $1 : $err;
}

# ---------------------------------------------------------------------------
# What a reply is taken for

my $verdict = q(outcome || ' ' || stage || ' ' || status || CASE WHEN framed THEN ' framed' ELSE '' END || ' ' || encode(body, 'escape'));
for (
	[ ok => 'replied receive 200 framed {"path": "/ok"}', 'a reply with a length' ],
	[ no_content => 'replied receive 204 framed ', 'a reply without a body' ],
	[ chunked => 'replied receive 200 framed whole', 'a chunked reply' ],
	[ closed => 'replied receive 200 who knows', 'a body that ends with the connection is there, but not known to be whole' ],
	[ interim => 'replied receive 200 framed ok', 'interim replies go before' ],
	[ zero_bytes => 'replied receive 200 framed a\000b\000c', 'zero bytes are kept' ],
	[ redirect => 'replied receive 302 framed ', 'a redirect is a reply' ],
	[ challenge => 'replied receive 401 framed {}', 'a challenge is a reply' ],
	[ early => 'replied receive 200 framed first', 'what follows a reply is not part of it' ],
	[ reset => 'lost receive 200 framed ', 'a connection that is reset in the body' ],
	[ cut_length => 'lost receive 200 framed ', 'a body that falls short of its length' ],
	[ cut_chunk => 'lost receive 200 framed ', 'a body that ends within a chunk' ],
	[ cut_chunks => 'lost receive 200 framed ', 'a body whose last chunk does not come' ],
	[ cut_head => 'lost receive 200 ', 'a head that is cut off' ],
	[ nothing => 'lost wait 0 ', 'no reply at all' ],
	[ bad_chunk => 'lost receive 200 framed ', 'a chunk without a size' ],
	[ garbage => 'malformed wait 0 ', 'what is not HTTP' ],
	[ bad_length => 'malformed receive 200 ', 'a length that is no number' ])
{
	my ($path, $expected, $name) = @$_;
	my $got = sql(probe($verdict, "$base/$path"));
	is($got, $expected, "$name: $path");
}

is(sql(probe('body_type, request_id, retry_after, terminated, error IS NULL', "$base/ok")), 'application/json|01ABC???-lhr|-1|t|t',
	'a reply has its type and request id, in printable ASCII');
is(sql(probe('body_type IS NULL, retry_after', "$base/interim")), 't|-1', 'what an interim reply said is not taken for the reply\'s');
like(sql(probe('error', "$base/cut_head")), qr/head/, 'a reply that is cut off has an error text');
for ([ '30', 30 ], [ '0', 0 ], [ '-1', -1 ], [ '1.5', -1 ], [ '12+s', -1 ], [ '9' x 30, 86400 ],
	[ 'Wed,+21+Oct+2065+07:28:00+GMT', 86400 ], [ 'Wed,+21+Oct+2015+07:28:00+GMT', 0 ], [ 'soon', -1 ])
{
	my ($value, $seconds) = @$_;
	is(sql(probe('retry_after', "$base/wait_until?$value")), $seconds, "Retry-After: $value");
}

# Nothing is unpacked: what is counted is what arrives
like(sql(probe(q(outcome || ' ' || encode(substr(body, 1, 2), 'hex')), "$base/packed")), qr/^replied 1f8b$/, 'a packed body stays packed');
is(sql(probe(q(outcome, length(body) < 10000), "$base/packed_transfer")), 'replied|t', 'so does one that is packed as a transfer');

# ---------------------------------------------------------------------------
# What is sent

my $token = 'org/1/2/' . 'x' x 2000;
sql(probe('1', "$base/sent", "'POST', bearer => '$token', content_type => 'application/json', sent => repeat('x', 2000000)::bytea"));
my $head = report()->{head}{'/sent'};
like($head, qr{^POST /sent HTTP/1\.1\r\n}, 'the method and the path are sent');
like($head, qr{^Authorization: Bearer \Q$token\E\r$}m, 'the credential is, whole');
like($head, qr{^Content-Type: application/json\r$}m, 'the content type is');
unlike($head, qr/^Expect:/mi, 'no leave is asked before a large body');
unlike($head, qr/^(?:TE|Accept-Encoding):/mi, 'packed replies are not asked for');
is(report()->{body}{'/sent'}, 2000000, 'all of the body is sent');

sql(probe('1', "$base/empty", "'POST'"));
like(report()->{head}{'/empty'}, qr/^Content-Length: 0\r$/m, 'an empty POST says so');
unlike(report()->{head}{'/empty'}, qr/^Content-Type:/mi, 'and claims no type');

sql(probe('1', "$base/challenge"), probe('1', "$base/after"));
unlike(report()->{head}{'/after'}, qr/^Authorization:/mi, 'neither .netrc nor a challenge brings forth a credential');
unlike(report()->{head}{'/after'}, qr/^Cookie:/mi, 'cookies are not kept');

sql(probe('1', "$base/redirect", "bearer => 'secret'"));
is(requests('/redirected'), 0, 'a redirect is not followed');
# that every request so far has arrived shows that no proxy was asked

my $accepted = report()->{accepted};
for (
	[ 'a line break in the credential' => "'$base/never', bearer => E'a\\r\\nX: y'" ],
	[ 'a newline in the credential' => "'$base/never', bearer => E'a\\n'" ],
	[ 'a control character in the credential' => "'$base/never', bearer => E'a\\x7f'" ],
	[ 'a line break in the content type' => "'$base/never', 'POST', content_type => E'a\\r\\nX: y'" ],
	[ 'a line break in the URL' => "E'$base/never HTTP/1.1\\r\\nX: y'" ])
{
	my ($name, $arguments) = @$_;
	is(sqlstate("SELECT probe($arguments)"), '22023', "$name is refused");
}
is(report()->{accepted}, $accepted, 'before anything is sent');
is(sql(probe('outcome, length(body)', 'file:///etc/passwd')), 'not sent|0', 'a file is no server');

is(sql("SELECT http_probe_escape(E'a/b%2f ..\\\\?#&\\xc3\\xa9-._~')"), 'a%2Fb%252f%20..%5C%3F%23%26%C3%A9-._~', 'a segment is escaped');
is(sql("SELECT http_probe_escape('.') || ' ' || http_probe_escape('..')"), '%2E %2E%2E', 'and is never a step in the path');

for ('https://api.sprites.dev', 'https://host:8443/base', 'http://localhost', 'http://127.0.0.1:80', 'http://127.8.9.10', 'http://[::1]:8080')
{
	is(sql("SELECT coalesce(http_probe_url_problem('$_'), 'none')"), 'none', "a server may be at $_");
}
for ('http://example.com', 'http://127.0.0.1.example.com', 'http://localhost.example.com', 'http://[::2]', 'http://0.0.0.0', 'http://128.0.0.1',
	'https://user@host', 'https://user:word@host', 'https://host?q', 'https://host#f', 'ftp://localhost', 'file:///etc/passwd',
	'https://', 'host', '', 'https://a b', 'http://127.0.0.1\\@example.com', 'http://127.0.0.1@example.com')
{
	isnt(sql("SELECT coalesce(http_probe_url_problem('$_'), 'none')"), 'none', "but not at $_");
}

# ---------------------------------------------------------------------------
# Limits

# An endless reply: refused, its connection closed, and no more of it taken than fits in
# the sockets' buffers.
for (qw(many_headers many_interim long_header long_trailers large_length large_chunked large_closed))
{
	my (undef, $first, $outcome, $last) = sql(probe('outcome', "$base/ok"), q(SELECT kb('VmHWM')), probe('outcome, length(body)', "$base/$_"), q(SELECT kb('VmHWM')));
	is($outcome, 'too large|0', "$_: refused");
	my $path = "/$_";
	wait_for("$_: closed", sub { report()->{closed}{$path} });
	my $sent = report()->{sent}{$path};
	note(sprintf 'measured: %s: the server could send %d kB, the backend grew by %d kB', $_, $sent / 1024, $last - $first);
	cmp_ok($sent, '<', 16_000_000, "$_: the connection is closed at once");
	cmp_ok($last - $first, '<', 4096, "$_: and it is not stored");
}
my (undef, $before, undef, $after) = sql(probe('outcome', "$base/ok"), q(SELECT kb('VmHWM')),
	probe('outcome', "$base/large_length", 'max_body => 1000000000'), q(SELECT kb('VmHWM')));
cmp_ok($after - $before, '<', 4096, 'a length over the limit is refused up front');
my $length = length '{"path": "/ok"}';
is(sql(probe('outcome', "$base/ok", "max_body => $length")), 'replied', 'a body may be as long as the limit');
is(sql(probe('outcome', "$base/ok", 'max_body => ' . ($length - 1))), 'too large', 'and not a byte longer');

# Time-outs, at each stage
my $host = 'http://127.0.0.1';
for (
	[ 'resolve', 'https://host.slow.invalid', 'timeout => 300', 'not sent' ],
	[ 'resolve', 'https://host.slow.invalid', 'connect_timeout => 300', 'not sent' ],
	[ 'connect', "$host:$port{connect}", 'timeout => 300', 'not sent' ],
	[ 'connect', "$host:$port{connect}", 'connect_timeout => 300', 'not sent' ],
	[ 'tls', "https://127.0.0.1:$port{tls}", 'timeout => 300', 'not sent' ],
	[ 'tls', "https://127.0.0.1:$port{tls}", 'connect_timeout => 300', 'not sent' ],
	[ 'send', "$host:$port{send}", "timeout => 300, method => 'POST', sent => repeat('x', 30000000)::bytea", 'lost' ],
	[ 'wait', "$host:$port{wait}", 'timeout => 300', 'lost' ],
	[ 'receive', "$host:$port{receive}", 'timeout => 300', 'lost' ],
	[ 'receive', "$base/drip", 'timeout => 300', 'lost' ],
	[ 'receive', "$base/drip_headers", 'timeout => 300', 'lost' ])
{
	my ($stage, $url, $options, $outcome) = @$_;
	# an endless request that cannot be interrupted would hang the test
	for my $interruptible (qw(true false))
	{
		my $start = time;
		$node->psql('postgres', probe('outcome, timed_out, stage', $url, "$options, interruptible => $interruptible"), stdout => \my $out);
		is($out, "$outcome|t|$stage", "$stage: $options bounds it, interruptible => $interruptible ($url)") or last;
		# how soon exactly is not the question: without a limit these would take half a minute
		cmp_ok(time - $start, '<', 10, '... in time') or last;
	}
}

# where a millisecond ends is not foreseen
is(sql(probe('timed_out', "$host:$port{wait}", "timeout => 0, interruptible => $_")), 't', "no time at all is no time without limit, interruptible => $_") for qw(true false);

# Failures before anything is sent
is(sql(probe('outcome, timed_out, stage', "$host:$closed_port")), 'not sent|f|connect', 'a connection that is refused');
is(sql(probe('outcome, timed_out, stage', 'https://host.none.invalid')), 'not sent|f|resolve', 'a host that is not known');
is(sql(probe('outcome, timed_out, stage', "https://127.0.0.1:$port{path}")), 'not sent|f|tls', 'a server that does not speak TLS');
is(sql(probe('outcome, timed_out, stage', "https://127.0.0.1:$port{path}", "ca_file => '/nowhere'")), 'not sent|f|tls', 'no file of trusted certificates');

# ---------------------------------------------------------------------------
# Connections that are kept

$accepted = report()->{accepted};
is(join(' ', sql(map { probe('status', "$base/$_") } qw(ok no_content chunked redirect ok))), '200 204 200 302 200', 'five requests of one backend');
is(report()->{accepted}, $accepted + 1, 'go over one connection');

$accepted = report()->{accepted};
is(join(' ', sql(probe('outcome', "$base/ok"), probe('outcome', "$base/silent", 'timeout => 100'), probe('outcome', "$base/ok"))), 'replied lost replied', 'after a failure');
is(report()->{accepted}, $accepted + 2, 'there is a new connection');

# More failures to connect than there may be sockets at once
is(join(' ', sql((map { probe('outcome', "$host:$closed_port") } 1 .. 40), probe('outcome', "$base/ok"))), 'not sent ' x 40 . 'replied',
	'connections that never came about are not counted as kept');

# A server that reads the second request of a connection and hangs up: what it did with it
# is not known, so only what may be done twice is asked for again.
for ([ 'GET', 'NULL', 'replied', 2 ], [ 'DELETE', 'NULL', 'replied', 2 ], [ 'POST', 'NULL', 'lost', 1 ], [ 'POST', q('{}'), 'lost', 1 ], [ 'PUT', q('x'), 'lost', 1 ])
{
	my ($method, $sent, $outcome, $times) = @$_;
	my $asked = requests('/dying/');
	is((sql(probe('outcome', "$base/dying"), probe('outcome', "$base/dying/", "'$method', sent => $sent")))[1], $outcome, "a kept connection that dies under a $method");
	is(requests('/dying/') - $asked, $times, '... which is ' . ($times == 1 ? 'never repeated' : 'repeated'));
}

# What the backend starts does not inherit them.
my $inherited = "$scratch/inherited";
sql(probe('outcome', "$base/ok"), "COPY (SELECT 1) TO PROGRAM 'ls -l /proc/self/fd > $inherited; cat /proc/net/tcp >> $inherited'");
my $inherited_text = slurp_file($inherited);
my $port_hex = sprintf '%04X', $port{path};
my @inodes = map { (split)[9] } grep { (split)[2] =~ /:$port_hex$/ } grep { /^\s*\d+: / } split /\n/, $inherited_text;
cmp_ok(scalar @inodes, '>=', 1, 'there is a connection that is kept');
is(scalar(grep { $inherited_text =~ /socket:\[$_\]/ } @inodes), 0, 'and COPY TO PROGRAM does not inherit it');

# A reply that nobody asked for is nobody's
is((sql(probe('1', "$base/early"), probe(q(encode(body, 'escape')), "$base/ok")))[1], '{"path": "/ok"}', 'a second reply is not taken for the next request\'s');
{
	my $session = $node->background_psql('postgres');
	$session->query(probe('1', "$base/late"));
	wait_for('the second reply', sub { report()->{sent}{'/late'} });
	is($session->query(probe(q(encode(body, 'escape')), "$base/ok")), '{"path": "/ok"}', 'nor is one that comes in between');
	$session->quit;
}

# ---------------------------------------------------------------------------
# Interrupts

# Starts a query in a session of its own and waits until it waits; the session's process,
# its output and the backend.
sub start_stuck
{
	my ($query) = @_;
	my ($out, $err) = ('', '');
	my $psql = IPC::Run::start([ 'psql', '-X', '-q', '-A', '-t', '-d', $node->connstr('postgres'), '-v', 'VERBOSITY=sqlstate',
		'-c', 'SELECT pg_backend_pid()', '-c', $query ], '<', \undef, '>', \$out, '2>', \$err);
	$psql->pump until $out =~ /^(\d+)\n/;
	my $pid = $1;
	$node->poll_query_until('postgres', "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $pid") or die 'the query does not wait';
	return ($psql, \$out, \$err, $pid);
}

# Processor time of a process, in ms
sub cpu_ms { my @stat = split ' ', slurp_file("/proc/$_[0]/stat") =~ s/.*\) //sr; return ($stat[11] + $stat[12]) * 10 }

{
	my $start = time;
	my ($psql, $out, $err, $pid) = start_stuck(probe('outcome', "$base/silent", 'timeout => 1500, interruptible => false'));
	my $used = cpu_ms($pid);
	for (1 .. 20) { kill 'INT', $pid; usleep(10_000) }
	wait_for('its time-out', sub { time - $start >= 1.2 });
	ok(-d "/proc/$pid" && $$err eq '', 'a request that is not to be interrupted is not');
	my $spent = cpu_ms($pid) - $used;
	eval { $psql->finish };
	cmp_ok(time - $start, '>=', 1.4, '... until it has timed out');
	like($$err, qr/57014/, '... and then the cancel is served');
	note("measured: uninterruptible: $spent ms of processor time in a second and more");
	cmp_ok($spent, '<=', 200, '... and it has waited, not spun');
}

sub is_running
{
	my ($pid) = @_;
	open my $stat, '<', "/proc/$pid/stat" or return 0;
	return (<$stat> // '') =~ /\) [^ZX] /;
}

{
	my ($psql, $out, $err, $pid) = start_stuck(probe('outcome', "$base/silent", 'interruptible => false'));
	my $start = time;
	kill 'KILL', $node->{_pid};
	wait_for('the backend to go', sub { !is_running($pid) });
	my $took = time - $start;
	eval { $psql->finish };
	note(sprintf 'measured: uninterruptible: gone %d ms after the postmaster', $took * 1000);
	cmp_ok($took, '<', 5, 'but without a postmaster it gives up');
	wait_for('the node', sub { $node->{_pid} = undef; start_node(fail_ok => 1) });
}

# The time of day steps back an hour
for my $query (probe('outcome', "$base/silent", 'timeout => 1000'), probe('outcome', "$base/silent", 'timeout => 1000, interruptible => false'), 'SELECT http_probe_sleep(1000)')
{
	my ($psql, $out, $err, $pid) = start_stuck($query);
	append_to_file($clock_file, '');
	my $start = time;
	wait_for('its end', sub { !$psql->pumpable || do { $psql->pump_nb; !is_running($pid) } });
	cmp_ok(time - $start, '<', 30, "a step of the clock does not prolong $query");
	eval { $psql->finish };
	unlink $clock_file;
}

# Cancels leave nothing behind, wherever they hit
for (map { [ $_, $_ eq 'tls' ? "https://127.0.0.1:$port{tls}" : "$host:$port{$_}" ] } qw(connect tls wait receive))
{
	my ($stage, $url) = @$_;
	my $cancel = "DO \$\$ BEGIN PERFORM probe('$url'); END \$\$";
	my $script = join "\n", (map { "SET statement_timeout = 20;\n" . "$cancel;\n" x $_ . "SET statement_timeout = 0;\nSELECT descriptors(), kb('VmRSS');" } 30, 200), '';
	$node->psql('postgres', $script, stdout => \my $out, stderr => \my $err, on_error_stop => 0, extra_params => [ '-v', 'VERBOSITY=sqlstate' ]);
	my @errors = $err =~ /57014/g;
	is(scalar @errors, 230, "$stage: all are canceled");
	my ($fds, $kb, $fds_after, $kb_after) = split /[|\n]/, $out;
	note("measured: $stage: 200 cancels: $fds descriptors before, $fds_after after; $kb kB before, $kb_after after");
	cmp_ok($fds_after, '<=', $fds, '... and leave no descriptor');
	cmp_ok($kb_after, '<=', $kb + 512, '... and no memory');
}

# ---------------------------------------------------------------------------
# Without a postmaster

$node->stop;
{
	local @ENV{ keys %environment } = values %environment;
	my $in = probe('outcome', "$base/ok") . "\n";
	IPC::Run::run([ 'postgres', '--single', '-D', $node->data_dir, 'postgres' ], '<', \$in, '>', \my $out, '2>', \my $err);
	like($out, qr/outcome = "replied"/, 'a stand-alone backend can ask, too') or diag $err;
}

$bad_server->kill_kill;
done_testing();
