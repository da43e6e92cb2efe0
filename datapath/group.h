/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Groups: the choice of one route record among the slots of a group, by flow or by DSCP.
 */
#ifndef SIDESTEP_GROUP_H
#define SIDESTEP_GROUP_H

#include "flow.h"

/* Returns the route of the slot that the packet's flow selects; 0 if there is no such group. */
INLINE __u32 group_select(ENV *e, struct packet *p, __u32 index)
{
	const struct sidestep_group *group = env_group(e, index);
	__u32 slot, route;

	if (!group)
		return 0;
	/* The upper half of the hash, as a fraction of the slots. One slot needs none. */
	slot = 0;
	if (group->slots > 1)
		slot = (__u32)((flow_hash(e, p, group->seed) >> 32) * group->slots >> 32);
	route = group->routes[slot & (SIDESTEP_GROUP_SLOTS - 1)];
	env_trace(e, SIDESTEP_TRACE_CHOICE, index, route, p->destination);
	return route;
}

/*
 * Returns the route of the slot that the packet's DSCP selects (RFC 9256 8.6); 0 if there is no
 * such group. A frame without an IP packet has DSCP 0.
 */
SUBPROGRAM __u32 group_select_dscp(ENV *e, struct packet *p, __u32 index)
{
	const struct sidestep_group *group = env_group(e, index);
	const __u8 *ip;
	__u32 dscp = 0;
	__u32 route;

	if (!p || !group)
		return 0;
	ip = p->version ? env_bytes(e, p->l3, IPV4_LENGTH) : 0;
	if (ip)
		dscp = (p->version == 6 ? ipv6_traffic_class(ip) : ip[IPV4_TOS]) >> 2;
	dscp &= SIDESTEP_DSCPS - 1;
	route = group->routes[dscp];
	env_trace(e, SIDESTEP_TRACE_DSCP, dscp, route, p->destination);
	return route;
}

#endif
