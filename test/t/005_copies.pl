# A promoted standby, a restore to an earlier point and a dump in another cluster do not know what
# was pushed after them: none of their proofs is believed.

use strict;
use warnings;

use File::Basename;
use lib dirname(__FILE__) . '/../lib';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SpriteTest;
use Test::More;

start_simulator();
my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1, has_archiving => 1);
$primary->start;
connect_node($primary);

# What a copy says when it is asked for the policy that its row names.
sub copy_is_careful
{
	my ($node, $what) = @_;
	is(allows('x'), 'two.example', "$what: the VM runs what the primary pushed last");
	like($node->safe_psql('postgres', 'SELECT egress_policy_token FROM machine_sessions'), qr/^sprite-/, "$what: the copy has a token");
	is($node->safe_psql('postgres', hand_back('one.example')), 'epoch_changed', "$what: which it does not believe");
	is(allows('x'), 'one.example', "$what: the VM runs what the copy was asked for");
	is($node->safe_psql('postgres', hand_back('one.example')), 'proven', "$what: and that is proven");
}

is($primary->safe_psql('postgres', hand_back('one.example')), 'fresh', 'a proof on the primary');
$primary->backup('base');
my $dump = $primary->basedir . '/dump.sql';
$primary->command_ok([ 'pg_dump', '-d', $primary->connstr('postgres'), '-f', $dump ], 'a dump of it');

# a standby that misses the last commits
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;
$primary->wait_for_catchup($standby);
my ($code, $out, $err) = $standby->psql('postgres', hand_back('one.example'), extra_params => [ '-v', 'VERBOSITY=sqlstate' ]);
like($err, qr/25006/, 'on a standby a hand-back is refused');
is($standby->safe_psql('postgres', "SELECT would_apply FROM sprite_lockdown_plan('x', egress_policy('allowlist', '{one.example}'))"), 't', 'a plan there proves nothing');
$standby->stop;

# a point to restore to
$primary->safe_psql('postgres', "SELECT pg_create_restore_point('before'); SELECT pg_switch_wal()");
is($primary->safe_psql('postgres', hand_back('two.example')), 'policy_changed', 'the primary goes on');
$primary->safe_psql('postgres', 'SELECT pg_switch_wal()');
$primary->poll_query_until('postgres', "SELECT last_archived_wal >= pg_walfile_name(pg_current_wal_lsn() - 1) OR archived_count > 2 FROM pg_stat_archiver");
$primary->stop('immediate');

# the failover
$standby->start;
$standby->promote;
copy_is_careful($standby, 'promoted standby');
$standby->stop;

# the restore
sim('vm/x/policy', { rules => [ { domain => 'two.example', action => 'allow' }, { domain => '*', action => 'deny' } ] });
my $restored = PostgreSQL::Test::Cluster->new('restored');
$restored->init_from_backup($primary, 'base', has_restoring => 1, standby => 0);
$restored->append_conf('postgresql.conf', "recovery_target_timeline = 'current'\nrecovery_target_name = 'before'\nrecovery_target_action = 'promote'\n");
$restored->start;
$restored->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die 'the restore did not end';
copy_is_careful($restored, 'restored to a point');
$restored->stop;

# the dump
sim('vm/x/policy', { rules => [ { domain => 'two.example', action => 'allow' }, { domain => '*', action => 'deny' } ] });
my $other = PostgreSQL::Test::Cluster->new('other');
$other->init;
$other->start;
$other->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $other->connstr('postgres'), '-f', $dump ], 'a dump is restored');
$other->safe_psql('postgres', "ALTER SERVER sprites OPTIONS (SET api_url '" . SpriteTest::url() . "'); CREATE USER MAPPING FOR CURRENT_USER SERVER sprites OPTIONS (token '$TOKEN')");
copy_is_careful($other, 'dump in another cluster');

# the same dump in the place of what it is a dump of
my $later = $other->basedir . '/later.sql';
$other->command_ok([ 'pg_dump', '-d', $other->connstr('postgres'), '-f', $later ], 'another dump');
is($other->safe_psql('postgres', hand_back('two.example')), 'policy_changed', 'the cluster goes on');
$other->safe_psql('postgres', 'DROP EXTENSION sprite_lockdown CASCADE');
$other->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $other->connstr('postgres'), '-f', $later ], 'the dump is restored in its place');
$other->safe_psql('postgres', "ALTER SERVER sprites OPTIONS (SET api_url '" . SpriteTest::url() . "'); CREATE USER MAPPING FOR CURRENT_USER SERVER sprites OPTIONS (token '$TOKEN')");
copy_is_careful($other, 'dump in the same database');

# a copy of the database in its own cluster
sim('vm/x/policy', { rules => [ { domain => 'two.example', action => 'allow' }, { domain => '*', action => 'deny' } ] });
$other->safe_psql('template1', 'CREATE DATABASE twin TEMPLATE postgres');
is($other->safe_psql('twin', hand_back('one.example')), 'epoch_changed', 'a copy of the database in its own cluster is a copy too');
is(allows('x'), 'one.example', 'and careful');

$other->stop;
stop_simulator();
done_testing();
