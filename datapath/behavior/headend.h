/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The headend behaviors H.Encaps, H.Encaps.L2 (RFC 8986 5.1 to 5.4) and H.Insert, reduced or not: a route puts the packet
 * on a list of segments. Which headers are pushed was settled when the policy was compiled (struct sidestep_policy).
 */
#ifndef SIDESTEP_BEHAVIOR_HEADEND_H
#define SIDESTEP_BEHAVIOR_HEADEND_H

#include "../packet.h"

INLINE verdict headend(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	const struct sidestep_policy *policy = env_policy(e, r->policy);

	/* 0: a record that is no headend's, as a group that another group led to. */
	if (!r->policy || !policy)
		return punt(unsupported);
	/* One push a packet; an SRH can only be inserted into IPv6, and in one pass with no change to another one's segments. */
	if ((p->plan & PLAN_PUSH) ||
	    (policy->kind == SIDESTEP_POLICY_INSERT && (p->version != 6 || (p->plan & PLAN_LAST_SEGMENT))))
		return punt(unsupported);
	/* The frame that H.Encaps.L2 carries is the one received: there must be one, unchanged. */
	if (policy->kind == SIDESTEP_POLICY_ENCAPS_L2 && p->plan)
		return punt(unsupported);
	p->plan |= policy->kind == SIDESTEP_POLICY_ENCAPS_L2 ? PLAN_PUSH | PLAN_ENCAP_FRAME : PLAN_PUSH;
	p->policy = r->policy;
	p->inserted = p->destination;
	p->destination = load_address(policy->first);
	env_trace(e, SIDESTEP_TRACE_PUSH, r->policy, policy->length, p->destination);
	if (policy->adjacency)
		return forward(policy->adjacency);
	p->view = policy->view ? policy->view : p->view6;
	return lookup();
}

#endif
