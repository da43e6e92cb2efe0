/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Next hops and segment lists that are down, whose packets go elsewhere: to the backup of the next hop
 * or of the list, or to the rest of their group. The tables have all of these in advance, so that one
 * store moves the packets of all routes.
 */
#ifndef SIDESTEP_DOWN_H
#define SIDESTEP_DOWN_H

#include "packet.h"

/* Whether packets avoid a next hop. A probe finds out whether it works. */
INLINE _Bool adjacency_is_down(const struct packet *p, const struct sidestep_adjacency *adjacency)
{
	__u16 flags = *(const volatile __u16 *)&adjacency->flags;

	return (flags & SIDESTEP_ADJACENCY_DOWN) && !(p->port_flags & PORT_PROBES);
}

/* Whether packets avoid a segment list: its path is dead, or the next hop to its first segment. */
INLINE _Bool policy_is_down(ENV *e, const struct packet *p, const struct sidestep_policy *policy)
{
	const struct sidestep_session *session = env_session(e, policy->session);
	const struct sidestep_adjacency *adjacency;

	if (session && session->down)
		return 1;
	adjacency = env_adjacency(e, *(const volatile __u32 *)&policy->adjacency);
	return adjacency && adjacency_is_down(p, adjacency);
}

/* Whether packets avoid a member of a group. A list with a backup of its own is not avoided. */
SUBPROGRAM int member_is_down(ENV *e, const struct packet *p, __u32 index)
{
	const struct sidestep_route *r = env_route(e, index);
	const struct sidestep_adjacency *adjacency;
	const struct sidestep_policy *policy;

	KEEP(e);
	if (!p || !r)
		return 0;
	if (r->action == SIDESTEP_ROUTE_FORWARD) {
		adjacency = env_adjacency(e, r->adjacency);
		return adjacency && adjacency_is_down(p, adjacency);
	}
	if (r->action != SIDESTEP_ROUTE_HEADEND)
		return 0;
	policy = env_policy(e, r->policy);
	return policy && !policy->backup && policy_is_down(e, p, policy);
}

#endif
