# Work in a VM and what else happens meanwhile: changes of the VM wait for it and it for them,
# warm hand-backs do not; whoever ends the caller ends the command; endless output stays small.

use strict;
use warnings;

use File::Basename;
use lib dirname(__FILE__) . '/../lib';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SpriteTest;
use Test::More;
use Time::HiRes qw(time usleep);

start_simulator();
my $node = PostgreSQL::Test::Cluster->new('work');
$node->init;
$node->append_conf('postgresql.conf', "restart_after_crash = off\n");
$node->start;
connect_node($node);

my $impatient = 'SET lock_timeout = 100';
my $read = "SELECT coalesce(sprite_read_file('x', '/none'), '0')::text";
my $work = "SELECT exit_code FROM sprite_exec('x', 'true')";

is($node->safe_psql('postgres', hand_back('one.example')), 'fresh', 'a Sprite');

# work keeps changes away
for ([ 'a command', $work, 'exec' ], [ 'a read', $read, 'fs_read' ],
	[ 'a write', "SELECT sprite_write_file('x', '/tmp/f', '')", 'fs_write' ])
{
	my ($what, $query, $kind) = @$_;
	sim('hold', { kind => $kind, name => 'x', when => 'before' });
	my $caller = start_query($node, $query);
	is(sim('held?count=1&timeout=20')->{held}, 1, "$what is under way");
	is($node->safe_psql('postgres', hand_back('one.example')), 'proven', "... a warm hand-back does not wait for it");
	is(sqlstate($node, "$impatient; " . hand_back('two.example')), '55P03', '... a push does');
	is(sqlstate($node, "$impatient; SELECT sprite_destroy('x')"), '55P03', '... and a destroy');
	is(sqlstate($node, "$impatient; " . ($kind eq 'exec' ? $read : $work)), 'none', '... but not other work');
	sim('release', {});
	finish_query($caller);
	is($caller->{err}, '', '... and it ends well');
}
is($node->safe_psql('postgres', hand_back('one.example')), 'proven', 'what could not be pushed is not in doubt');

# and the other way round
my $pusher = $node->background_psql('postgres');
$pusher->query_safe('BEGIN; ' . hand_back('two.example'));
is(sqlstate($node, "$impatient; $work"), '55P03', 'work waits for a push that is not committed');
$pusher->query_safe('ROLLBACK');
is(sqlstate($node, "$impatient; $work"), 'SP007', 'and is refused when it is rolled back');
$pusher->quit;
is($node->safe_psql('postgres', hand_back('one.example')), 'in_doubt', 'the doubt is settled');

# the end of the caller is that of the command
sub beat
{
	return $node->safe_psql('postgres', "SELECT sprite_read_file('x', '/workspace/beat')");
}

# Waits until two looks with a while between them are as expected.
sub wait_for_beat
{
	my ($beats) = @_;
	for (1 .. 100)
	{
		my $before = beat();
		usleep(200_000);
		return 1 if $before ne '' && (beat() ne $before) == $beats;
	}
	return 0;
}

my $endless = "SELECT sprite_exec('x', 'sh', ARRAY['-c', 'while :; do date +%s%N >/workspace/b; mv b beat; sleep 0.02; done'], timeout => '1 hour')";
for ([ 'pg_cancel_backend', '57014' ], [ 'pg_terminate_backend', '57P01' ])
{
	my ($function, $expected) = @$_;
	my $caller = start_query($node, $endless);
	ok(wait_for_beat(1), "$function: the command runs");
	my $start = time;
	$node->safe_psql('postgres', "SELECT $function($caller->{pid})");
	finish_query($caller);
	note(sprintf 'measured: %s: the caller is back after %d ms, the command killed', $function, (time - $start) * 1000);
	like($caller->{err}, qr/$expected/, '... the caller gets its error');
	ok(wait_for_beat(0), '... and the command is dead');
}
my $limit = 1_000_000;
my ($before, $code, $after) = split /\n/, $node->safe_psql('postgres', qq(
	SET sprite_lockdown.max_response_bytes = $limit;
	CREATE FUNCTION kb() RETURNS int LANGUAGE sql AS \$\$ SELECT substring(pg_read_file('/proc/self/status') FROM 'VmHWM:\\s+(\\d+)')::int \$\$;
	CREATE FUNCTION code(query text) RETURNS text LANGUAGE plpgsql AS \$\$ BEGIN EXECUTE query; RETURN 'none'; EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE; END \$\$;
	SELECT kb() FROM sprite_exec('x', 'true');
	SELECT code(\$\$ SELECT sprite_exec('x', 'cat', '{/dev/zero}') \$\$);
	SELECT kb()));
is($code, '54000', 'endless output is refused');
note(sprintf 'measured: endless output: the backend grew by %d kB', $after - $before);
cmp_ok($after - $before, '<', 4096, '... and not stored');

# the postmaster's death ends the wait for a command
my $caller = start_query($node, $endless);
ok(wait_for_beat(1), 'a command runs');
kill 'KILL', $node->{_pid};
my $start = time;
usleep(1000) while -d "/proc/$caller->{pid}" && (slurp_file("/proc/$caller->{pid}/stat") =~ /\) [^ZX] /) && time - $start < 10;
cmp_ok(time - $start, '<', 1, 'and its caller goes with the postmaster');
finish_query($caller);
$node->{_pid} = undef;

stop_simulator();
done_testing();
