#!/usr/bin/env bash
# Really runs the argument vectors, as TAP, under every shell that may be a VM's sh.
#
#   argv_test.sh PROGRAM      PROGRAM heal CWD COMMAND [ARG ...] and PROGRAM recover [DIR ...]
#                             become the argv
set -uo pipefail
# shellcheck disable=SC2016

program=$(realpath "$1")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
count=0
failed=0

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

# All run in the scratch directory, with the shell under test as sh, and no PATH but that.
heal()
{
	(cd "$scratch" && PATH=$scratch/$shell.bin:/usr/bin:/bin exec "$program" heal "$@")
}

recover()
{
	(cd "$scratch" && PATH=$scratch/$shell.bin:/usr/bin:/bin exec "$program" recover "$@")
}

for shell in dash bash; do
	command -v $shell >/dev/null || continue
	mkdir "$scratch/$shell.bin"
	ln -s "$(command -v $shell)" "$scratch/$shell.bin/sh"

	check "$shell: a missing directory is made and entered" \
		"$(heal "$scratch/$shell/a b/c" pwd)" "$scratch/$shell/a b/c"
	check "$shell: metacharacters are inert" \
		"$(heal "$scratch" printf '%s|' '$(reboot)' '; ls' '*' '' $'a\nb' "'" '"' '`id`')" \
		"\$(reboot)|; ls|*||a"$'\n'"b|'|\"|\`id\`|"
	check "$shell: so they are in the directory" \
		"$(heal "$scratch/\$(id); x" bash -c 'basename "$PWD"')" '$(id); x'
	check "$shell: and in the command" "$(heal "$scratch" '$(echo pwd)' 2>/dev/null; echo $?)" 127
	check "$shell: a directory that begins with a hyphen" "$(heal "-p$shell" pwd)" "$scratch/-p$shell"
	check "$shell: a directory that is a hyphen" "$(OLDPWD=/ heal - pwd)" "$scratch/-"
	check "$shell: two hyphens" "$(heal -- pwd)" "$scratch/--"
	check "$shell: a relative directory" "$(heal .. pwd)" "$(dirname "$scratch")"
	mkdir -p "$scratch/trap/sub$shell"
	check "$shell: CDPATH sends nobody elsewhere" \
		"$(CDPATH=$scratch/trap heal "sub$shell" pwd)" "$scratch/sub$shell"
	check "$shell: and is the command's to see" \
		"$(CDPATH=/x heal "$scratch" env | grep ^CDPATH)" CDPATH=/x
	check "$shell: arguments that begin with hyphens are the command's" \
		"$(heal "$scratch" printf '%s|' -- -x --y)" '--|-x|--y|'
	check "$shell: a command that begins with a hyphen is no option" \
		"$(heal "$scratch" -c echo ran 2>/dev/null; echo $?)" 127
	check "$shell: nor is it two" "$(heal "$scratch" -- echo ran 2>/dev/null; echo $?)" 127
	check "$shell: the exit code is the command's" "$(heal "$scratch" bash -c 'exit 7'; echo $?)" 7
	check "$shell: a signal is the command's" \
		"$(heal "$scratch" bash -c 'kill -TERM $$' 2>/dev/null; echo $?)" 143
	check "$shell: so is the input" "$(echo in | heal "$scratch/$shell/new" cat)" in
	: > "$scratch/file"
	check "$shell: a directory that cannot be made" \
		"$(heal "$scratch/file/x" echo ran 2>/dev/null; echo $?)" 1
	check "$shell: a directory that is a file" "$(heal "$scratch/file" echo ran 2>/dev/null; echo $?)" 1
	(PATH=$scratch/$shell.bin:/usr/bin:/bin exec "$program" heal "$scratch" bash -c 'echo $$ >pid') &
	wait $!
	check "$shell: the command replaces the shell" "$(cat "$scratch/pid")" $!

	check "$shell: recovery makes what it can and ignores the rest" \
		"$(recover "$scratch/file/x" "$scratch/$shell/r 1/\$(id)" "-r$shell" '' 2>&1; echo $?)" 0
	check "$shell: so all others are there" \
		"$(cd "$scratch" && ls -d "$shell"/r\ 1/* ./-r"$shell")" "./-r$shell"$'\n'"$shell/r 1/\$(id)"
	check "$shell: nothing to recover is nothing done" "$(recover; echo $?)" 0
done
echo "1..$count"
[ "$count" -gt 0 ] && exit $failed
