# Three routers in a line between hosts a and b: start and stop of Sidestep, rates, the path of one
# packet, counters. Needs lib.sh.
# shellcheck shell=bash disable=SC2034,SC2154 # variables of lib.sh and of the scripts
routers=(pe1 p pe2)
size=78 # bytes of a frame without FCS: UDP over IPv6 with room for the stamp of the generator

# Sets rate_xdp and rate_tc, in packets per second. Without an XDP program on pe1, its veth accepts no
# XDP redirects from the generator. At this interface the meter attaches
# a program that passes every packet.
via=("$prefix-pe1:eth0")
rate() {
	local frame
	[[ -n $meter ]] || return 0
	frame=$(frame)
	"$meter" "$prefix-a:eth0" "$prefix-b:eth0" "$frame" "$@" 8>&- 9>&- >"$scratch/rate" || fail "sidestep-rate"
	rate_xdp=$(sed -n 's/^xdp //p' "$scratch/rate") rate_tc=$(sed -n 's/^tc //p' "$scratch/rate")
	ok "$size-byte UDP packets a > b, one flow, counted at b: $(mpps "$rate_xdp") in XDP," \
		"$(mpps "$rate_tc") at TC ingress"
}
mpps() { awk '{ printf "%.2f Mpps", $1 / 1e6 }' <<<"$1"; }
better() { printf '%s\n' "$@" | sort -g | tail -n1; }
frame() { "$here/frame.py" udp "$(mac pe1 eth0)" "$(mac a eth0)" 2001:db8:a::2 2001:db8:b::2 $size; }

# Starts Sidestep on the routers, with the options in `options`, in `mode` or else in the best one. Ports of a router
# that is not in `ports_of` are eth0 and eth1.
options=()
mode=''
declare -A ports_of=()
start() {
	local router ports
	[[ -n $mode ]] || choose_mode
	for router in "${routers[@]}"; do
		ports=${ports_of[$router]:-eth0 eth1}
		show "$router" "sidestep run --mode $mode --detach ${options[*]}${options[*]:+ }$ports"
		[[ $(on "$router" "$sidestep" show ports -j | grep -c "\"target\": \"${mode%-always}\"") == $(wc -w <<<"$ports") ]] ||
			fail "$router: not all ports are attached in mode $mode"
	done
}

choose_mode() {
	mode=xdp-always
	# Linux 6.3 is the first version that reports which veth accepts XDP redirects (xdp_features).
	printf '6.3\n%s\n' "$(uname -r)" | sort -VC || {
		mode=tc
		note "The mode is TC, not XDP: only Linux 6.3 and later report which veth accepts XDP redirects."
	}
}

stop() { for router in "${routers[@]}"; do show "$router" "sidestep stop"; done; }

# Explains one frame on each router, then sends it. Host b must receive the explained frame.
explain() {
	local frame router answer arrivals
	heading "The path of one packet: \`sidestep explain\` on each router"
	frame=$(frame)
	style 1 "  host a sends" && "$here/frame.py" headers "$frame" | wrap 4 4
	for router in "${routers[@]}"; do
		style 1 "  $router"
		on "$router" "$sidestep" explain --port eth0 --frame "$frame" | quote
		frame=$(on "$router" "$sidestep" explain --port eth0 --frame "$frame" -j |
			python3 -c 'import json, sys; print(json.load(sys.stdin)["frame"])')
	done
	style 1 "  host b receives" && "$here/frame.py" headers "$frame" | wrap 4 4
	exec {arrivals}< <(on b "$here/frame.py" expect eth0 "$frame")
	read -r answer <&$arrivals
	on a "$here/frame.py" send eth0 "$(frame)"
	read -r answer <&$arrivals
	exec {arrivals}<&-
	[[ $answer == equal ]] || fail "host b: $answer"
	ok "host a sent the packet, and exactly these bytes arrived at host b"
}

counters() {
	heading "The counters"
	for router in "${routers[@]}"; do
		look "$router" "sidestep show counters"
		look "$router" "sidestep show drops"
		printf '\n'
	done
}

side_by_side() {
	local linux sidestep ratio
	[[ -n $meter ]] || return 0
	heading "Side by side"
	linux=$(better "${before[@]}" "${after[@]}") sidestep=$(better "${with[@]}")
	ratio=$(awk '{ printf "%.1f times", $1 / $2 }' <<<"$sidestep $linux")
	awk -v size=$size -v ratio="$ratio" '{
		row = "  %-41s %12s %10s %10s\n"
		printf row, "", "Linux alone", "Sidestep", "ratio"
		printf row, size "-byte packets a > b, per second", sprintf("%.2f Mpps", $1 / 1e6), sprintf("%.2f Mpps", $2 / 1e6), ratio
		printf row, "one packet, with generator and sink", sprintf("%.0f ns", 1e9 / $1), sprintf("%.0f ns", 1e9 / $2), ratio
	}' <<<"$linux $sidestep"
	note "One CPU runs the generator, three routers and the sink. Each data plane gets the better of the two" \
		"places to count at host b, and the best of several trials. Linux also gets the better of before and after."
	result+="Sidestep $(mpps "$sidestep"), Linux alone $(mpps "$linux"): $ratio. "
}
