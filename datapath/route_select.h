/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Selection of a route by the properties of a packet: source address, DSCP, flow. */
#ifndef SIDESTEP_ROUTE_SELECT_H
#define SIDESTEP_ROUTE_SELECT_H

#include "group.h"
#include "lookup.h"

/*
 * Follows the record `r` at `index` to a route: indirect records, then the slots of the packet's
 * DSCP and flow. Returns its index, or 0 for none, and stores the counter of a group.
 */
INLINE __u32 route_select(ENV *e, struct packet *p, const struct sidestep_route *r, __u32 index,
			  __u32 *counter)
{
	if (route_is_indirect(r)) {
		index = lookup_indirect(e, p, index, 0);
		r = env_route(e, index);
	}
	if (r && r->action == SIDESTEP_ROUTE_GROUP && (r->flags & SIDESTEP_ROUTE_BY_DSCP)) {
		index = group_select_dscp(e, p, r->group);
		r = env_route(e, index);
	}
	if (r && r->action == SIDESTEP_ROUTE_GROUP) {
		*counter = r->counter;
		index = group_select(e, p, r->group);
	}
	return index;
}

#endif
