/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Groups: the choice of one route record among the slots of a group, by flow or by DSCP.
 */
#ifndef SIDESTEP_GROUP_H
#define SIDESTEP_GROUP_H

#include "down.h"
#include "flow.h"

/* Slots that a flow tries at random when its member is down. */
#define GROUP_TRIES 8u

/*
 * Returns a member of a group that is not down: the one given, otherwise another one by the packet's
 * flow. So the slots of members that are down fall to the others by their weights. With none, it
 * returns the one given.
 */
SUBPROGRAM __u32 group_member_up(ENV *e, struct packet *p, __u32 index, __u32 member)
{
	const struct sidestep_group *group = env_group(e, index);
	__u32 start, slots;

	if (!p || !group || likely(!member_is_down(e, p, member)))
		return member;
	/* The lower half of the hash, because the upper half chose the member. */
	start = (__u32)flow_hash(e, p, group->seed);
	slots = group->slots;
	for (__u32 i = 0; i < GROUP_TRIES + SIDESTEP_GROUP_SLOTS && i < GROUP_TRIES + slots; i++) {
		__u32 slot, other;

		/* Random slots (Numerical Recipes 7.1), then all of them. */
		if (i < GROUP_TRIES)
			start = start * 1664525u + 1013904223u;
		/* The verifier does not follow the value of a division. */
		slot = ((start >> 8) % slots + i) % slots;
		other = group->routes[slot & (SIDESTEP_GROUP_SLOTS - 1)];
		if (!member_is_down(e, p, other))
			return other;
	}
	return member;
}

/*
 * Returns the route of the slot that the packet's flow selects, and 0 without such a group. A member
 * that is down is not selected while another one is up.
 */
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
	if (group->slots > 1)
		route = group_member_up(e, p, index, route);
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
