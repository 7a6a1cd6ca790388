# TLS is verified: a server whose certificate is not vouched for is never sent the token.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $sim_dir = abs_path(dirname(__FILE__) . '/../sim');
my $scratch = PostgreSQL::Test::Utils::tempdir();

sub openssl { system_or_bail('openssl', @_) }

# A CA and certificates for the right host, another host, and one that has expired
openssl('req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=test CA', '-keyout', "$scratch/ca.key", '-out', "$scratch/ca.pem");

sub certificate
{
	my ($name, $san, @days) = @_;
	append_to_file("$scratch/$name.ext", "subjectAltName=$san\n");
	openssl('req', '-newkey', 'rsa:2048', '-nodes', '-subj', "/CN=$name", '-keyout', "$scratch/$name.key", '-out', "$scratch/$name.csr");
	openssl('x509', '-req', '-in', "$scratch/$name.csr", '-CA', "$scratch/ca.pem", '-CAkey', "$scratch/ca.key", '-CAcreateserial',
		'-extfile', "$scratch/$name.ext", '-out', "$scratch/$name.pem", @days);
}
certificate('good', 'DNS:localhost,IP:127.0.0.1', '-days', '2');
certificate('other', 'DNS:other.example', '-days', '2');
certificate('expired', 'DNS:localhost,IP:127.0.0.1', '-days', '-1');

my @running;
sub start_sim
{
	my ($name) = @_;
	push @running, IPC::Run::start([ 'python3', "$sim_dir/sprites_sim.py", '--quiet', '--port-file', "$scratch/$name.port", '--state-dir', $scratch,
		'--parent-pid', $$, '--tls-cert', "$scratch/$name.pem", '--tls-key', "$scratch/$name.key" ]);
	usleep(20_000) until -s "$scratch/$name.port";
	chomp(my $port = slurp_file("$scratch/$name.port"));
	return $port;
}
my %port = map { $_ => start_sim($_) } qw(good other expired);

my $node = PostgreSQL::Test::Cluster->new('tls');
$node->init;
$node->start;
$node->safe_psql('postgres', q(
	CREATE EXTENSION sprite_lockdown;
	CREATE USER MAPPING FOR CURRENT_USER SERVER sprites OPTIONS (token 'org/org-1/tok-1/secret');
	ALTER SERVER sprites OPTIONS (ADD ca_file '/nonexistent');
));

sub hand_back
{
	my ($url, $ca_file) = @_;
	$node->safe_psql('postgres', "ALTER SERVER sprites OPTIONS (SET api_url '$url', SET ca_file '$ca_file')");
	my ($code, $out, $err) = $node->psql('postgres', q(SELECT reason FROM sprite_get_or_create('t', egress_policy())),
		extra_params => [ '-v', 'VERBOSITY=sqlstate' ]);
	return $out || $err;
}

is(hand_back("https://localhost:$port{good}", "$scratch/ca.pem"), 'fresh', 'a certificate of the CA for the host');
is(hand_back("https://127.0.0.1:$port{good}", "$scratch/ca.pem"), 'proven', 'or for the address');
like(hand_back("https://localhost:$port{other}", "$scratch/ca.pem"), qr/08001/, 'a certificate for another host');
like(hand_back("https://localhost:$port{expired}", "$scratch/ca.pem"), qr/08001/, 'one that has expired');
like(hand_back("https://localhost:$port{good}", "/etc/ssl/certs/ca-certificates.crt"), qr/08001/, 'one of an unknown CA');
like(hand_back("https://localhost:$port{good}", "$scratch/good.ext"), qr/08001/, 'a CA file that is none');
like(hand_back("https://localhost:$port{good}", '/nonexistent'), qr/08001/, 'or is not there');
$node->safe_psql('postgres', 'ALTER SERVER sprites OPTIONS (DROP ca_file)');
my ($code, $out, $err) = $node->psql('postgres', q(SELECT sprite_attach('t')), extra_params => [ '-v', 'VERBOSITY=sqlstate' ]);
like($err, qr/08001/, 'without a CA file the system decides');

# none of the refused servers has seen a request
for my $name (qw(other expired))
{
	my ($seen, $errors) = run_command([ 'python3', '-c', <<'END', "https://localhost:$port{$name}/__sim/requests" ]);
import json, ssl, sys, urllib.request
print(json.load(urllib.request.urlopen(sys.argv[1], context=ssl._create_unverified_context()))["total"])
END
	is($seen, '0', "$name: no request arrived");
}

$node->stop('immediate');
$_->kill_kill for @running;
done_testing();
