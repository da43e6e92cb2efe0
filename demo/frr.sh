# FRR, unpacked from Debian's packages, and the network of three FRR routers. Needs lib.sh and line.sh.
# shellcheck shell=bash disable=SC2034,SC2154 # variables of lib.sh and of the scripts
# shellcheck source-path=SCRIPTDIR source=../tests/apt.sh
. "$here/../tests/apt.sh"
# shellcheck source=../tests/frr.sh
. "$here/../tests/frr.sh"

version=10.7
declare -A suites=([10.7]=sid [10.3]=trixie)
declare -A numbers=([pe1]=1 [p]=2 [pe2]=3)
zebra=(zebra -M dplane_fpm_nl)
table=main # of FRR's routes in the kernel
patience=90 # seconds until FRR has its routes in the kernel
# Punts of control traffic: IS-IS and ARP, neighbor discovery, BGP to an address of the router, and the first packet
# to a neighbor.
control_reasons=' not_ip multicast link_local local neighbor other_host bad_source '

# --- the programs -------------------------------------------------------------------------------
# Unpacks FRR and the libraries that it needs. Sets root and release. Status 77: they cannot be downloaded.
unpack() {
	local suite=${suites[$version]} work
	work=$(readlink -f "$here/..")/${CARGO_TARGET_DIR:-target}/frr
	if [[ ! -e $work/$suite/root/.complete ]]; then
		heading "FRR $version"
		note "Debian's packages of FRR and of its libraries are downloaded and unpacked into $work/$suite/root." \
			"Nothing is installed."
	fi
	root=$(frr_root "$work" "$suite") || {
		printf '%s\n' "FRR of Debian $suite cannot be downloaded" >&2
		exit 77
	}
	# The archive may have a newer version than $version.
	release=$(chroot "$root" /usr/lib/frr/zebra --version | sed -n '1s/.* //p')
}

# frr NODE PROGRAM ARGUMENT...: runs a program of FRR on a node, in its folder. The mount ends with the program.
frr() {
	# shellcheck disable=SC2016 # the inner shell expands it
	on "$1" unshare --mount sh -c 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"' "$root" "${@:2}" </dev/null
}
vtysh() { frr "$1" /usr/bin/vtysh -N "$prefix-$1" -c "$2"; }

# start_frr NODE DAEMON...: starts the daemons with the configuration on standard input.
start_frr() {
	local node=$1 daemon name=$prefix-$1
	shift
	for daemon in run/frr etc/frr var/lib/frr; do
		rm -rf "${root:?}/$daemon/$name"
		mkdir -p "$root/$daemon/$name"
		chown 100:100 "$root/$daemon/$name"
	done
	touch "$root/etc/frr/$name/vtysh.conf"
	cat >"$root/etc/frr/$name/demo.conf"
	for daemon in mgmtd "${zebra[*]}" staticd "$@"; do
		# shellcheck disable=SC2086 # a program and its options
		frr "$node" /usr/lib/frr/$daemon -N "$name" -d >"$scratch/$node-frr.log" 2>&1 ||
			{ quote <"$scratch/$node-frr.log" && fail "$node: $daemon does not start"; }
	done
	load_configuration "$node"
}

# load_configuration NODE [DAEMON]: sends the configuration of a node to its programs of FRR, or to one of them.
load_configuration() {
	local name=$prefix-$1
	frr "$1" /usr/bin/vtysh -N "$name" ${2:+-d "$2"} -f "/etc/frr/$name/demo.conf" >"$scratch/$1-vtysh.log" 2>&1 ||
		{ quote <"$scratch/$1-vtysh.log" && fail "$1: FRR refuses its configuration"; }
}

# --- the configuration --------------------------------------------------------------------------
# configuration NODE CORE-PORTS [CUSTOMER-PORT LETTER OTHER-NODE OTHER-LETTER]: prints the configuration of a router.
configuration() {
	local n=${numbers[$1]} port other
	[[ $table == main ]] || echo 'fpm address 127.0.0.1 port 2620'
	cat <<-END
		hostname $1
		interface lo
		 ipv6 address fcbb:bbbb:a$n::1/128
		 ipv6 router isis core
		 isis passive
		exit
	END
	for port in $2; do
		printf '%s\n' "interface $port" ' ipv6 router isis core' ' isis network point-to-point' \
			' isis hello-interval 1' exit
	done
	cat <<-END
		segment-routing
		 srv6
		  encapsulation
		   source-address fcbb:bbbb:a$n::1
		  exit
		  locators
		   locator MAIN
		    prefix fcbb:bbbb:a$n::/48 block-len 32 node-len 16 func-bits 16
		    behavior usid
		   exit
		  exit
		 exit
		exit
		router isis core
		 is-type level-1
		 net 49.0000.0000.0000.000$n.00
		 topology ipv6-unicast
		 lsp-gen-interval 1
		 spf-interval 1
		 segment-routing srv6
		  locator MAIN
		  interface sr0
		 exit
		exit
	END
	[[ $# -gt 2 ]] || return 0
	other=${numbers[$5]}
	printf '%s\n' "interface $3" " ipv6 address 2001:db8:$4::1/64" exit
	if [[ $version == 10.7 ]]; then
		cat <<-END
			router bgp 65000
			 bgp router-id 10.0.0.$n
			 no bgp default ipv4-unicast
			 segment-routing srv6
			  locator MAIN
			 exit
			 neighbor fcbb:bbbb:a$other::1 remote-as 65000
			 neighbor fcbb:bbbb:a$other::1 update-source lo
			 neighbor fcbb:bbbb:a$other::1 timers connect 1
			 address-family ipv6 unicast
			  neighbor fcbb:bbbb:a$other::1 activate
			  neighbor fcbb:bbbb:a$other::1 encapsulation-srv6
			  network 2001:db8:$4$([[ $table == main ]] || echo :1)::/64
			  sid export auto
			 exit-address-family
			exit
		END
		[[ $table == main ]] || printf '%s\n' "ipv6 route 2001:db8:$4:1::/64 2001:db8:$4::2" \
			'router bgp 65000' ' bgp suppress-fib-pending' exit
	else
		cat <<-END
			segment-routing
			 srv6
			  static-sids
			   sid fcbb:bbbb:a$n:fe06::/64 locator MAIN behavior uDT6 vrf default
			  exit
			 exit
			exit
			ipv6 route 2001:db8:$6::/64 $2 segments fcbb:bbbb:a2:a$other:fe06::
		END
	fi
}

# --- the network --------------------------------------------------------------------------------
build() {
	local services='customer routes by BGP: H.Encaps, End.DT6'
	[[ $version == 10.7 ]] || services='static customer routes: H.Encaps by p, uDT6'
	heading "The network"
	nodes a b pe1 p pe2
	link a eth0 pe1 eth0 1500
	link pe1 eth1 p eth0 2000
	link p eth1 pe2 eth0 2000
	link pe2 eth1 b eth0 1500
	quote <<-END
		 host a              pe1                   p                    pe2            host b
		+------+      +-------------+       +-------------+      +-------------+      +------+
		|  eth0|------|eth0     eth1|=======|eth0     eth1|======|eth0     eth1|------|eth0  |
		+------+      +-------------+       +-------------+      +-------------+      +------+
		2001:db8:a::2  fcbb:bbbb:a1::/48    fcbb:bbbb:a2::/48    fcbb:bbbb:a3::/48  2001:db8:b::2
	END
	note "FRR $release runs on pe1, p and pe2: IS-IS with uSID locators (uN, uA), and $services." \
		"The routers have two sysctls and the interface sr0, which FRR needs for its SIDs. FRR configures the rest."
	for router in "${routers[@]}"; do
		configure "$router" <<-END
			sysctl -w net.ipv6.conf.all.forwarding=1 net.ipv4.ip_forward=1
			$(segment_device "$router")
		END
	done
	configure a <<-END
		ip address add 2001:db8:a::2/64 dev eth0
		ip route add default via 2001:db8:a::1
	END
	configure b <<-END
		ip address add 2001:db8:b::2/64 dev eth0
		ip route add default via 2001:db8:b::1
	END
	# XDP does not see the state of offloads. Without this, TCP between hosts hangs, and so does BGP between pe1
	# and pe2, whose hold timer then expires.
	for port in a:eth0 b:eth0 pe1:eth0 pe1:eth1 p:eth0 p:eth1 pe2:eth0 pe2:eth1; do
		on "${port%:*}" ethtool -K "${port#*:}" rx off tx off tso off gso off gro on >/dev/null
	done
	serve a
}

# wait_for ROUTER PATTERN: waits for a route in the kernel.
wait_for() {
	local began=$SECONDS
	until { on "$1" ip -6 route show && on "$1" ip route show; } | grep "$2" >/dev/null; do
		((SECONDS - began < patience)) || fail "$1: FRR installs no route '$2'"
		sleep 0.05
	done
}

# Prints the commands that create sr0. FRR expects a dummy interface. Without that driver, a veth
# replaces it.
segment_device() {
	if on "$1" ip link add dummy-probe type dummy 2>/dev/null; then
		on "$1" ip link delete dummy-probe
		echo 'ip link add sr0 up type dummy'
	else
		echo 'ip link add sr0 up type veth peer name sr0-peer'
		echo 'ip link set sr0-peer up'
	fi
}

control_plane() {
	local daemons=isisd began=$EPOCHREALTIME node
	heading "FRR $release: IS-IS, BGP and SRv6"
	[[ $version != 10.7 ]] || daemons='isisd bgpd'
	note "pe1's configuration of FRR (pe2 mirrors it, p has IS-IS only):"
	configuration pe1 eth1 eth0 a pe2 b | sed '/^ *exit$/d' | quote
	# shellcheck disable=SC2086 # one argument per daemon
	configuration pe1 eth1 eth0 a pe2 b | start_frr pe1 $daemons
	configuration p 'eth0 eth1' | start_frr p isisd
	# shellcheck disable=SC2086
	configuration pe2 eth0 eth1 b pe1 a | start_frr pe2 $daemons
	for node in pe1:b pe2:a; do
		until on "${node%:*}" ip -6 route show table $table | grep -q "^2001:db8:${node#*:}:.* encap seg6 " &&
			on "${node%:*}" ip -6 route get "fcbb:bbbb:a$((4 - numbers[${node%:*}]))::1" >/dev/null 2>&1; do
			((${EPOCHREALTIME%.*} - ${began%.*} < 120)) || fail "${node%:*}: FRR installed no route to the customer ${node#*:}"
			sleep 0.2
		done
	done
	ok "FRR converged $(awk '{ printf "%.0f", $1 - $2 }' <<<"$EPOCHREALTIME $began") s after its start"
	look pe1 "ip -6 route show table $table proto isis"
	look pe1 "ip -6 route show table $table proto bgp"
	look p "ip -6 route show table $table proto isis"
}

# Adds two customer prefixes behind pe2 that pe1 reaches by the SIDs of p: one by uN, one by uA toward pe2. The uA is
# static: that of IS-IS in FRR 10.7 has the length of a uN (nflen 16), and needs a container that begins with it.
engineered() {
	local address function
	heading "Two more customer prefixes, by segments of p"
	note "2001:db8:b:1::/64 uses the uN of p, and 2001:db8:b:2::/64 a uA of p toward pe2."
	address=$(on pe2 ip -6 -br address show dev eth0 scope link | sed 's|.*\(fe80[^/]*\)/.*|\1|')
	configure_frr p <<-END
		segment-routing
		 srv6
		  static-sids
		   sid fcbb:bbbb:a2:fe02::/64 locator MAIN behavior uA interface eth1 nexthop $address
	END
	wait_for p '^fcbb:bbbb:a2:fe02::/64 .*End.X'
	segments=(fcbb:bbbb:a2: fcbb:bbbb:a2:fe02:)
	configure b <<-END
		ip address add 2001:db8:b:1::2/64 dev eth0
		ip address add 2001:db8:b:2::2/64 dev eth0
	END
	configure_frr pe2 <<-END
		interface eth1
		 ipv6 address 2001:db8:b:1::1/64
		 ipv6 address 2001:db8:b:2::1/64
	END
	# The SID that BGP has allocated on pe2.
	function=$(on pe1 ip -6 route show 2001:db8:b::/64 | sed -n 's|.*fcbb:bbbb:a3:\([0-9a-f]*\)::.*|\1|p' | head -n1)
	configure_frr pe1 <<-END
		ipv6 route 2001:db8:b:1::/64 eth1 segments fcbb:bbbb:a2:a3:$function::
		ipv6 route 2001:db8:b:2::/64 eth1 segments fcbb:bbbb:a2:fe02:a3:$function::
	END
	wait_for pe1 '^2001:db8:b:1::/64 .*encap seg6'
	wait_for pe1 '^2001:db8:b:2::/64 .*encap seg6'
}
segments=()

# configure_frr ROUTER: prints the lines of FRR's configuration on standard input, and applies them.
configure_frr() {
	local lines
	lines=$(cat)
	note "FRR's configuration on $1, in addition:"
	quote <<<"$lines"
	vtysh "$1" "configure
$lines" >"$scratch/output" || { quote <"$scratch/output" && fail "$1: FRR refuses its configuration"; }
}

# by_fpm: pe1 takes FRR's routes from zebra by FPM.
by_fpm() {
	local began=$SECONDS
	heading "FRR's routes by FPM"
	note "zebra also sends its routes to a socket of Sidestep (Forwarding Plane Manager). They precede those of the kernel."
	configure_frr pe1 <<<'fpm address 127.0.0.1 port 2620'
	show pe1 "sidestep run --mode $mode --detach --fpm eth0 eth1"
	until on pe1 "$sidestep" route show | grep '^fpm  *2001:db8:b::/64 ' >/dev/null; do
		((SECONDS - began < patience)) || fail "pe1: zebra sends no route to 2001:db8:b::/64"
		sleep 0.1
	done
	look pe1 "sidestep show fpm"
	look pe1 "sidestep route show"
	ping_from a 2001:db8:b::2
	forwarded_by_sidestep pe1
	show pe1 "sidestep stop"
}

# --- the checks ---------------------------------------------------------------------------------
# Prints the reasons for which a router punted packets that are not control traffic, with the numbers of packets.
punts() {
	on "$1" "$sidestep" show drops -j | python3 -c '
import json, sys
for row in json.load(sys.stdin):
    if row["packets"] and row["verdict"] == "punt" and row["name"] not in sys.argv[1].split():
        print(row["name"], row["packets"])' "$control_reasons"
}

# used ROUTER PREFIX: fails unless packets have used the SID whose prefix begins like this.
used() {
	local packets
	packets=$(on "$1" "$sidestep" route show -j | python3 -c '
import json, sys
rows = [row for row in json.load(sys.stdin) if row["prefix"].startswith(sys.argv[1] + ":/") and "seg6local" in row["route"]]
print(sum(row["packets"] for row in rows))' "$2")
	((packets >= 10)) || fail "$1: the SID $2: processed $packets packets"
	ok "$1: the SID $2: processed $packets packets"
}

# Fails if Sidestep punted other packets than control traffic.
control_traffic_only() {
	local router list
	for router in "${routers[@]}"; do
		list=$(punts "$router")
		[[ -z $list ]] || fail "$router: Sidestep punted more than control traffic: $list"
	done
	ok "Sidestep forwarded every SRv6 packet. It punted only control traffic (IS-IS, BGP, neighbor discovery)."
}
