# What the Perl tests share: a simulator, and a node that talks to it.

package SpriteTest;

use strict;
use warnings;

use Cwd qw(abs_path);
use Exporter 'import';
use File::Basename;
use HTTP::Tiny;
use IPC::Run;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Time::HiRes qw(usleep);

our @EXPORT = qw(start_simulator stop_simulator sim connect_node start_query finish_query hand_back sqlstate allows $TOKEN);
our $TOKEN = 'org/org-1/tok-1/secret';

my ($simulator, $port);
my $http = HTTP::Tiny->new(timeout => 60);

sub start_simulator
{
	my $scratch = PostgreSQL::Test::Utils::tempdir();
	my $program = abs_path(dirname(__FILE__) . '/../sim/sprites_sim.py');
	$simulator = IPC::Run::start([ 'python3', $program, '--quiet', '--port-file', "$scratch/port",
		'--state-dir', $scratch, '--parent-pid', $$ ]);
	usleep(20_000) until -s "$scratch/port";
	chomp($port = slurp_file("$scratch/port"));
}

sub stop_simulator { $simulator->kill_kill }

sub url { return "http://127.0.0.1:$port" }

# A control call: GET without a body, POST with one.
sub sim
{
	my ($path, $body) = @_;
	my $url = "http://127.0.0.1:$port/__sim/$path";
	my $reply = defined $body ? $http->post($url, { content => encode_json($body) }) : $http->get($url);
	die "simulator: $reply->{content}" unless $reply->{success};
	return decode_json($reply->{content});
}

# Creates the extension in a node and points its server at the simulator.
sub connect_node
{
	my ($node, $database, $schema) = @_;
	$schema //= 'public';
	$node->safe_psql($database // 'postgres', qq(
		SET client_min_messages = warning;
		CREATE SCHEMA IF NOT EXISTS $schema;
		CREATE EXTENSION sprite_lockdown SCHEMA $schema;
		ALTER SERVER sprites OPTIONS (SET api_url 'http://127.0.0.1:$port');
		CREATE USER MAPPING FOR CURRENT_USER SERVER sprites OPTIONS (token '$TOKEN');
	));
}

# Starts a query in a psql of its own; {pid} is its backend's.
sub start_query
{
	my ($node, $query, $database) = @_;
	my %caller = (out => '', err => '');
	$caller{psql} = IPC::Run::start([ 'psql', '-X', '-q', '-A', '-t', '-d', $node->connstr($database // 'postgres'), '-v', 'VERBOSITY=sqlstate',
		'-c', 'SELECT pg_backend_pid()', '-c', $query ], '<', \undef, '>', \$caller{out}, '2>', \$caller{err});
	$caller{psql}->pump until $caller{out} =~ /^(\d+)\n/;
	$caller{pid} = $1;
	return \%caller;
}

# Waits for its end; {row} is the first row, undefined after an error.
sub finish_query
{
	my ($caller) = @_;
	eval { $caller->{psql}->finish };
	my @lines = split /\n/, $caller->{out};
	$caller->{row} = $lines[1];
}

# SQL of a hand-back of Sprite "x" that allows one host.
sub hand_back
{
	my ($host) = @_;
	return "SELECT reason FROM sprite_get_or_create('x', egress_policy('allowlist', '{$host}'))";
}

# The SQLSTATE that a query ends with.
sub sqlstate
{
	my ($node, $query) = @_;
	$node->psql('postgres', $query, stderr => \my $err, on_error_stop => 0, extra_params => [ '-v', 'VERBOSITY=sqlstate' ]);
	return $err =~ /ERROR: +(\w{5})/ ? $1 : 'none';
}

# What a VM of the simulator's allows, by its name.
sub allows
{
	my ($name) = @_;
	my $state = sim('state');
	my $vm = $state->{vms}{ $state->{names}{$name} // '' } or return 'no VM';
	return 'everything' unless $vm->{enforced};
	return join ' ', map { $_->{domain} } grep { $_->{action} eq 'allow' } @{ $vm->{policy}{rules} };
}

1;
