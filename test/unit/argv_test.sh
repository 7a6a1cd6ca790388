#!/usr/bin/env bash
# Runs the self-healing script under every shell that may be a VM's sh, as TAP: the
# text of the script is taken from the source, so it is the one that is sent.
set -uo pipefail
# shellcheck disable=SC2016

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
count=0
failed=0

script_of()
{
	sed -n "/#define $1/,/[^\\\\]\$/p" "$here/../../src/argv.c" | tail -n +"${2:-2}" \
		| sed -e 's/\\$//' -e 's/^[[:space:]]*"//' -e 's/"[[:space:]]*$//' | tr -d '\n' | sed 's/\\"/"/g'
}
healing=$(script_of SELF_HEALING_SCRIPT)

check()
{
	count=$((count + 1))
	if [ "$2" = "$3" ]; then
		echo "ok $count - $1"
	else
		failed=1
		echo "not ok $count - $1"
		echo "# got '$2', expected '$3'"
	fi
}

for shell in dash bash; do
	command -v $shell >/dev/null || continue
	heal() { (cd "$scratch" && "$shell" -c "$healing" sh "$@"); }

	check "$shell: a missing directory is made and entered" "$(heal "$scratch/$shell/a b/c" pwd)" "$scratch/$shell/a b/c"
	check "$shell: metacharacters are inert" \
		"$(heal "$scratch" printf '%s|' '$(reboot)' '; ls' '*' '' $'a\nb' "'" '"')" "\$(reboot)|; ls|*||a"$'\n'"b|'|\"|"
	check "$shell: so they are in the directory" "$(heal "$scratch/\$(id); x" sh -c 'basename "$PWD"')" '$(id); x'
	check "$shell: a directory that begins with a hyphen" "$(heal -p pwd)" "$scratch/-p"
	check "$shell: a directory that is a hyphen" "$(OLDPWD=/ heal - pwd)" "$scratch/-"
	check "$shell: CDPATH sends nobody elsewhere" "$(mkdir -p "$scratch/trap/sub"; CDPATH=$scratch/trap heal sub pwd)" "$scratch/sub"
	check "$shell: the exit code is the command's" "$(heal "$scratch" sh -c 'exit 7'; echo $?)" 7
	check "$shell: a signal is the command's" "$(heal "$scratch" sh -c 'kill -TERM $$' 2>/dev/null; echo $?)" 143
	: > "$scratch/file"
	check "$shell: a directory that cannot be entered" "$(heal "$scratch/file/x" echo ran 2>/dev/null; echo $?)" 1
	"$shell" -c "$healing" sh "$scratch" sh -c 'echo $$ >pid' &
	wait $!
	check "$shell: the command replaces the shell" "$(cat "$scratch/pid")" $!
done
[ "$count" -gt 0 ] && exit $failed
