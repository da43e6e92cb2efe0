/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Size and egress checks of a plan, and the early rewrite of a push. The early rewrite is needed
 * where the next step applies to headers that are only planned.
 */
#ifndef SIDESTEP_COMMIT_H
#define SIDESTEP_COMMIT_H

#include "hmac/state.h"
#include "rewrite.h"
#include "read/ip.h"

/* LIMIT: RFC 8200 3: Payload Length has 16 bits. */
#define IPV6_PACKET_MAX (IPV6_LENGTH + 65535u)

/*
 * Returns true if the plan sends or encapsulates an Ethernet frame. It has no hop limit to
 * decrement. Linux cannot segment it: no offload handles Next Header 143 (ipv6_gso_segment).
 */
INLINE _Bool plan_has_frame(const struct packet *p)
{
	return (p->plan & (PLAN_FRAME | PLAN_ENCAP_FRAME)) != 0;
}

/* Bytes that the plan adds to layer 3; negative if it removes more. */
INLINE int planned_growth(ENV *e, const struct packet *p)
{
	int growth = 0;

	if (unlikely(plan_has_frame(p)))
		growth += tag_growth(p);
	if (p->plan & PLAN_POP)
		growth -= (int)p->pop_length;
	if (p->plan & PLAN_RESTORE) {
		growth += (int)p->restored;
	} else if (p->plan & PLAN_PUSH) {
		const struct sidestep_policy *policy = env_policy(e, p->policy);

		if (policy)
			growth += policy->length;
	}
	return p->plan & PLAN_ENCAP_FRAME ? growth + ETH_LENGTH : growth;
}

/* Checks that the packet or frame may leave: hop limit, and segmentation offload. */
INLINE verdict egress_check(ENV *e, const struct packet *p)
{
	if (!plan_has_frame(p))
		return hop_limit_check(p);
	/* A frame that leaves as it arrived. */
	if (p->plan == PLAN_FRAME)
		return VERDICT_CONTINUE;
	return env_segment_size(e) ? punt(frame_segments) : VERDICT_CONTINUE;
}

/*
 * Carries out a planned push and makes the new outer header the current one, as if the packet had
 * arrived with it. The inner packet has its hop limit decremented here
 * (draft-ietf-spring-srv6-service-programming-00 6.1.1, inbound policy S03).
 */
SUBPROGRAM verdict commit(ENV *e, struct packet *p)
{
	verdict v;

	if (!p)
		return punt(unsupported);
	v = egress_check(e, p);
	if (v != VERDICT_CONTINUE)
		return v;
	if ((int)(p->end - p->l3) + planned_growth(e, p) > (int)IPV6_PACKET_MAX)
		return punt(packet_too_big);
	if (unlikely(p->tag))
		env_trace(e, SIDESTEP_TRACE_TAG, p->tag, 0, p->destination);
	switch (rewrite_and_sign(e, p, 0)) {
	case REWRITE_DONE:
		break;
	case REWRITE_REFUSED:
		return punt(headroom);
	default:
		return drop(rewrite);
	}
	p->plan = 0;
	p->taken |= TAKEN_WRITTEN;
	p->sidestep_only = 1;
	p->frame = 0;
	p->srh = 0;
	p->srh_seen = 0;
	p->hops = 0;
	p->segments_left = 0;
	hmac_reset(p);
	/* The port's restrictions do not apply to headers that this node made. */
	p->port_flags = (p->port_flags | SIDESTEP_PORT_SEG6) & ~SIDESTEP_PORT_REQUIRE_HMAC;
	p->check_source = 0;
	env_trace(e, SIDESTEP_TRACE_PARSED, 6, ETH_LENGTH, p->destination);
	return ipv6_read(e, p, ETH_LENGTH, p->frame_length, 0);
}

#endif
