/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * End.AM, the masquerading proxy (draft-ietf-spring-srv6-service-programming-00 6.4): a service that does not know SRv6
 * sees the packet with its SRH, but with the last segment as destination address. What it sends back has the active
 * segment as destination again.
 */
#ifndef SIDESTEP_BEHAVIOR_END_AM_H
#define SIDESTEP_BEHAVIOR_END_AM_H

#include "service.h"

INLINE verdict end_am(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	verdict v = service_advance(e, p, r); /* 6.4.1 S01 to S13 */

	if (v != VERDICT_CONTINUE)
		return v;
	if (!segment_load(e, p, 0, &p->destination)) /* S14 */
		return punt(ext_chain);
	p->view = 0;
	env_trace(e, SIDESTEP_TRACE_MASQUERADE, p->srh, p->segments_left, p->destination);
	return forward(r->adjacency);
}

/*
 * De-masquerading, for what comes back by the service's port. A packet without an SRH, or with one that is used up, goes the
 * way that any packet goes.
 */
SUBPROGRAM verdict demasquerade(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	const __u8 *srh;
	verdict v;

	if (!p || !r)
		return punt(unsupported);
	v = srh_first(e, p);
	if (v != VERDICT_CONTINUE)
		return v;
	if (!p->segments_left) {
		p->sidestep_only = 0;
		p->last_sidestep_only = 0;
		return lookup();
	}
	/* 6.4.1, de-masquerading S02: also where the active segment is this node's, and it does not leave. */
	v = hop_limit_check(p);
	if (v != VERDICT_CONTINUE)
		return v;
	srh = env_bytes(e, p->srh, 8);
	if (!srh)
		return punt(ext_chain);
	/* S07. The active segment of a reduced SRH is in the list, too: End.AM was one of it. */
	if (p->segments_left > srh[SRH_LAST_ENTRY])
		return drop(srh_segments_left);
	/* 6.4.2, flavor Destination NAT: what the service made of the destination is the last segment from now on. */
	if (r->flags & SIDESTEP_ROUTE_NAT) {
		p->plan |= PLAN_LAST_SEGMENT;
		env_trace(e, SIDESTEP_TRACE_LAST_SEGMENT, p->srh, 0, p->destination);
	}
	if (!segment_load(e, p, p->segments_left, &p->destination)) /* S10 */
		return punt(ext_chain);
	p->plan |= PLAN_DESTINATION;
	env_trace(e, SIDESTEP_TRACE_DEMASQUERADE, p->srh, p->segments_left, p->destination);
	return lookup();
}

#endif
