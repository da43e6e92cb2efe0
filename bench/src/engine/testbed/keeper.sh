#!/bin/sh
# Keeps the machine under test for `sidestep-bench`: takes its two ports into a network namespace, runs there what it is asked to
# on stdin, and undoes all of it when stdin ends: with the campaign, a Ctrl-C, a crash or the connection. What is left where this
# shell itself is killed, the next one undoes. What is done outside the namespace is in /run/$name, and nothing else.
#
# Set before: name, port_in, port_out, sidestep (a program).
# shellcheck disable=SC2154 # these

home=/run/$name

refuse() {
	echo "$*" >&2
	exit 1
}

# A process, told from a later one of its number by when it began.
identity() {
	cut -d ' ' -f 1,22 "/proc/$1/stat" 2>/dev/null
}

is_ours() {
	[ "$(cat "$home/owner" 2>/dev/null)" = "$(identity $$)" ]
}

# Makes the ports ours, once whoever had them is gone.
claim() {
	[ "$(id -u)" = 0 ] || refuse "needs root there"
	tries=0
	until mkdir "$home" 2>/dev/null; do
		owner=$(cat "$home/owner" 2>/dev/null)
		if [ "$owner" ] && [ "$owner" = "$(identity "${owner% *}")" ]; then
			tries=$((tries + 1))
			[ "$tries" -le 100 ] || refuse "process ${owner% *} measures there already"
			sleep 0.1
		else
			undo
		fi
	done
	identity $$ >"$home/owner"
	for port in "$port_in" "$port_out"; do
		ip link show dev "$port" >/dev/null || exit
		address=$(ip -o address show dev "$port" scope global) || exit
		[ -z "$address" ] || refuse "$port has an address: $address; a port of the testbed has none, it is taken out of the system"
	done
}

# Moves a port into the namespace, under the name that it has there.
take() {
	state=down
	ip -o link show dev "$1" | grep -q '[<,]UP[,>]' && state=up
	echo "$1 $2 $state" >>"$home/ports"
	ip link set dev "$1" netns "$name" name "$2" || exit
	ip -n "$name" link set dev "$2" up || exit
}

# Waits until a port runs: after a move, network cards negotiate anew.
await() {
	tries=0
	until ip -n "$name" -o link show dev "$1" | grep -q LOWER_UP; do
		tries=$((tries + 1))
		[ "$tries" -le 200 ] || refuse "$2 has no carrier within 20 s"
		sleep 0.1
	done
}

# A namespace with both ports, as eth0 and eth1. Arguments: sysctls that it has before they come.
enter() {
	leave
	: >"$home/ports"
	ip netns add "$name" || exit
	ip -n "$name" link set dev lo up || exit
	ip netns exec "$name" sysctl -qw "$@" || exit
	take "$port_in" eth0
	take "$port_out" eth1
	await eth0 "$port_in"
	await eth1 "$port_out"
}

# Undoes `enter` and whatever was done in between, however far it came. Fails if the command that is to undo the engine does.
leave() {
	undone=0
	if [ -e "$home/down" ]; then
		timeout -k 5 60 sh "$home/down" </dev/null >/dev/null || undone=$?
		rm -f "$home/down"
	fi
	if [ -e "/run/netns/$name" ]; then
		ip netns exec "$name" "$sidestep" stop </dev/null >/dev/null 2>&1
		while read -r port inside state; do
			ip -n "$name" link set dev "$inside" netns $$ name "$port" 2>/dev/null
			[ "$state" = down ] || ip link set dev "$port" up
		done <"$home/ports"
		ip netns pids "$name" | xargs -r kill -9
		ip netns delete "$name"
	fi
	rm -f "$home/ports"
	return "$undone"
}

undo() {
	leave 2>/dev/null
	rm -rf "$home"
}

# Runs a script and answers: its exit code, bytes of its output, bytes of its errors; and these. Files, not pipes: what the script
# leaves running may keep them open.
answer() {
	(eval "$1") >"$home/out" 2>"$home/err" </dev/null
	set -- $? "$(wc -c <"$home/out")" "$(wc -c <"$home/err")"
	echo "$@"
	cat "$home/out" "$home/err"
}

trap '! is_ours || undo' EXIT
trap 'exit 1' HUP INT TERM PIPE
# What a login shell says comes before.
echo "$name"
if why=$(claim 2>&1); then
	echo 0 0 0
else
	printf '1 0 %s\n%s' "$(printf %s "$why" | wc -c)" "$why"
	exit 1
fi
