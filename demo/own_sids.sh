# SIDs that Sidestep has and Linux has not, in the locators that FRR announces: End.DT46 in table main, End.AD. Static
# routes of FRR lead to them. Needs lib.sh, line.sh and frr.sh. docs/howto/frr-own-sids.md has the same commands.
# shellcheck shell=bash disable=SC2154 # variables of lib.sh

# Prints the configuration of FRR on a router that leads to the SIDs.
own_configuration() {
	case $1 in
	pe1) cat <<-'END'
		interface eth0
		 ip address 10.0.1.1/24
		exit
		ip route 10.0.2.0/24 eth1 segments fcbb:bbbb:a2:a3:fe46::
		ipv6 route 2001:db8:b::/64 eth1 segments fcbb:bbbb:a2:fead::/fcbb:bbbb:a3:fe46::
	END
	;;
	p) cat <<-'END'
		interface svc0
		 ipv6 address 2001:db8:f::1/64
	END
	;;
	pe2) cat <<-'END'
		interface eth1
		 ip address 10.0.2.1/24
		exit
		ip route 10.0.1.0/24 eth0 segments fcbb:bbbb:a2:a1:fe46::
	END
	;;
	esac
}

own_sids() {
	local node
	heading "SIDs that Linux lacks, in the locators that FRR announces"
	note "End.DT46 without a VRF, for IPv4 and IPv6, on pe1 and pe2. End.AD on p, with the service fw behind it." \
		"FRR announces the locators, and its static routes lead to the SIDs."
	start
	nodes fw
	link p svc0 fw eth0 1500
	on p ethtool -K svc0 rx off tx off tso off gso off gro on >/dev/null
	on fw ethtool -K eth0 rx off tx off tso off gso off gro on >/dev/null
	configure fw <<-END
		ip address add 2001:db8:f::2/64 dev eth0
		ip route add default via 2001:db8:f::1
		sysctl -w net.ipv6.conf.all.forwarding=1
	END
	configure a <<-END
		ip address add 10.0.1.2/24 dev eth0
		ip route add default via 10.0.1.1
	END
	configure b <<-END
		ip address add 10.0.2.2/24 dev eth0
		ip route add default via 10.0.2.1
	END
	configure pe1 <<-END
		sidestep route add fcbb:bbbb:a1:fe46::/64 encap seg6local action End.DT46 table main dev eth1
	END
	configure pe2 <<-END
		sidestep route add fcbb:bbbb:a3:fe46::/64 encap seg6local action End.DT46 table main dev eth0
	END
	configure p <<-END
		sidestep port add svc0
		sidestep route add fcbb:bbbb:a2:fead::/64 encap seg6local action End.AD oif svc0 nh6 2001:db8:f::2 dev svc0
	END
	for node in "${routers[@]}"; do
		own_configuration "$node" | configure_frr "$node"
	done
	wait_for pe1 '^2001:db8:b::/64 .*fead'
	wait_for pe1 '^10.0.2.0/24 .*encap seg6'
	wait_for pe2 '^10.0.1.0/24 .*encap seg6'
	ping_from a 10.0.2.2
	ping_from a 2001:db8:b::2
	for node in pe1:fcbb:bbbb:a1:fe46: p:fcbb:bbbb:a2:fead: pe2:fcbb:bbbb:a3:fe46:; do used "${node%%:*}" "${node#*:}"; done
}
