/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The reverse path filter (RFC 3704) for IPv4 sources, as net.ipv4.conf.IF.rp_filter configures it.
 */
#ifndef SIDESTEP_REVERSE_PATH_H
#define SIDESTEP_REVERSE_PATH_H

#include "lookup.h"

/* Looks up the source. A packet that fails is punted, and the kernel repeats the check. */
SUBPROGRAM verdict reverse_path(ENV *e, struct packet *p)
{
	const struct sidestep_adjacency *adjacency;
	const struct sidestep_policy *policy;
	const struct sidestep_route *route;
	__u32 index, hop;
	const __u8 *ip;

	if (!p)
		return punt(unsupported);
	ip = env_bytes(e, p->l3, IPV4_LENGTH);
	if (!ip)
		return punt(reverse_path);
	index = env_fib_lookup(e, p->view4, reverse_key(ip).destination);
	route = env_route(e, index);
	if (route && unlikely(route_is_indirect(route)))
		route = env_route(e, lookup_indirect(e, p, index, 1));
	if (!route ||
	    (route->action != SIDESTEP_ROUTE_FORWARD && route->action != SIDESTEP_ROUTE_GROUP &&
	     route->action != SIDESTEP_ROUTE_HEADEND))
		return punt(reverse_path);
	if (!(p->port_flags & SIDESTEP_PORT_RPF_STRICT))
		return VERDICT_CONTINUE;
	hop = route->adjacency;
	if (route->action == SIDESTEP_ROUTE_HEADEND) {
		policy = env_policy(e, route->policy);
		hop = policy ? policy->adjacency : 0;
	}
	adjacency = env_adjacency(e, hop);
	return adjacency && adjacency->ifindex == env_ifindex(e) ? VERDICT_CONTINUE :
								   punt(reverse_path);
}

/* Runs before the packet is sent, and before a push makes this node its source. */
INLINE verdict check_source(ENV *e, struct packet *p)
{
	if (!p->check_source ||
	    likely(!(p->port_flags & (SIDESTEP_PORT_RPF_LOOSE | SIDESTEP_PORT_RPF_STRICT))))
		return VERDICT_CONTINUE;
	return reverse_path(e, p);
}

#endif
