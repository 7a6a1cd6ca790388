# shellcheck shell=bash
# What the set-up, the demo and the tests share; to be sourced.
#
#   harness_begin       cleans the environment, makes SCRATCH and TREE, a copy of the
#                       sources in it; from here on everything is stopped and removed
#                       when the shell exits, also by SIGINT or SIGTERM
#   build_and_install   builds TREE and installs the extension
#   start_cluster       a throwaway cluster; sets PGHOST, PGPORT, PGUSER, PGDATABASE
#   start_simulator     the simulated platform; sets SIM_URL and SIM_TOKEN
#   watched CMD...      runs CMD so that a signal to this shell ends it at once
#   harness_stop        stops and removes everything now
#
# Nothing is written into the tree that this file is in.

PG_MAJOR=15
PG_CONFIG=${PG_CONFIG:-/usr/lib/postgresql/$PG_MAJOR/bin/pg_config}
PYTHON=/usr/bin/python3
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# Only names the socket, whose directory is our own: any number is free.
CLUSTER_PORT=54329
SIMULATOR_TOKEN=org/org-1/tok-1/secret
START_TIMEOUT=60
STOP_TIMEOUT=10
# A socket's path has at most 107 bytes, and tests make directories below ours.
MAX_TMPDIR_LENGTH=30

SCRATCH=
CLUSTER_PID=
SIM_PID=
CHILD_PID=

# The server refuses to run as root: then all that need not be root is done as the
# user whom Debian made for it.  Used as a prefix, it leaves the process its id.
AS_SERVER=()
if [ "$(id -u)" -eq 0 ]; then
	AS_SERVER=(setpriv --reuid=postgres --regid=postgres --init-groups --)
fi

say()
{
	printf '%s\n' "$*"
}

complain()
{
	printf '%s\n' "$*" >&2
}

as_root()
{
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo -- "$@"
	else
		complain "This needs root, or sudo: $*"
		return 1
	fi
}

as_server()
{
	"${AS_SERVER[@]}" "$@"
}

# The caller's settings for clients, proxies, make and interpreters are not meant for us.
clean_environment()
{
	local name
	umask 022
	for name in $(compgen -e); do
		case $name in
			PG_CONFIG | PG_MAJOR) ;;
			PG* | MAKE* | MFLAGS | GNUMAKEFLAGS | PERL5* | PYTHON* | LC_* | LANGUAGE | \
				*_proxy | *_PROXY | CURL_* | SSL_CERT_* | LD_PRELOAD | CDPATH)
				unset -v "$name" ;;
		esac
	done
	# where Debian does not let ordinary users look
	export PATH=$PATH:/usr/sbin:/sbin
	export LANG=C.UTF-8 LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
}

# The caller's TMPDIR, if sockets and the server's user fit in there.
scratch_parent()
{
	local parent=${TMPDIR:-/tmp}
	if [ "${#parent}" -gt "$MAX_TMPDIR_LENGTH" ] || [[ $parent != /* ]] ||
		[[ $parent =~ [^A-Za-z0-9/._-] ]] || ! as_server test -w "$parent" -a -x "$parent"; then
		parent=/tmp
	fi
	say "$parent"
}

harness_begin()
{
	clean_environment
	trap harness_end EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM
	# shellcheck disable=SC2034
	if ! BINDIR=$("$PG_CONFIG" --bindir) || ! PGXS_DIR=$(dirname "$("$PG_CONFIG" --pgxs)")/../..; then
		complain "$PG_CONFIG does not work; set PG_CONFIG to the pg_config of the server to use"
		exit 1
	fi
	SCRATCH=$(mktemp -d "$(scratch_parent)/sprite_lockdown.XXXXXX")
	TREE=$SCRATCH/tree
	OUT=$SCRATCH/out
	mkdir "$TREE" "$OUT" "$SCRATCH"/{data,socket,sim,home,tmp}
	# below a directory that the server's user may not enter, the tree is unreadable
	tar -C "$ROOT" -cf - --exclude=./.git --exclude='*.o' --exclude='*.so' --exclude='*.bc' \
		--exclude=__pycache__ . | tar -C "$TREE" --no-same-owner -xf -
	chmod -R u+rwX,go+rX "$SCRATCH"
	give_to_server "$OUT" "$SCRATCH"/{data,socket,sim,home,tmp}
	export HOME=$SCRATCH/home TMPDIR=$SCRATCH/tmp
	cd "$SCRATCH" || exit 1
}

give_to_server()
{
	if [ "$(id -u)" -eq 0 ]; then
		chown -R postgres: "$@"
	fi
}

build_and_install()
{
	watched make -s --no-print-directory -C "$TREE" -j "$(nproc)" PG_CONFIG="$PG_CONFIG" all || return 1
	if [ -w "$("$PG_CONFIG" --pkglibdir)" ]; then
		make -s --no-print-directory -C "$TREE" PG_CONFIG="$PG_CONFIG" install >/dev/null || return 1
	else
		as_root make -s --no-print-directory -C "$TREE" PG_CONFIG="$PG_CONFIG" install >/dev/null || return 1
	fi
	# what follows writes results there, and is not done as root
	give_to_server "$TREE"
}

# Waits for a condition that the process must bring about.
wait_for()
{
	local pid=$1 log=$2 deadline=$((SECONDS + START_TIMEOUT))
	shift 2
	until "$@"; do
		if ! kill -0 "$pid" 2>/dev/null || [ "$SECONDS" -ge "$deadline" ]; then
			complain "did not start: $(cat "$log")"
			return 1
		fi
		sleep 0.05
	done
}

start_cluster()
{
	as_server "$BINDIR/initdb" -D "$SCRATCH/data" -U postgres -A trust --no-sync \
		--locale=C --encoding=UTF8 >"$OUT/initdb.log" 2>&1 || { cat "$OUT/initdb.log"; return 1; }
	as_server tee -a "$SCRATCH/data/postgresql.conf" >/dev/null <<-END
		listen_addresses = ''
		unix_socket_directories = '$SCRATCH/socket'
		port = $CLUSTER_PORT
		fsync = off
		max_connections = 60
		max_prepared_transactions = 20
		log_min_messages = warning
		log_checkpoints = off
	END
	export PGHOST=$SCRATCH/socket PGPORT=$CLUSTER_PORT PGUSER=postgres PGDATABASE=postgres
	(exec "${AS_SERVER[@]}" "$BINDIR/postgres" -D "$SCRATCH/data" >"$OUT/server.log" 2>&1 </dev/null) &
	CLUSTER_PID=$!
	wait_for "$CLUSTER_PID" "$OUT/server.log" "$BINDIR/pg_isready" -q
}

start_simulator()
{
	SIM_TOKEN=$SIMULATOR_TOKEN
	(exec "${AS_SERVER[@]}" "$PYTHON" "$TREE/test/sim/sprites_sim.py" --port 0 \
		--port-file "$SCRATCH/sim/port" --state-dir "$SCRATCH/sim" --token "$SIM_TOKEN" \
		--parent-pid $$ >"$OUT/simulator.log" 2>&1 </dev/null) &
	SIM_PID=$!
	wait_for "$SIM_PID" "$OUT/simulator.log" test -s "$SCRATCH/sim/port" || return 1
	SIM_URL=http://127.0.0.1:$(cat "$SCRATCH/sim/port")
	export SIM_URL SIM_TOKEN
}

run_sql()
{
	"$BINDIR/psql" -X -q -v ON_ERROR_STOP=1 "$@"
}

watched()
{
	local status
	set -m
	"$@" </dev/null &
	CHILD_PID=$!
	set +m
	wait "$CHILD_PID"
	status=$?
	CHILD_PID=
	return "$status"
}

# Sends a signal to a process of ours, or to its group (-PID), and waits for its end.
stop_process()
{
	kill -s "$1" -- "$2" 2>/dev/null || true
	wait "${2#-}" 2>/dev/null || true
}

# Processes that work somewhere below SCRATCH: ours, whoever started them.
stragglers()
{
	local cwd
	for cwd in /proc/[0-9]*/cwd; do
		if [[ $(readlink "$cwd" 2>/dev/null) == "$SCRATCH"/* ]]; then
			cwd=${cwd#/proc/}
			say "${cwd%/cwd}"
		fi
	done
}

# Tests start servers of their own, which an interrupted test leaves behind.  A server
# that is told to quit leaves no shared memory; most others end by that signal, too.
end_stragglers()
{
	local signal deadline pids
	for signal in QUIT KILL; do
		deadline=$((SECONDS + STOP_TIMEOUT))
		while mapfile -t pids < <(stragglers) && [ "${#pids[@]}" -gt 0 ] && [ "$SECONDS" -lt "$deadline" ]; do
			kill -s "$signal" -- "${pids[@]}" 2>/dev/null || true
			sleep 0.05
		done
	done
}

harness_stop()
{
	if [ -n "$CHILD_PID" ]; then
		stop_process TERM "-$CHILD_PID"
	fi
	if [ -n "$SIM_PID" ]; then
		stop_process TERM "$SIM_PID"
	fi
	if [ -n "$CLUSTER_PID" ]; then
		stop_process QUIT "$CLUSTER_PID"
	fi
	if [ -n "$SCRATCH" ]; then
		cd /
		end_stragglers
		rm -rf "$SCRATCH"
	fi
	CHILD_PID='' SIM_PID='' CLUSTER_PID='' SCRATCH=''
}

harness_end()
{
	local status=$?
	trap - EXIT
	trap '' HUP INT TERM
	harness_stop
	exit "$status"
}
