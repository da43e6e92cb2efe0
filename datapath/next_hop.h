/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The next hop of a SID: an adjacency, one of several by the flow of the packet, or the next hop of
 * the ingress port.
 */
#ifndef SIDESTEP_NEXT_HOP_H
#define SIDESTEP_NEXT_HOP_H

#include "group.h"

/* Whether the SID `r` (END_X, END_DX4, END_DX6) has a next hop. */
INLINE _Bool next_hop_exists(const struct sidestep_route *r)
{
	return r->adjacency || r->group || r->view6;
}

/* Forwards by the adjacency of the route that the flow selects. */
INLINE verdict group_forward(ENV *e, struct packet *p, __u32 group)
{
	const struct sidestep_route *route = env_route(e, group_select(e, p, group));

	return route ? forward(route->adjacency) : punt(unsupported);
}

/*
 * Returns the index of the route for the ingress port. Linux looks up the next hop by the rules of
 * that port (seg6_lookup_any_nexthop), so ports with other rules may have another one.
 */
SUBPROGRAM __u32 port_select(ENV *e, struct packet *p, __u32 view)
{
	struct address ingress = {};
	__u32 index;

	if (!p)
		return 0;
	ingress.hi = be32(env_ifindex(e));
	index = env_fib_lookup(e, view, ingress);
	env_trace(e, SIDESTEP_TRACE_PORT_HOP, view, index, ingress);
	return index;
}

/* Chooses the next hop of a SID without an adjacency of its own. */
INLINE verdict next_hop_choose(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	if (r->view6) {
		r = env_route(e, port_select(e, p, r->view6));
		if (!r)
			return punt(unsupported);
		if (r->action == SIDESTEP_ROUTE_PUNT)
			return VERDICT_PUNT | r->reason;
	}
	return r->group ? group_forward(e, p, r->group) : forward(r->adjacency);
}

#endif
