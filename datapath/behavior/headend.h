/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Headend behaviors H.Encaps, H.Encaps.L2 (RFC 8986 5.1 to 5.4) and H.Insert, reduced or not: a
 * route steers the packet onto a segment list. The compiler has prepared the headers (struct
 * sidestep_policy).
 */
#ifndef SIDESTEP_BEHAVIOR_HEADEND_H
#define SIDESTEP_BEHAVIOR_HEADEND_H

#include "../down.h"
#include "../insert.h"
#include "../packet.h"

/* Returns the backup of a policy that is down, or the policy itself. */
SUBPROGRAM __u32 policy_in_use(ENV *e, const struct packet *p, __u32 index)
{
	const struct sidestep_policy *policy = env_policy(e, index);
	__u32 backup;

	/* Map lookups do not use `e`, so the compiler would pass an undefined register. */
	KEEP(e);
	if (!p || !policy)
		return index;
	backup = *(const volatile __u32 *)&policy->backup;
	if (!backup || !policy_is_down(e, p, policy))
		return index;
	env_trace(e, SIDESTEP_TRACE_BACKUP, index, backup, p->destination);
	return backup;
}

INLINE verdict headend(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	const struct sidestep_policy *policy = env_policy(e, r->policy);
	__u32 index = r->policy, path;

	/* Not a headend's record, for example a group within a group. */
	if (!index || !policy)
		return punt(unsupported);
	if (unlikely(policy->backup)) {
		index = policy_in_use(e, p, index);
		policy = env_policy(e, index);
		if (!policy)
			return punt(unsupported);
	}
	/* A suspended policy: Linux has a newer route than the tables, and knows its segments. */
	if (unlikely(policy->view == FIB6_VIEW_EMPTY))
		return punt(route_miss);
	/*
	 * One push per packet. An SRH is inserted into IPv6 only, and not together with a change of
	 * another SRH's segments, or of a probe.
	 */
	if ((p->plan & PLAN_PUSH) ||
	    (policy->kind == SIDESTEP_POLICY_INSERT &&
	     (p->version != 6 || (p->plan & (PLAN_LAST_SEGMENT | PLAN_REFLECT)))))
		return punt(unsupported);
	/* H.Encaps.L2 encapsulates the received frame, which has to be unmodified. */
	if (policy->kind == SIDESTEP_POLICY_ENCAPS_L2 && p->plan)
		return punt(unsupported);
	/*
	 * RFC 2473 3.1, RFC 1812 5.3.1: the packet is forwarded before it is encapsulated. Linux
	 * does not check it there (seg6_input comes before ip_forward), so it is not punted.
	 */
	if (unlikely(p->hop_limit <= 1) && policy->kind != SIDESTEP_POLICY_ENCAPS_L2)
		return drop(hop_limit);
	if (policy->kind == SIDESTEP_POLICY_INSERT &&
	    unlikely(insert_offset(e, p->l3) - 1 >= INSERT_MOVED_MAX)) {
		p->cursor = p->l3 + INSERT_MOVED_MAX;
		return drop(chain_too_long);
	}
	p->plan |= policy->kind == SIDESTEP_POLICY_ENCAPS_L2 ? PLAN_PUSH | PLAN_ENCAP_FRAME :
							       PLAN_PUSH;
	p->policy = index;
	p->inserted = p->destination;
	p->destination = load_address(policy->first);
	env_trace(e, SIDESTEP_TRACE_PUSH, index, policy->length, p->destination);
	p->taken |= TAKEN_HEADEND;
	p->view = policy->view ? policy->view : p->view6;
	/* Read once: the path may change meanwhile. */
	path = *(const volatile __u32 *)&policy->adjacency;
	return path ? forward(path) : lookup();
}

#endif
