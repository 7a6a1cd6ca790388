# A backend killed, or a server crashed, at every step of a push leaves a doubt and no false
# proof: the next call for the policy that the row still names pushes it.

use strict;
use warnings;

use File::Basename;
use lib dirname(__FILE__) . '/../lib';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SpriteTest;
use Test::More;

start_simulator();
my $node = PostgreSQL::Test::Cluster->new('crashes');
$node->init;
# the journal must not rely on what the caller thinks of durability
$node->append_conf('postgresql.conf', "synchronous_commit = off\nwal_writer_delay = 10s\nrestart_after_crash = on\n");
$node->start;
connect_node($node);

my %crash = (
	'backend killed' => sub {
		my ($caller) = @_;
		kill 'KILL', $caller->{pid};
		finish_query($caller);
		$node->poll_query_until('postgres', 'SELECT true') or die 'the server did not come back';
	},
	'server crashed' => sub {
		my ($caller) = @_;
		$node->stop('immediate');
		finish_query($caller);
		$node->start;
	});

for my $step ([qw(policy_set before)], [qw(policy_set after)], [qw(policy_get before)], [qw(policy_get after)], [qw(exec before)], [qw(exec after)])
{
	my ($kind, $when) = @$step;
	for my $crash (sort keys %crash)
	{
		my $what = "$crash, $when $kind";
		sim('reset', {});
		$node->safe_psql('postgres', 'DELETE FROM machine_sessions; ' . hand_back('one.example'));
		# the row must be there after the crash, whatever becomes of later commits
		$node->safe_psql('postgres', 'CHECKPOINT');
		sim('hold', { kind => $kind, name => 'x', when => $when });
		my $caller = start_query($node, hand_back('two.example'));
		is(sim('held?count=1&timeout=20')->{held}, 1, "$what: the call is there");
		$crash{$crash}->($caller);
		sim('release', {});
		is($caller->{row}, undef, "$what: nothing was handed back");
		is($node->safe_psql('postgres', 'SELECT sprite_name FROM lockdown_in_doubt'), 'x', "$what: the Sprite is in doubt");
		is($node->safe_psql('postgres', hand_back('one.example')), 'in_doubt', "$what: the row is not believed");
		is(allows('x'), 'one.example', "$what: the VM runs what was asked for");
		is($node->safe_psql('postgres', hand_back('one.example')), 'proven', "$what: and that is proven");
	}
}

# in a create there is no row to believe; the VM that was made is found and locked down
for my $crash (sort keys %crash)
{
	sim('reset', {});
	sim('hold', { kind => 'create', name => 'x', when => 'after' });
	$node->safe_psql('postgres', 'DELETE FROM machine_sessions');
	my $caller = start_query($node, hand_back('one.example'));
	sim('held?count=1&timeout=20');
	$crash{$crash}->($caller);
	sim('release', {});
	is(allows('x'), 'everything', "$crash in the create: an open VM is left");
	is($node->safe_psql('postgres', 'SELECT action FROM lockdown_in_doubt'), 'create', '... and in doubt');
	is($node->safe_psql('postgres', hand_back('one.example')), 'no_proof', '... until the next call');
	is(allows('x'), 'one.example', '... locks it down');
}

# workers that are not to be had
$node->append_conf('postgresql.conf', 'max_worker_processes = 0');
$node->restart;
sim('requests/clear', {});
my ($code, $out, $err) = $node->psql('postgres', hand_back('two.example'), extra_params => [ '-v', 'VERBOSITY=sqlstate' ]);
like($err, qr/53400/, 'without a background worker a push is refused');
is_deeply(sim('requests')->{counts}, { get => 1 }, 'and nothing that changes a VM is sent');
is($node->safe_psql('postgres', hand_back('one.example')), 'proven', 'a warm call needs none');
$node->append_conf('postgresql.conf', 'max_worker_processes = 8');
$node->restart;
is($node->safe_psql('postgres', hand_back('two.example')), 'policy_changed', 'with one it works again');

$node->stop('immediate');
stop_simulator();
done_testing();
