# Failures of FRR, of Sidestep and of the network while packets are on the way: first with Linux alone, then with
# Sidestep. Needs lib.sh, line.sh and frr.sh.
# shellcheck shell=bash disable=SC2034,SC2154 # variables of lib.sh and of the scripts
# Packets that may be lost where Linux alone loses none: 40 ms. Linux still encapsulates to a segment whose route is
# deleted. Sidestep punts these packets until FRR has installed the route again, and Linux then drops them.
tolerated=20
steps=() # names of the failures, in the order of their tests
declare -A result_of=()

# --- the state after a failure ------------------------------------------------------------------
# Prints FRR's routes in the kernel of a router, without the ids of nexthop objects and the function numbers, which FRR
# allocates anew after a restart.
routes_of_frr() {
	on "$1" ip -6 route show table all | grep -E ' proto (isis|bgp|196) ' |
		sed -E 's/ nhid [0-9]*//; s/(fcbb:bbbb:a.:)[0-9a-f]+::/\1FUNCTION::/; s/ *$//' | sort
}

# Waits until FRR has its routes again and no packet was lost for two intervals.
recover() {
	local router began=$SECONDS quiet=0
	while ((quiet < 2)); do
		for router in "${routers[@]}"; do
			until routes_of_frr "$router" | cmp -s - "$scratch/$router.routes"; do
				((SECONDS - began < patience)) ||
					fail "$1: $router has other routes: $(routes_of_frr "$router" | diff "$scratch/$router.routes" -)"
				sleep 0.1
			done
		done
		sleep 0.3
		if count_packets; then quiet=$((quiet + 1)); else quiet=0; fi
		((SECONDS - began < patience)) || fail "$1: packets are still lost after $patience seconds"
	done
}

# check_routes NAME ROUTER...: fails if Sidestep has other routes than the kernel.
check_routes() {
	local router tries
	for router in "${@:2}"; do
		tries=0
		until on "$router" "$here/routes.py" "$sidestep" >"$scratch/differences"; do
			((++tries < 30)) || { quote <"$scratch/differences" && fail "$1: $router: Sidestep has other routes"; }
			sleep 0.1
		done
	done
}

# Fails if Sidestep has other routes than the kernel, or punts packets that are not control traffic.
check_sidestep() {
	local before all requests
	check_routes "$1" "${routers[@]}"
	count_packets || fail "$1: packets are lost after the recovery"
	before=$(punted) all=$(all_punted) requests=$sent
	sleep 0.5
	[[ $(punted) == "$before" ]] || fail "$1: Sidestep punts: before $before; after $(punted)"
	all=$(($(all_punted) - all))
	count_packets || fail "$1: packets are lost after the recovery"
	# Control traffic is a few packets per second. Requests or replies could have one of its reasons, such as neighbor.
	((all < (sent - requests) / 4)) || fail "$1: Sidestep punts $all packets, at $((sent - requests)) requests"
}

# Prints the number of packets that each router punted, without control traffic.
punted() {
	local router
	for router in "${routers[@]}"; do punts "$router" | tr '\n' ' '; done
}

# Prints the number of packets that all routers punted.
all_punted() {
	local router sum=0
	for router in "${routers[@]}"; do
		sum=$((sum + $(on "$router" "$sidestep" show drops -j | python3 -c 'import json, sys
print(sum(row["packets"] for row in json.load(sys.stdin) if row["verdict"] == "punt"))')))
	done
	echo "$sum"
}

# measure PLANE NAME COMMAND...: executes a command while packets are on the way, and waits for the recovery.
measure() {
	local plane=$1 name=$2
	count_packets || true
	sent=0 lost=0 silent=0
	"${@:3}"
	recover "$name"
	[[ $plane == linux ]] || check_sidestep "$name"
	[[ -n ${result_of["linux $name"]-} && $plane == sidestep ]] || steps+=("$name")
	result_of["$plane $name"]="$lost $silent"
	ok "$name: $lost of $sent packets lost, at most $silent ms without a reply"
}

# --- FRR ----------------------------------------------------------------------------------------
# kill_daemon ROUTER DAEMON: ends a program of FRR as a crash does.
kill_daemon() {
	local pid
	pid=$(<"$root/run/frr/$prefix-$1/$2.pid")
	kill -KILL "$pid"
	while [[ -e /proc/$pid ]]; do sleep 0.01; done
}

# restart ROUTER DAEMON: kills a program of FRR, starts it again and loads its configuration.
restart() {
	kill_daemon "$1" "$2"
	frr "$1" "/usr/lib/frr/$2" -N "$prefix-$1" -d >"$scratch/$1-$2.log" 2>&1 ||
		{ quote <"$scratch/$1-$2.log" && fail "$1: $2 does not start"; }
	load_configuration "$1" "$2"
}

# restart_frr SIGNAL: ends zebra by a signal, stops the other programs, and starts all again. FRR's
# watchfrr does the same if zebra dies: isisd does not send its routes to a new zebra. After KILL, the kernel keeps the
# routes. After TERM, zebra has removed them.
restart_frr() {
	local daemon pid order=(zebra bgpd isisd staticd mgmtd) signal=$1
	[[ $signal == KILL ]] || order=(bgpd isisd staticd zebra mgmtd)
	for daemon in "${order[@]}"; do
		pid=$(<"$root/run/frr/$prefix-pe1/$daemon.pid")
		if [[ $daemon == zebra ]]; then kill "-$signal" "$pid"; else kill "$pid"; fi
		while [[ -e /proc/$pid ]]; do sleep 0.01; done
	done
	configuration pe1 eth1 eth0 a pe2 b | start_frr pe1 isisd bgpd
}

# Deletes the routes of a protocol one by one. With net.ipv4.nexthop_compat_mode 1, the default, the kernel refuses the
# requests of `ip route flush`, which name both the nexthop object and its next hop.
flush() { show pe1 "ip -6 route show proto $1 | while read -r prefix _; do ip -6 route delete \$prefix proto $1; done"; }

# --- the network --------------------------------------------------------------------------------
rename() {
	show pe1 'ip link set eth1 name core'
	[[ $plane == linux ]] || check_routes "$name" pe1
	sleep 0.2
	show pe1 'ip link set core name eth1'
}

# A static End.X of p is on the way to pe2, and FRR moves it to the link to pe1. The packets then travel from p to pe1
# and return to p, so that pe1 receives them from p, beside the replies.
move_sid() {
	local before after requests service command
	service=$(on pe1 ip -6 route show 2001:db8:b::/64 | sed 's/.* fcbb:bbbb:\(a3:[0-9a-f]*::\) .*/\1/')
	command="ipv6 route 2001:db8:b::2/128 eth1 segments fcbb:bbbb:a2:fe01:$service"
	adjacency eth1 "$(mac pe2 eth0)"
	vtysh pe1 "$(printf '%s\n' configure "$command")"
	wait_for pe1 "2001:db8:b::2 .*fcbb:bbbb:a2:fe01:$service"
	adjacency eth0 "$(mac pe1 eth1)"
	sleep 0.2
	before=$(from_p)
	count_packets || true
	requests=$sent
	sleep 0.5
	after=$(from_p)
	count_packets || true
	requests=$((sent - requests))
	# Replies and returned requests. Without the latter, as many as requests.
	((2 * (after - before) > 3 * requests)) ||
		fail "p does not send packets of the moved SID to pe1, which received $((after - before)), at $requests requests"
	[[ $plane == linux ]] || check_sidestep "$name"
	vtysh pe1 "$(printf '%s\n' configure "no $command")"
	sleep 0.3
	vtysh p "$(printf '%s\n' configure 'segment-routing' srv6 static-sids 'no sid fcbb:bbbb:a2:fe01::/64')"
}

# adjacency PORT MAC: configures the static End.X of p.
adjacency() {
	local link_local
	link_local=$(python3 -c 'import ipaddress, sys
b = bytes.fromhex(sys.argv[1].replace(":", ""))
print(ipaddress.IPv6Address(b"\xfe\x80" + bytes(6) + bytes([b[0] ^ 2]) + b[1:3] + b"\xff\xfe" + b[3:]))' "$2")
	vtysh p "$(printf '%s\n' configure 'segment-routing' srv6 static-sids \
		"sid fcbb:bbbb:a2:fe01::/64 locator MAIN behavior uA interface $1 nexthop $link_local")"
	wait_for p "fcbb:bbbb:a2:fe01::/64 .* dev $1 "
}

# Prints the number of packets that pe1 received from p.
from_p() {
	on pe1 ip -s -j link show dev eth1 | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["stats64"]["rx"]["packets"])'
}

# --- Sidestep -----------------------------------------------------------------------------------
kill_sidestep() {
	local pid
	pid=$(on p "$sidestep" show status -j | python3 -c 'import json, sys; print(json.load(sys.stdin)["pid"])')
	kill -KILL "$pid"
	while [[ -e /proc/$pid ]]; do sleep 0.01; done
	sleep 0.5
	on p "$sidestep" run --detach eth0 eth1 >/dev/null || fail "p: sidestep does not start again"
}

# --- the story ----------------------------------------------------------------------------------
# each_failure PLANE: PLANE is linux or sidestep.
each_failure() {
	measure "$1" 'SID moved to another device' move_sid
	measure "$1" 'zebra killed, FRR restarted' restart_frr KILL
	measure "$1" 'bgpd killed and restarted' restart pe1 bgpd
	measure "$1" 'isisd killed and restarted' restart p isisd
	measure "$1" 'FRR stopped and started' restart_frr TERM
	measure "$1" 'BGP routes flushed' flush bgp
	measure "$1" 'IS-IS routes flushed' flush isis
	measure "$1" 'egress renamed and renamed back' rename
}

failures() {
	local router name
	for router in "${routers[@]}"; do routes_of_frr "$router" >"$scratch/$router.routes"; done
	start_flow a 2001:db8:b::2
	heading "Linux alone"
	each_failure linux
	heading "Sidestep on the three routers"
	measure sidestep 'Sidestep started' start
	measure sidestep 'Sidestep killed and started' kill_sidestep
	each_failure sidestep
	kill "$flow"
	heading "Packets lost"
	printf '  %-36s %22s %22s\n' '' 'Linux alone' Sidestep '' 'packets, longest in ms' 'packets, longest in ms'
	for name in "${steps[@]}"; do
		printf '  %-36s %22s %22s\n' "$name" "${result_of["linux $name"]:--}" "${result_of["sidestep $name"]}"
	done
	for name in "${steps[@]}"; do compare "$name"; done
	result="Result: after each failure, Sidestep had the routes of the kernel and punted only control traffic."
}

# compare NAME: fails if Sidestep lost more packets than Linux alone. FRR's pauses differ from run to run.
compare() {
	local linux=${result_of["linux $1"]:-0 0} sidestep=${result_of["sidestep $1"]}
	((${sidestep% *} <= 2 * ${linux% *} + tolerated)) || fail "$1: ${sidestep% *} packets lost with Sidestep, ${linux% *} with Linux"
}
