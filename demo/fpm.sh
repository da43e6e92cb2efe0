# FRR without the kernel: zebra installs its routes in table 100, which Linux uses for the router's own packets only.
# Sidestep forwards, from before FRR starts: it carries the session of iBGP between the loopback addresses, too. Needs
# lib.sh, line.sh and frr.sh. docs/howto/fpm.md has the same commands.
# shellcheck shell=bash disable=SC2034,SC2154 # variables of lib.sh and of the scripts
table=100
zebra+=(-R 100 --asic-offload=notify_on_offload) options=(--fpm --fpm-reply)

# The hosts have addresses behind themselves, so that each is a next hop of the customer's routes.
without_kernel() {
	local router
	heading "Sidestep instead of the kernel"
	note "Linux looks table 100 up for the packets of the router itself, and Sidestep for the others." \
		"Linux forwards nothing between the routers."
	for router in "${routers[@]}"; do
		configure "$router" <<-END
			ip rule add iif lo lookup 100 priority 32765
			ip -6 rule add iif lo lookup 100 priority 32765
		END
	done
	start
	for router in "${routers[@]}"; do show "$router" 'sidestep rule add lookup 100 priority 32765'; done
	configure a <<-END
		ip address add 2001:db8:a:1::2/128 dev lo
		ip route replace default via 2001:db8:a::1 src 2001:db8:a:1::2
	END
	configure b <<-END
		ip address add 2001:db8:b:1::2/128 dev lo
		ip route replace default via 2001:db8:b::1 src 2001:db8:b:1::2
	END
}

crossed_without_kernel() {
	local router
	heading "Traffic"
	for router in pe1 pe2; do
		vtysh "$router" 'show bgp summary json' | grep -q '"state":"Established"' ||
			fail "$router: no session of BGP"
	done
	ok "iBGP between the loopback addresses of pe1 and pe2 is established, through p"
	for router in pe1 pe2; do
		vtysh "$router" 'show ipv6 route bgp' | grep -q '^B>\*' || fail "$router: zebra knows of no installed route"
	done
	ok "zebra knows that Sidestep has the customer routes; BGP advertises no route before that"
	look pe1 'sidestep show fpm'
	look pe1 'sidestep route show'
	ping_from a 2001:db8:b:1::2
	show p 'sidestep stop'
	if on a ping -c 1 -W 1 2001:db8:b:1::2 >/dev/null; then fail "Linux forwards on p"; fi
	ok "without Sidestep on p, no packet arrives: Linux does not forward"
}
