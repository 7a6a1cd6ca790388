# What is done to the extension, its schema and its database while a call is under way, and
# transactions that are prepared: nothing hangs, nothing crashes, and no proof is false.

use strict;
use warnings;

use File::Basename;
use lib dirname(__FILE__) . '/../lib';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SpriteTest;
use Test::More;
use Time::HiRes qw(time);

use constant LIMIT => 2;                # seconds

start_simulator();
my $node = PostgreSQL::Test::Cluster->new('ddl');
$node->init;
$node->append_conf('postgresql.conf', "max_prepared_transactions = 5\n");
$node->start;
connect_node($node);
my $postmaster = $node->{_pid};

# Runs a query and says how long it took.
sub timed
{
	my ($query, $database) = @_;
	my $start = time;
	my $code = $node->psql($database // 'postgres', $query, stderr => \my $err);
	return (time - $start, $code, $err);
}

sub renew
{
	sim('reset', {});
	$node->safe_psql('postgres', 'DROP EXTENSION IF EXISTS sprite_lockdown CASCADE');
	connect_node($node);
}

# A session that has a call held at a step
sub hold_at
{
	my ($kind, $when, @queries) = @_;
	sim('hold', { kind => $kind, name => 'x', when => $when });
	my $caller = start_query($node, join '; ', @queries);
	is(sim('held?count=1&timeout=20')->{held}, 1, 'the call is there');
	return $caller;
}

sub wait_for_lock
{
	my ($pid) = @_;
	$node->poll_query_until('postgres', "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $pid") or die 'nothing waits';
}

# ---------------------------------------------------------------------------
# Prepared transactions

is($node->safe_psql('postgres', hand_back('one.example')), 'fresh', 'a Sprite');
$node->safe_psql('postgres', 'BEGIN; ' . hand_back('two.example') . "; PREPARE TRANSACTION 'p'");
is(sqlstate($node, "SET lock_timeout = 100; " . hand_back('one.example')), '55P03', 'a prepared transaction holds the lock on the name');
is($node->safe_psql('postgres', 'SELECT sprite_name FROM lockdown_in_doubt'), 'x', 'and is a doubt');
$node->stop('immediate');
$node->start;
$postmaster = $node->{_pid};
is(sqlstate($node, "SET lock_timeout = 100; " . hand_back('one.example')), '55P03', 'also after a crash');
$node->safe_psql('postgres', "COMMIT PREPARED 'p'");
is($node->safe_psql('postgres', hand_back('two.example')), 'proven', 'when it is committed its proof is one');
is(allows('x'), 'two.example', 'and true');
$node->safe_psql('postgres', 'BEGIN; ' . hand_back('one.example') . "; PREPARE TRANSACTION 'p'; ROLLBACK PREPARED 'p'");
is($node->safe_psql('postgres', hand_back('two.example')), 'in_doubt', 'when it is rolled back the doubt stays');
is(allows('x'), 'two.example', 'until the next call');
$node->safe_psql('postgres', 'BEGIN; ' . hand_back('two.example') . "; PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p'");
is($node->safe_psql('postgres', hand_back('two.example')), 'proven', 'a proven call in a prepared transaction changes nothing');

# ---------------------------------------------------------------------------
# The extension

is(sqlstate($node, 'ALTER EXTENSION sprite_lockdown SET SCHEMA pg_catalog'), '0A000', 'the extension cannot be moved');

# dropped while the first request is under way, when no table is locked yet
renew();
my $caller = hold_at('get', 'after', hand_back('one.example'));
my ($took, $code) = timed('DROP EXTENSION sprite_lockdown CASCADE');
is($code, 0, 'DROP EXTENSION during the first request goes through');
cmp_ok($took, '<', LIMIT, '... at once');
sim('release', {});
finish_query($caller);
is($caller->{row}, undef, '... and nothing is handed back');
like($caller->{err}, qr/42P01|58000/, '... but an error');

# dropped and made anew in between: the call began with tables that are gone
renew();
$caller = hold_at('get', 'after', hand_back('one.example'));
$node->safe_psql('postgres', 'DROP EXTENSION sprite_lockdown CASCADE');
connect_node($node);
sim('release', {});
finish_query($caller);
is($caller->{row}, undef, 'a call whose extension was made anew hands nothing back');
is(allows('x'), 'no VM', '... and leaves no VM');

# dropped when the tables are locked: the drop waits for the transaction, as DDL does
renew();
$node->safe_psql('postgres', hand_back('one.example'));
$caller = hold_at('policy_set', 'before', hand_back('two.example'));
my $drop = start_query($node, 'DROP EXTENSION sprite_lockdown CASCADE');
wait_for_lock($drop->{pid});
my $start = time;
sim('release', {});
finish_query($caller);
finish_query($drop);
cmp_ok(time - $start, '<', LIMIT, 'DROP EXTENSION during a push ends with the call');
is($caller->{row}, 'policy_changed', '... which is not disturbed');
unlike($drop->{err}, qr/ERROR/, '... nor is the drop');

# what waits for the call's transaction, while the next intent has to wait for that
renew();
$node->safe_psql('postgres', hand_back('one.example'));
$caller = hold_at('policy_set', 'before', hand_back('two.example'), hand_back('three.example'));
my $lock = start_query($node, 'TRUNCATE lockdown_journal');
wait_for_lock($lock->{pid});
$start = time;
sim('release', {});
finish_query($caller);
finish_query($lock);
$took = time - $start;
note(sprintf 'measured: a deadlock that the detector cannot see ends after %d ms', $took * 1000);
cmp_ok($took, '<', LIMIT, 'an intent behind DDL on its table does not hang');
like($caller->{err}, qr/58000/, '... it is an error');
is($lock->{err}, '', '... and the DDL goes through');

# its schema renamed between two calls of one session, and while a call is under way
renew();
$node->safe_psql('postgres', 'DROP EXTENSION sprite_lockdown CASCADE');
connect_node($node, 'postgres', 'here');
(my $here = hand_back('one.example')) =~ s/(sprite_get_or_create|egress_policy)/here.$1/g;
(my $there = $here) =~ s/here\./there./g;
is($node->safe_psql('postgres', "$here; $here; ALTER SCHEMA here RENAME TO there; $there"), "fresh\nproven\nproven", 'a renamed schema is found');
$there =~ s/one\.example/two.example/;
$caller = hold_at('policy_set', 'before', $there);
($took, $code) = timed('ALTER SCHEMA there RENAME TO here');
is($code, 0, 'a rename during a call goes through');
cmp_ok($took, '<', LIMIT, '... at once');
sim('release', {});
finish_query($caller);
$here =~ s/one\.example/two.example/;
is($caller->{row}, 'policy_changed', '... and does not disturb it');
is($node->safe_psql('postgres', $here), 'proven', '... nor the proof');
is(allows('x'), 'two.example', '... which is true');
$node->safe_psql('postgres', 'DROP EXTENSION sprite_lockdown CASCADE; DROP SCHEMA here');

# ---------------------------------------------------------------------------
# The database

sub make_database
{
	sim('reset', {});
	$node->safe_psql('template1', 'DROP DATABASE IF EXISTS doomed WITH (FORCE); CREATE DATABASE doomed');
	connect_node($node, 'doomed');
}

# Forced out at each step: the call ends, and leaves no VM of its own
for my $step ([qw(get before)], [qw(create before)], [qw(create after)], [qw(policy_set before)], [qw(exec after)])
{
	my ($kind, $when) = @$step;
	make_database();
	sim('hold', { kind => $kind, name => 'x', when => $when });
	$caller = start_query($node, hand_back('one.example'), 'doomed');
	sim('held?count=1&timeout=20');
	my $err;
	($took, $code, $err) = timed('DROP DATABASE doomed WITH (FORCE)', 'template1');
	sim('release', {});
	finish_query($caller);
	is($code, 0, "DROP DATABASE with FORCE, $when $kind") or diag $err;
	cmp_ok($took, '<', LIMIT, '... does not hang');
	is($caller->{row}, undef, '... nothing is handed back');
	is(allows('x'), $kind eq 'create' && $when eq 'after' ? 'everything' : 'no VM', '... what the call knows to have created is gone');
}

# Without force it waits for the call's session, and an intent would wait for it.
make_database();
sim('hold', { kind => 'get', name => 'x', when => 'after' });
$caller = start_query($node, hand_back('one.example'), 'doomed');
sim('held?count=1&timeout=20');
$drop = start_query($node, 'DROP DATABASE doomed', 'template1');
# it has the lock when a newcomer has to wait for it
my $newcomer = IPC::Run::start([ 'psql', '-X', '-d', $node->connstr('doomed'), '-c', 'SELECT 1' ], '<', \undef, '>', \my $out, '2>', \my $err);
$node->poll_query_until('postgres', "SELECT EXISTS (SELECT FROM pg_locks WHERE classid = 'pg_database'::regclass AND NOT granted)") or die 'nobody waits for DROP DATABASE';
$start = time;
sim('release', {});
finish_query($caller);
$took = time - $start;
note(sprintf 'measured: an intent behind DROP DATABASE ends after %d ms', $took * 1000);
cmp_ok($took, '<', LIMIT, 'an intent behind a DROP DATABASE does not hang');
like($caller->{err}, qr/58000/, '... it is an error');
finish_query($drop);
eval { $newcomer->finish };

is($node->{_pid}, $postmaster, 'the server is the same');
is(kill(0, $postmaster), 1, 'and has not crashed');
unlike(slurp_file($node->logfile), qr/was terminated by signal|PANIC|TRAP/, 'nor has a backend');

$node->stop;
stop_simulator();
done_testing();
