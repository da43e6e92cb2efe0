# Helpers for the demos: output, nodes and links, printed commands, checks, cleanup.
# A node is the network namespace ss-demo-NODE. A failed command or check ends the demo.
# shellcheck shell=bash
set -Eeuo pipefail
PATH=$PATH:/usr/sbin:/sbin
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
target=${CARGO_TARGET_DIR:-target}
[[ $target == /* ]] || target=$here/../$target
prefix=ss-demo
width=100
keep=''
scratch=/run/$prefix # in memory
command='./dev demo'
sidestep=''
meter=''
result=''

# --- output -------------------------------------------------------------------------------------
if [[ -t 1 && -z ${NO_COLOR+set} && ${TERM:-dumb} != dumb ]]; then
	style() { printf '\e[%sm%s\e[0m\n' "$1" "$2"; }
else
	style() { printf '%s\n' "$2"; }
fi

# wrap INDENT HANG: breaks lines at spaces; a continuation line is indented by HANG more columns.
wrap() {
	awk -v width="$width" -v indent="$1" -v hang="$2" '
		function pad(columns) { return sprintf("%" columns "s", "") }
		{
			line = pad(indent) $0
			match(line, /^ */)
			more = pad(RLENGTH + hang)
			while (length(line) > width) {
				for (cut = width + 1; cut > length(more) && substr(line, cut, 1) != " "; cut--);
				if (cut <= length(more)) break
				head = substr(line, 1, cut - 1)
				sub(/ +$/, "", head)
				print head
				line = substr(line, cut)
				sub(/^ +/, more, line)
			}
			sub(/ +$/, "", line)
			print line
		}'
}

styled() { while IFS= read -r line; do style "$1" "$line"; done; }
title() { style 1 "$1" && style 2 "${1//?/=}"; }
heading() {
	local rule
	printf -v rule '%*s' "$((width - ${#1} - 4))" ''
	printf '\n' && style '1;36' "-- $1 ${rule// /-}"
}
note() { wrap 2 0 <<<"$*" | styled 2; }
ok() { wrap 2 4 <<<"ok  $*" | styled 32; }
quote() { wrap 2 4; }
fail() {
	printf '\n' && style '1;31' "the demo failed: $*"
	exit 1
}

# --- beginning and end --------------------------------------------------------------------------
# begin USAGE ARGUMENT...: reads the options, finds the programs, and removes an earlier network.
begin() {
	local usage=$1 argument clean=''
	shift
	for argument; do
		case $argument in
		--keep) keep=yes ;;
		--clean) clean=yes ;;
		-h | --help) printf '%s\n' "$usage" && exit 0 ;;
		*) printf '%s: unknown argument\n%s\n' "$argument" "$usage" >&2 && exit 2 ;;
		esac
	done
	[[ -z $keep || -z $clean ]] || { printf '%s\n' "--keep and --clean exclude each other" >&2 && exit 2; }
	[[ $EUID -eq 0 ]] || { printf '%s\n' "the demo needs root: it creates network namespaces" >&2 && exit 2; }
	lock=/run/$prefix.lock
	exec 9>"$lock"
	# Not the same file: the demo that held the lock has just ended and removed its file.
	{ flock -n 9 && [[ /dev/fd/9 -ef $lock ]]; } || { printf '%s\n' "another demo is running" >&2 && exit 2; }
	trap 'rm -f "$lock"' EXIT
	sidestep=$(program "${SIDESTEP-}" sidestep)
	# shellcheck disable=SC2034 # used by demo/line.sh
	meter=$target/debug/sidestep-rate
	[[ -x $meter ]] || meter=''
	if [[ -n $clean ]]; then
		remove
		printf '%s\n' "the network of the demo is removed"
		exit 0
	fi
	[[ -n $sidestep ]] || { printf '%s\n' "sidestep is not built: run ./dev build" >&2 && exit 2; }
	# A signal may arrive while the output of a function goes elsewhere.
	exec 8>&1
	trap 'failed=$BASH_COMMAND' ERR
	trap finish EXIT
	trap 'exit 130' INT TERM HUP
	remove
	mkdir "$scratch"
	title "Sidestep: an SRv6 data plane for an unmodified Linux kernel"
}

# program PATH NAME: prints the first that exists: PATH, the built program NAME, the installed one.
program() {
	local path
	for path in "$1" "$target/release/$2" "$(command -v "$2")"; do
		if [[ -x $path ]]; then readlink -f "$path" && return; fi
	done
}

# Runs at exit. The network is removed unless the demo succeeded with --keep.
finish() {
	local status=$?
	trap '' INT TERM HUP
	exec >&8
	if [[ -n $keep && $status -eq 0 ]]; then
		heading "The network stays"
		entry | quote
		note "\`$command --clean\` removes it, and so does the next \`$command\`."
	else
		remove
	fi
	rm -f "$lock"
	case $status in
	0) printf '\n' && style 1 "$result" ;;
	130) printf '\n' && style '1;31' "interrupted; the network has been removed" ;;
	1) [[ -z ${failed-} ]] || style '1;31' "failed: $failed" ;;
	esac
	exit "$status"
}

# Removes the network. Sidestep stops first, because it detaches its programs and removes its pins. A program that
# does not end is killed: zebra with its module for FPM may wait for itself.
remove() {
	local name pids deadline
	for name in $(ip netns list | awk -v prefix="$prefix-" 'index($1, prefix) == 1 { print $1 }'); do
		[[ -z $sidestep ]] || nsenter --net="/run/netns/$name" "$sidestep" stop >/dev/null 2>&1 || true
		deadline=$((SECONDS + 5))
		while ((SECONDS < deadline + 5)) && pids=$(ip netns pids "$name") && [[ -n $pids ]]; do
			# shellcheck disable=SC2086 # one argument per process
			if ((SECONDS < deadline)); then kill $pids; else kill -KILL $pids; fi 2>/dev/null || true
			sleep 0.1
		done
		ip netns delete "$name"
	done
	rm -rf "$scratch"
}

# --- the network --------------------------------------------------------------------------------
# on NODE COMMAND...: executes a command in the network namespace of a node. A program that outlives
# the demo must not hold its lock.
on() { nsenter --net="/run/netns/$prefix-$1" "${@:2}" 8>&- 9>&-; }

# show NODE COMMAND: prints a shell command and executes it on a node.
show() {
	printf '%-4s# %s\n' "$1" "$2" | quote
	on "$1" bash -c "PATH=$PATH; sidestep() { '$sidestep' \"\$@\"; }; $2" >"$scratch/output" 2>&1 ||
		{ quote <"$scratch/output" && fail "$1: $2"; }
}

# look NODE COMMAND: executes a command on a node, and prints the command and its output.
look() { show "$@" && sed '/./,$!d' "$scratch/output" | quote; }

# configure NODE: executes the commands on standard input, one per line.
configure() {
	local command
	printf '\n'
	while read -r command <&3; do show "$1" "$command"; done 3<&0
}

# nodes NODE...: creates a namespace for each node. Duplicate address detection would delay the
# addresses.
nodes() {
	local node default=net.ipv6.conf.default
	for node; do
		number[$node]=$((${#number[@]} + 1))
		ip netns add "$prefix-$node"
		on "$node" sysctl -q -w $default.accept_dad=0 $default.dad_transmits=0 \
			$default.router_solicitations=0 $default.accept_ra=0 net.ipv4.conf.default.send_redirects=0
		on "$node" ip link set lo up
	done
}
declare -A number=()

# mac NODE PORT: the address of eth0 ends in 1, of eth1 in 2, of svc0 in 11, of svc1 in 12.
mac() {
	local port=${2#eth}
	port=${port/svc/1}
	printf '02:53:53:00:%02x:%02x' "${number[$1]}" $((port + 1))
}

# link NODE PORT NODE PORT MTU: joins two nodes by a veth pair.
link() {
	on "$1" ip link add "$2" mtu "$5" address "$(mac "$1" "$2")" type veth \
		peer name "$4" mtu "$5" address "$(mac "$3" "$4")" netns "$prefix-$3"
	on "$1" ip link set "$2" up
	on "$3" ip link set "$4" up
	until on "$1" ip -br link show dev "$2" | grep -q ' UP '; do sleep 0.05; done
	until on "$3" ip -br link show dev "$4" | grep -q ' UP '; do sleep 0.05; done
}

# router PORT,PORT...: prints the commands that make a node an SRv6 router.
router() {
	printf '%s\n' 'sysctl -w net.ipv6.conf.all.forwarding=1 net.ipv4.ip_forward=1' \
		"sysctl -w net.ipv6.conf.{all,$1}.seg6_enabled=1" "sysctl -w net.ipv4.conf.{all,$1}.rp_filter=0"
}

# host LETTER NUMBER: prints the commands of host a (1) or b (2).
host() {
	printf '%s\n' "ip address add 2001:db8:$1::2/64 dev eth0" "ip address add 10.0.$2.2/24 dev eth0" \
		"ip route add default via 2001:db8:$1::1" "ip route add default via 10.0.$2.1"
}

# Linux implements End.DT4 only with a VRF device. Without VRF devices the demos use End.DX4.
choose_decapsulation4() {
	if on pe2 ip link add customer type vrf table 100 2>/dev/null; then
		on pe2 ip link delete customer
		decap4=End.DT4
	else
		decap4=End.DX4
	fi
}

# edge OWN OTHER LETTER NUMBER TO-CUSTOMER TO-CORE ADDRESS NEXT-HOP SEGMENTS6 SEGMENTS4: prints the
# commands of a provider edge with locator fc00:OWN::/48 and the customer LETTER, NUMBER.
edge() {
	local own=$1 other=$2 letter=$3 n=$4 customer=$5 core=$6 address=$7 next=$8 segs6=$9 segs4=${10}
	local far=$((3 - n)) letters=ab
	router eth0,eth1
	cat <<-END
		ip address add 2001:db8:$letter::1/64 dev $customer
		ip address add 10.0.$n.1/24 dev $customer
		ip address add $address dev $core
		ip address add fc00:$own::1/128 dev lo
		ip sr tunsrc set fc00:$own::1
		ip route add fc00:2::/48 via $next dev $core
		ip route add fc00:$other::/48 via $next dev $core
		ip route add 2001:db8:${letters:far-1:1}::/64 encap seg6 mode encap segs $segs6,fc00:$other::d6 dev $core
		ip route add 10.0.$far.0/24 encap seg6 mode encap segs $segs4,fc00:$other::d4 dev $core
		ip route add fc00:$own::d6/128 encap seg6local action End.DT6 table 254 dev $core
	END
	if [[ $decap4 == End.DX4 ]]; then
		echo "ip route add fc00:$own::d4/128 encap seg6local action End.DX4 nh4 10.0.$n.2 dev $core"
	else
		cat <<-END
			sysctl -w net.vrf.strict_mode=1
			ip link add customer type vrf table 100
			ip link set customer up
			ip route add 10.0.$n.0/24 dev $customer table 100
			ip route add fc00:$own::d4/128 encap seg6local action End.DT4 vrftable 100 dev customer
		END
	fi
}

# --- traffic ------------------------------------------------------------------------------------
# ping_from NODE ADDRESS: sends 10 echo requests; each needs a reply.
ping_from() {
	local output
	# The first echo request resolves the neighbors on every link.
	on "$1" ping -n -q -c 1 -w 5 "$2" >/dev/null || fail "ping $2 from $1: no reply"
	output=$(on "$1" ping -n -c 10 -i 0.02 -W 1 "$2") || fail "ping $2 from $1: $output"
	[[ $output == *' 10 received'* ]] || fail "ping $2 from $1: $output"
	ok "ping $1 > $2: 10 of 10 answered, $(sed -n 's|^rtt.* = [^/]*/\([^/]*\)/.*|\1|p' <<<"$output") ms," \
		"hop limit $(sed -n '2s/.*ttl=\([0-9]*\).*/\1/p' <<<"$output") on return"
}

# Echo requests on the way, so that a packet lost in either direction counts.
# start_flow NODE ADDRESS [PREFIXES]: flow.py describes the arguments.
start_flow() {
	mkfifo "$scratch/ask" "$scratch/answer"
	# Not by `on`, so that $! is its own process.
	nsenter --net="/run/netns/$prefix-$1" "$here/flow.py" "${@:2}" <"$scratch/ask" >"$scratch/answer" 8>&- 9>&- &
	# shellcheck disable=SC2034 # used by the scripts
	flow=$!
	disown
	exec {ask}>"$scratch/ask" {answer}<"$scratch/answer"
}

sent=0 lost=0 silent=0
# Adds the packets since the last call to sent and lost. Status 1: some of them were lost.
count_packets() {
	local more missing gap
	echo >&"$ask"
	read -r more missing gap <&"$answer"
	sent=$((sent + more)) lost=$((lost + missing)) silent=$((gap > silent ? gap : silent))
	((missing == 0))
}

# serve NODE...: each node serves 64 MiB of random bytes over HTTP, port 80.
serve() {
	local node
	head -c 64M /dev/urandom >"$scratch/data"
	for node; do
		(cd "$scratch" && exec nsenter --net="/run/netns/$prefix-$node" \
			python3 -m http.server --bind :: 80) >/dev/null 2>&1 8>&- 9>&- &
		disown # its end is not reported
		until on "$node" ss -Hltn 'sport = :80' | grep -q .; do sleep 0.05; done
	done
}

# transfer FROM TO ADDRESS...: TO downloads the data from FROM, and compares every byte.
transfer() {
	local from=$1 to=$2 address speed errors
	for address in "${@:3}"; do
		errors=$(checksum_errors "$to")
		speed=$(download "$to" "$address" 60) || fail "TCP $from > $to from $address: bytes are missing or differ"
		ok "TCP $from > $to, $address: 64 MiB, every byte compared at $to, $speed MiB/s," \
			"$(($(checksum_errors "$to") - errors)) checksum errors"
	done
}

# download NODE ADDRESS SECONDS: prints the speed in MiB/s.
download() {
	[[ $2 != *:* ]] || set -- "$1" "[$2]" "$3"
	on "$1" curl -s --max-time "$3" -w '%{stderr}%{speed_download}' "http://$2/data" 2>"$scratch/speed" |
		cmp -s - "$scratch/data" && awk '{ printf "%.0f\n", $1 / 1048576 }' "$scratch/speed"
}

checksum_errors() { on "$1" nstat -asz TcpInCsumErrors | awk '/^TcpInCsumErrors/ { print $2 }'; }

# forwarded_by_sidestep ROUTER...: checks that Sidestep forwarded the packets, and not the kernel.
forwarded_by_sidestep() {
	local router received forwarded kernel dropped all=()
	for router; do
		read -r received forwarded kernel dropped < <(on "$router" "$sidestep" show counters -j | python3 -c \
			'import json, sys; ports = json.load(sys.stdin)["ports"]; keys = sys.argv[1:]
print(*(sum(port[key] for port in ports) for key in keys))' received_packets forwarded punted dropped)
		((received == forwarded + kernel + dropped)) || fail "$router: the counters do not add up"
		((forwarded * 2 >= received)) || fail "$router: Sidestep forwarded only $forwarded of $received packets"
		all+=("$router $forwarded of $received")
	done
	printf -v counts '%s, ' "${all[@]}"
	ok "forwarded by Sidestep, not by the kernel: ${counts%, } packets"
}
