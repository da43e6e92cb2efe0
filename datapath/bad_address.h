/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Packets with addresses that are never forwarded (RFC 4291 2.5, 2.7, RFC 1812 5.3.7). */
#ifndef SIDESTEP_BAD_ADDRESS_H
#define SIDESTEP_BAD_ADDRESS_H

#include "route_select.h"

/*
 * Decides a packet with an address that is never forwarded (read/ip.h). It is punted if it is for
 * this node. Linux checks an IPv6 source where it forwards (ip6_forward), unless the packet leaves
 * by its ingress interface. It does not check it at headends and SIDs.
 */
SUBPROGRAM verdict address_verdict(ENV *e, struct packet *p, verdict v)
{
	const struct sidestep_route *r;
	const __u8 *ip;
	__u32 index;

	/* Linux looks up a link-local destination on its link only. */
	if (!p || (v != punt(link_local) && v != punt(bad_source)) ||
	    (p->version == 6 && ipv6_is_link_local(p->destination)))
		return v;
	index = env_fib_lookup(e, p->view, p->destination);
	env_trace(e, SIDESTEP_TRACE_LOOKUP, p->view, index, p->destination);
	p->visited[0] = 0;
	r = env_route(e, index);
	if (!index || !r)
		return v;
	index = route_select(e, p, r, index, &p->visited[0]);
	r = env_route(e, index);
	if (!index || !r)
		return v;
	if (r->action != SIDESTEP_ROUTE_HEADEND && r->action < SIDESTEP_ROUTE_END &&
	    (r->action != SIDESTEP_ROUTE_FORWARD || v == punt(link_local) || p->version == 4))
		return v;
	ip = env_bytes(e, p->l3, IPV4_LENGTH);
	if (p->version == 4 && ip && ipv4_is_class_e(load32(ip + IPV4_SOURCE)))
		return v;
	if (r->counter)
		p->visited[0] = r->counter;
	p->visits = 1;
	return drop(bad_address);
}

#endif
