# A core router dies while BGP has many customer routes behind the path through it: with Linux alone, and with Sidestep
# in TC and in XDP. Needs lib.sh, line.sh, frr.sh and failures.sh.
# shellcheck shell=bash disable=SC2034,SC2154 # variables of lib.sh and of the scripts
numbers=([pe1]=1 [p1]=2 [pe2]=3 [p2]=4)
routers=(pe1 p1 p2 pe2)
ports_of=([pe1]='eth0 eth1 eth2' [pe2]='eth0 eth1 eth2')
# With a buffer for the notifications of so many routes.
zebra=(zebra -s 134217728)
deaths=('p1 loses its power' 'p1 hangs')
metric=100 # of the links of p2; those of p1 have 10

# --- the network --------------------------------------------------------------------------------
diamond() {
	local router letter
	heading "The network"
	nodes a b pe1 p1 p2 pe2
	link a eth0 pe1 eth0 1500
	link pe1 eth1 p1 eth0 2000
	link pe1 eth2 p2 eth0 2000
	link p1 eth1 pe2 eth0 2000
	link p2 eth1 pe2 eth2 2000
	link pe2 eth1 b eth0 1500
	quote <<-END
		                                       p1
		                               +-------------+
		 host a              pe1    .==|eth0     eth1|==.    pe2            host b
		+------+      +-------------+  +-------------+  +-------------+      +------+
		|  eth0|------|eth0     eth1|                   |eth0     eth1|------|eth0  |
		+------+      |         eth2|                   |eth2         |      +------+
		              +-------------+  +-------------+  +-------------+
		                            '==|eth0     eth1|=='
		                               +-------------+
		                                       p2
	END
	note "IS-IS prefers the path through p1. BGP on pe2 announces $customers customer prefixes behind host b, with" \
		"one SID. Host a sends an echo request every 2 ms, each to another of these prefixes."
	for router in "${routers[@]}"; do
		configure "$router" <<-END
			sysctl -w net.ipv6.conf.all.forwarding=1 net.ipv6.route.max_size=2147483647
			$(segment_device "$router")
		END
	done
	for letter in a b; do
		configure "$letter" <<-END
			ip address add 2001:db8:$letter::2/64 dev eth0
			ip route add default via 2001:db8:$letter::1
		END
	done
	configure b <<<'ip route add local 2001:db9::/32 dev lo'
	for port in a:eth0 b:eth0 pe1:eth{0,1,2} p1:eth{0,1} p2:eth{0,1} pe2:eth{0,1,2}; do
		on "${port%:*}" ethtool -K "${port#*:}" rx off tx off tso off gso off gro on >/dev/null
	done
}

# way ROUTER CORE-PORTS EDGE-ARGUMENTS...: prints the configuration of a router, with the metrics of the links of p2.
# IS-IS takes a silent neighbor for dead after three seconds.
way() {
	local port
	configuration "$@"
	for port in $2; do
		printf '%s\n' "interface $port" ' isis hello-multiplier 3' exit
		[[ $1 != p2 && $port != eth2 ]] || printf '%s\n' "interface $port" " isis metric $metric" exit
	done
	[[ $1 != pe2 ]] || printf '%s\n' 'router bgp 65000' ' address-family ipv6 unicast' '  redistribute kernel' \
		"  neighbor fcbb:bbbb:a${numbers[pe1]}::1 next-hop-self" exit exit
}

core_router() { way "$1" 'eth0 eth1' | start_frr "$1" isisd; }

routing() {
	local began=$SECONDS
	heading "FRR $release: IS-IS, BGP and SRv6"
	way pe1 'eth1 eth2' eth0 a pe2 b | start_frr pe1 isisd bgpd
	core_router p1
	core_router p2
	way pe2 'eth0 eth2' eth1 b pe1 a | start_frr pe2 isisd bgpd
	wait_for pe1 '^2001:db8:b::/64 .*encap seg6'
	awk -v count="$customers" 'BEGIN { for (i = 0; i < count; i++)
		printf "route add 2001:db9:%x:%x::/64 via 2001:db8:b::2 dev eth1\n", i / 65536, i % 65536 }' |
		on pe2 ip -6 -batch - || fail "pe2: its customer routes are not added"
	routes_return "$began"
	ok "pe1 has $customers routes with H.Encaps to the SID of pe2, $((SECONDS - began)) s after the start of FRR"
	look pe1 'ip -6 route show 2001:db9:0:7::/64'
}

# routes_return BEGAN: waits until pe1 has its customer routes in the kernel. A list of them would take seconds.
routes_return() {
	until ((16#$(on pe1 cut -d' ' -f4 /proc/self/net/rt6_stats) > customers)); do
		((SECONDS - $1 < patience + customers / 2000)) || fail "pe1: FRR has not installed $customers customer routes"
		sleep 0.2
	done
}

# --- the failures -------------------------------------------------------------------------------
# way_is PORT: waits until pe1 reaches pe2 by this port, in FRR and the kernel, and no packet is lost for two intervals.
way_is() {
	local began=$SECONDS quiet=0
	while ((quiet < 2)); do
		until on pe1 ip -6 route show fcbb:bbbb:a3::/48 | grep -q " dev $1 "; do
			((SECONDS - began < patience)) || fail "pe1 does not reach pe2 by $1"
			sleep 0.02
		done
		routes_return "$began"
		sleep 0.3
		if count_packets; then quiet=$((quiet + 1)); else quiet=0; fi
		((SECONDS - began < patience)) || fail "packets are still lost after $patience seconds"
	done
}

# Ends all programs of p1.
kill_p1() {
	local pid
	for pid in $(ip netns pids "$prefix-p1"); do
		[[ $(<"/proc/$pid/comm") == sidestep ]] || kill -KILL "$pid"
	done
}
# The neighbors lose the carrier.
power_off() { kill_p1 && on p1 ip -batch - <<<$'link set eth0 down\nlink set eth1 down'; }
# The neighbors keep the carrier, and p1 forwards nothing.
hang() {
	kill_p1
	[[ $running == linux ]] || on p1 "$sidestep" stop >/dev/null
	on p1 sysctl -q -w net.ipv6.conf.all.forwarding=0
}
revive() {
	on p1 sysctl -q -w net.ipv6.conf.all.forwarding=1
	on p1 ip -batch - <<<$'link set eth0 up\nlink set eth1 up'
	[[ $running == linux ]] || on p1 "$sidestep" show status >/dev/null 2>&1 ||
		on p1 "$sidestep" run --mode "$running" --detach eth0 eth1 >/dev/null
	core_router p1
}

# lose NAME PORT COMMAND: executes a command while packets are on the way, until pe1 uses a port.
lose() {
	count_packets || true
	sent=0 lost=0 silent=0
	"$3"
	way_is "$2"
	[[ $running != linux ]] || steps+=("$1")
	result_of["$running $1"]="$lost $silent"
	ok "$1: $lost of $sent packets lost, at most $silent ms without a reply"
}

each_death() {
	lose "${deaths[0]}" eth2 power_off
	lose 'p1 starts again' eth1 revive
	lose "${deaths[1]}" eth2 hang
	lose 'p1 starts again, after it hung' eth1 revive
	[[ $running == linux ]] || check_routes "$running" pe1
}

dead_node() {
	local name target
	running=linux
	heading "Linux alone"
	start_flow a 2001:db9:0:0::1 "$customers"
	each_death
	for running in tc xdp-always; do
		mode=$running target=${running%-always}
		heading "Sidestep in ${target^^} on the four routers"
		start
		each_death
		stop
	done
	kill "$flow"
	heading "Packets lost"
	printf '  %-32s %20s %20s %20s\n' '' 'Linux alone' 'Sidestep in TC' 'Sidestep in XDP' '' \
		'packets, longest ms' 'packets, longest ms' 'packets, longest ms'
	for name in "${steps[@]}"; do
		printf '  %-32s %20s %20s %20s\n' "$name" "${result_of["linux $name"]}" "${result_of["tc $name"]}" \
			"${result_of["xdp-always $name"]}"
	done
	# FRR's pauses differ from run to run, because isisd computes its routes once per second. When p1 starts again, its
	# neighbors use it before it has routes, so that Linux alone loses packets for 0 to 1.9 s.
	for name in "${deaths[@]}"; do
		for running in tc xdp-always; do
			target=${running%-always}
			((${result_of["$running $name"]#* } <= 2 * ${result_of["linux $name"]#* } + 1000)) ||
				fail "$name: no reply for ${result_of["$running $name"]#* } ms with Sidestep in ${target^^}"
		done
	done
	result="Result: $customers customer routes survived the death of a core router with Linux and with Sidestep."
}
