# shellcheck shell=bash disable=SC2034,SC2119,SC2120
# A throwaway cluster and a simulator, started and stopped by whoever sources this.
#
#   harness_begin       makes the scratch directory and a readable copy of the tree
#   build_and_install   builds in the tree and installs the extension
#   start_cluster       sets PGHOST, PGPORT, PGUSER
#   start_simulator     sets SIM_URL, SIM_TOKEN
#
# Everything is stopped and removed when the shell exits, however it does.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
PG_CONFIG=${PG_CONFIG:-pg_config}
SIM_TOKEN=org/org-1/tok-1/secret
SCRATCH=
SIM_PID=

say()
{
	printf '%s\n' "$*"
}

# initdb refuses root, so servers run as the user that Debian made for them.
as_server_user()
{
	if [ "$(id -u)" -eq 0 ]; then
		runuser -u postgres -- "$@"
	else
		"$@"
	fi
}

as_root()
{
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	else
		sudo -- "$@"
	fi
}

harness_stop()
{
	if [ -n "$SIM_PID" ] && kill -0 "$SIM_PID" 2>/dev/null; then
		kill "$SIM_PID" 2>/dev/null || true
		wait "$SIM_PID" 2>/dev/null || true
	fi
	if [ -n "$SCRATCH" ] && [ -f "$SCRATCH/data/postmaster.pid" ]; then
		as_server_user "$BINDIR/pg_ctl" -D "$SCRATCH/data" -m immediate -w stop >/dev/null 2>&1 || true
	fi
	if [ -n "$SCRATCH" ]; then
		rm -rf "$SCRATCH"
	fi
	SIM_PID='' SCRATCH=''
}

harness_end()
{
	local status=$?
	trap - EXIT
	harness_stop
	exit "$status"
}

# The server's user may not be allowed to read the tree, so it gets a copy.
harness_begin()
{
	umask 022
	trap harness_end EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	BINDIR=$("$PG_CONFIG" --bindir)
	PGXS_DIR=$(dirname "$("$PG_CONFIG" --pgxs)")/../..
	SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/sprite_lockdown.XXXXXX")
	TREE=$SCRATCH/tree
	mkdir "$TREE"
	(cd "$ROOT" && tar -cf - --exclude=./.git --exclude='*.o' --exclude='*.so' .) | tar -C "$TREE" -xf -
	mkdir "$SCRATCH/sock" "$SCRATCH/sim" "$SCRATCH/out" "$SCRATCH/tmp"
	if [ "$(id -u)" -eq 0 ]; then
		chown -R postgres: "$SCRATCH"
	fi
}

build_and_install()
{
	make --no-print-directory -s -C "$ROOT" PG_CONFIG="$PG_CONFIG" "$@" all
	as_root make --no-print-directory -s -C "$ROOT" PG_CONFIG="$PG_CONFIG" "$@" install >/dev/null
}

start_cluster()
{
	export PGHOST=$SCRATCH/sock PGPORT=5432 PGUSER=postgres PGDATABASE=postgres
	# the socket is in a directory of our own, so the port is free whatever runs
	as_server_user "$BINDIR/initdb" -D "$SCRATCH/data" -U postgres -A trust -N \
		--locale=C --encoding=UTF8 >"$SCRATCH/initdb.log"
	as_server_user tee -a "$SCRATCH/data/postgresql.conf" >/dev/null <<-END
		listen_addresses = ''
		unix_socket_directories = '$PGHOST'
		port = $PGPORT
		fsync = off
		max_connections = 60
		log_min_messages = warning
	END
	as_server_user "$BINDIR/pg_ctl" -D "$SCRATCH/data" -l "$SCRATCH/server.log" -w start >/dev/null
}

wait_for_file()
{
	local tries=200
	while [ ! -s "$1" ]; do
		if [ $((tries -= 1)) -le 0 ]; then
			say "gave up waiting for $1" >&2
			return 1
		fi
		sleep 0.05
	done
}

start_simulator()
{
	as_server_user python3 "$TREE/test/sim/sprites_sim.py" --port-file "$SCRATCH/sim.port" \
		--state-dir "$SCRATCH/sim" --parent-pid $$ --token "$SIM_TOKEN" --quiet \
		>"$SCRATCH/sim.log" 2>&1 &
	SIM_PID=$!
	wait_for_file "$SCRATCH/sim.port"
	SIM_URL=http://127.0.0.1:$(cat "$SCRATCH/sim.port")
	export SIM_URL SIM_TOKEN
}

run_sql()
{
	"$BINDIR/psql" -X -q -v ON_ERROR_STOP=1 "$@"
}
