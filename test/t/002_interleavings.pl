# Two callers of one Sprite, one of them held at every step of its hand-back in turn: released,
# canceled or terminated there, or with the VM replaced under it.  Whatever happens, whoever gets
# a handle gets a VM that runs the policy, and no command reaches an open one.

use strict;
use warnings;

use File::Basename;
use lib dirname(__FILE__) . '/../lib';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SpriteTest;
use Test::More;

start_simulator();
my $node = PostgreSQL::Test::Cluster->new('interleavings');
$node->init;
$node->start;
connect_node($node);

my $policy = q(egress_policy('allowlist', '{github.com}'));
my $hash = $node->safe_psql('postgres', "SELECT hash_policy($policy)");
my $hand_back = "SELECT sprite_id, reason, policy_hash FROM sprite_get_or_create('x', $policy)";

sub finish_caller
{
	my ($caller) = @_;
	finish_query($caller);
	@$caller{qw(id reason hash)} = split /\|/, $caller->{row} // '';
}

# The VM of a handle must run the policy; that it exists no more is another matter.
sub is_right
{
	my ($caller, $what) = @_;
	return pass("$what (error, no handle)") unless $caller->{id};
	my $vm = sim('state')->{vms}{ $caller->{id} };
	my $allowed = join ' ', map { $_->{domain} } grep { $_->{action} eq 'allow' } @{ $vm->{policy}{rules} };
	is("$allowed $caller->{hash}", "github.com $hash", "$what ($caller->{reason})");
}

sub nothing_ran_open
{
	my ($what) = @_;
	my @open = grep { $_->{exec_while_open} } values %{ sim('state')->{vms} };
	is(scalar @open, 0, $what);
}

# Each starting point: an absent Sprite, a VM that vanished behind its proof, one that was replaced.
my %begin = (
	absent => sub { },
	vanished => sub { $node->safe_psql('postgres', $hand_back); sim('vm/x/delete', {}) },
	replaced => sub { $node->safe_psql('postgres', $hand_back); sim('vm/x/replace', {}) });

# Each thing that happens to the caller that is held; its SQLSTATE if it must fail.
my %event = (
	release => sub { },
	cancel => sub { $node->safe_psql('postgres', "SELECT pg_cancel_backend($_[0]{pid})") },
	terminate => sub { $node->safe_psql('postgres', "SELECT pg_terminate_backend($_[0]{pid})") },
	replace => sub { sim(exists sim('state')->{names}{x} ? 'vm/x/replace' : 'vm/x/create', {}) });

my @steps = map { my $kind = $_; map { [ $kind, $_ ] } qw(before after) } qw(get create policy_set policy_get exec);
my $count = 0;

for my $start (sort keys %begin)
{
	for my $step (@steps)
	{
		my ($kind, $when) = @$step;
		next if $kind eq 'create' && $start eq 'replaced';
		for my $event (sort keys %event)
		{
			my $what = "$start, held $when $kind, $event";
			sim('reset', {});
			$node->safe_psql('postgres', 'DELETE FROM machine_sessions');
			$begin{$start}->();

			sim('hold', { kind => $kind, name => 'x', when => $when });
			my $first = start_query($node, $hand_back);
			is(sim('held?count=1&timeout=20')->{held}, 1, "$what: one caller is there");
			my $second = start_query($node, $hand_back);
			$node->poll_query_until('postgres', "SELECT wait_event = 'advisory' FROM pg_stat_activity WHERE pid = $second->{pid}")
			  or die 'the second caller does not wait';
			nothing_ran_open("$what: so far nothing ran in an open VM");

			$event{$event}->($first);
			# a caller that was told to end does so without the platform's answer
			finish_caller($first) if $event =~ /cancel|terminate/;
			sim('release', {});
			finish_caller($first) unless $event =~ /cancel|terminate/;
			is_right($first, "$what: the first caller") if $event ne 'replace';
			finish_caller($second);
			is_right($second, "$what: the second caller");
			ok($second->{id}, "$what: who got a handle") or diag $second->{err};
			# our mkdir, once the platform has it, reaches whatever VM has the name by then
			nothing_ran_open("$what: nothing ever ran in an open VM")
			  unless "$kind $when $event" eq 'exec before replace';
			$count++;
		}
	}
}
note("measured: $count interleavings");

$node->stop('immediate');
stop_simulator();
done_testing();
