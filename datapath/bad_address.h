/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Packets that the readers refuse (read/ip.h), although the kernel would process them: addresses
 * that are never forwarded (RFC 4291 2.5, 2.7, RFC 1812 5.3.7), and jumbograms (RFC 2675). Also
 * packets of a port that does not forward.
 */
#ifndef SIDESTEP_BAD_ADDRESS_H
#define SIDESTEP_BAD_ADDRESS_H

#include "route_select.h"

/* Punts before the lookup that leave the packet to the kernel only if the route is the kernel's. */
INLINE _Bool is_refused(verdict v)
{
	return v == punt(link_local) || v == punt(bad_source) || v == punt(jumbogram) ||
	       v == punt(forwarding_off);
}

/*
 * Decides a packet that its reader punts, by the route of its destination. The kernel gets it if
 * the route is the kernel's and no SRv6 behavior. Linux checks an IPv6 source where it forwards
 * (ip6_forward), unless the packet leaves by its ingress interface. It checks nothing at headends
 * and SIDs.
 */
SUBPROGRAM verdict refused_verdict(ENV *e, struct packet *p, verdict v)
{
	const struct sidestep_route *r;
	_Bool own, srv6;
	__u32 index;

	/* Linux looks up a link-local destination on its link only. */
	if (!p || !is_refused(v) || (p->version == 6 && ipv6_is_link_local(p->destination)))
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
	own = (r->flags & SIDESTEP_ROUTE_SIDESTEP_ONLY) != 0;
	srv6 = own || r->action == SIDESTEP_ROUTE_HEADEND || r->action >= SIDESTEP_ROUTE_END;
	if (v == punt(forwarding_off)) {
		if (!own)
			return v;
		v = drop(kernel_only);
	} else if (v == punt(jumbogram)) {
		/* Linux segments a frame of GSO behind its own routes. */
		if (!own && (!srv6 || env_segment_size(e)))
			return v;
		v = env_segment_size(e) ? drop(segmentation) : drop(ipv6_length);
	} else {
		if (!srv6 && (r->action != SIDESTEP_ROUTE_FORWARD || v == punt(link_local) ||
			      p->version == 4))
			return v;
		v = drop(bad_address);
	}
	if (r->counter)
		p->visited[0] = r->counter;
	p->visits = 1;
	return v;
}

#endif
