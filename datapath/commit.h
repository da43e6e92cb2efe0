/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a plan means for the packet's size and for what can be done with it; and carrying it out halfway, where what comes
 * next would have to plan for headers that are only planned.
 */
#ifndef SIDESTEP_COMMIT_H
#define SIDESTEP_COMMIT_H

#include "hmac/state.h"
#include "rewrite.h"
#include "read/ip.h"

/* LIMIT: RFC 8200 3: Payload Length has 16 bits. */
#define IPV6_PACKET_MAX (IPV6_LENGTH + 65535u)

/* What the plan adds to layer 3; negative where it removes more. */
INLINE int planned_growth(ENV *e, const struct packet *p)
{
	int growth = 0;

	if (p->plan & PLAN_POP)
		growth -= (int)p->srh_length;
	if (p->plan & PLAN_RESTORE) {
		growth += (int)p->restored;
	} else if (p->plan & PLAN_PUSH) {
		const struct sidestep_policy *policy = env_policy(e, p->policy);

		if (policy)
			growth += policy->length;
	}
	return p->plan & PLAN_ENCAP_FRAME ? growth + ETH_LENGTH : growth;
}

/*
 * A frame within the packet leaves, or is carried: there is no hop limit to decrement, and Linux cannot cut it into segments: it
 * has no offload for what is behind Next Header 143 (ipv6_gso_segment).
 */
INLINE _Bool plan_has_frame(const struct packet *p)
{
	return (p->plan & (PLAN_FRAME | PLAN_ENCAP_FRAME)) != 0;
}

/* Checks that the packet or frame may leave: RFC 8986 4.1 S05, and segmentation offload. */
INLINE verdict egress_check(ENV *e, const struct packet *p)
{
	if (!plan_has_frame(p))
		return hop_limit_check(p);
	return env_segment_size(e) ? punt(frame_segments) : VERDICT_CONTINUE;
}

/*
 * Carries out the plan of a push, and makes the header that it put on the current one: the packet is now as if it had
 * arrived so. Only for one that the kernel could do nothing with as it arrived. What is carried has had its hop here
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
	switch (rewrite_and_sign(e, p, 0)) {
	case REWRITE_DONE:
		break;
	case REWRITE_REFUSED:
		return punt(headroom);
	default:
		return drop(rewrite);
	}
	p->plan = 0;
	p->frame = 0;
	p->srh = 0;
	p->srh_seen = 0;
	p->segments_left = 0;
	hmac_reset(p);
	/* These headers are this node's own: what the port lets in from others does not concern them. */
	p->port_flags = (p->port_flags | SIDESTEP_PORT_SEG6) & ~SIDESTEP_PORT_REQUIRE_HMAC;
	p->check_source = 0;
	env_trace(e, SIDESTEP_TRACE_PARSED, 6, ETH_LENGTH, p->destination);
	return ipv6_read(e, p, ETH_LENGTH, p->frame_length, 0);
}

#endif
