/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * End.AM, the masquerading proxy (draft-ietf-spring-srv6-service-programming-00 6.4). The service
 * need not know SRv6: it gets the packet with its SRH, and with the last segment as destination
 * address. On the return path the active segment becomes the destination again.
 */
#ifndef SIDESTEP_BEHAVIOR_END_AM_H
#define SIDESTEP_BEHAVIOR_END_AM_H

#include "service.h"

INLINE verdict end_am(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	verdict v = service_advance(e, p, r); /* 6.4.1 S01 to S13 */

	if (v != VERDICT_CONTINUE)
		return v;
	v = segment_load(e, p, 0); /* S14 */
	if (v != VERDICT_CONTINUE)
		return v;
	p->view = 0;
	env_trace(e, SIDESTEP_TRACE_MASQUERADE, p->srh, p->segments_left, p->destination);
	return forward(r->adjacency);
}

/*
 * De-masquerading on the return path. A packet without an SRH, or with Segments Left 0, is routed
 * as any other.
 */
SUBPROGRAM verdict demasquerade(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	const __u8 *srh;
	__u32 first;
	__u8 proto;
	verdict v;

	if (!p || !r)
		return punt(unsupported);
	first = p->cursor;
	proto = p->proto;
	v = srh_first(e, p, WALK_PEEK);
	if (v != VERDICT_CONTINUE)
		return v;
	if (!p->segments_left) {
		p->sidestep_only = 0;
		p->last = 0;
		p->cursor = first;
		p->proto = proto;
		return lookup();
	}
	/* 6.4.1, de-masquerading S02: required even if the active segment is local. */
	v = hop_limit_check(p);
	if (v != VERDICT_CONTINUE)
		return v;
	srh = env_bytes(e, p->srh, 8);
	if (!srh)
		return punt(ext_chain);
	/*
	 * S07. A reduced SRH contains the active segment, too, because End.AM was an earlier
	 * segment.
	 */
	if (p->segments_left > srh[SRH_LAST_ENTRY])
		return drop(srh_segments_left);
	/*
	 * 6.4.2, flavor Destination NAT: the destination that the service has written is the new
	 * last segment.
	 */
	if (r->flags & SIDESTEP_ROUTE_NAT) {
		p->plan |= PLAN_LAST_SEGMENT;
		env_trace(e, SIDESTEP_TRACE_LAST_SEGMENT, p->srh, 0, p->destination);
	}
	v = segment_load(e, p, p->segments_left); /* S10 */
	if (v != VERDICT_CONTINUE)
		return v;
	p->plan |= PLAN_DESTINATION;
	env_trace(e, SIDESTEP_TRACE_DEMASQUERADE, p->srh, p->segments_left, p->destination);
	return lookup();
}

#endif
