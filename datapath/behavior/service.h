/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Common part of the SR proxies (draft-ietf-spring-srv6-service-programming-00 6): End, towards a
 * service.
 */
#ifndef SIDESTEP_BEHAVIOR_SERVICE_H
#define SIDESTEP_BEHAVIOR_SERVICE_H

#include "../read/ext.h"
#include "advance.h"
#include "decap.h"

/*
 * 6.1.1 and 6.4.1, S01 to S14: the next segment becomes the destination address. A proxy cannot be
 * the last segment (6).
 */
SUBPROGRAM verdict service_advance(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	verdict v;

	if (!p || !r)
		return punt(unsupported);
	v = srh_required(e, p);
	return v == VERDICT_CONTINUE ? advance_segment(e, p, r) : v;
}

/*
 * 6.1.1 S01 to S17. CONTINUE: the packet for the service is at the cursor and has type p->proto. A
 * packet with another upper-layer header is forwarded to the next segment without the service
 * (S16). Without a next segment it is dropped (RFC 8986 4.1.1).
 */
SUBPROGRAM verdict service_unwrap(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	_Bool advanced = 0;
	__u32 cursor, link;
	__u8 proto;
	verdict v;

	if (!p || !r)
		return punt(unsupported);
	if (!p->segments_left) {
		v = srh_first(e, p, 0);
		if (v != VERDICT_CONTINUE)
			return v;
	}
	if (p->segments_left) {
		v = advance_segment(e, p, r);
		if (v == VERDICT_CONTINUE)
			v = advance_used_up(e, p, 0);
		if (v != VERDICT_CONTINUE)
			return v;
		advanced = 1;
	}
	/* 6.2.1: End.AD learns the headers for the next segment, so there has to be one. */
	if (!advanced && r->action == SIDESTEP_ROUTE_END_AD)
		return ext_refuse(p, p->srh_seen ? drop(segments_left_zero) : drop(no_srh));
	cursor = p->cursor;
	link = p->link;
	proto = p->proto;
	/* Headers behind an SRH with a further segment are for another node. */
	v = ext_walk(e, p, advanced ? WALK_PEEK : 0);
	if (v != VERDICT_CONTINUE)
		return v;
	if (p->proto == r->inner)
		return VERDICT_CONTINUE;
	if (!advanced)
		return ext_refuse(p, drop(upper_layer));
	/* The next segment may be a SID of this node, which processes these headers. */
	p->cursor = cursor;
	p->link = link;
	p->proto = proto;
	return lookup();
}

/* S18 and S19: forwards the packet at the cursor to the service. */
INLINE verdict service_forward(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	verdict v;

	p->segments_left = 0;
	v = decap_inner(e, p, DECAP_IPV4 | DECAP_IPV6 | DECAP_ETHERNET);
	if (v != VERDICT_CONTINUE)
		return v;
	p->view = 0;
	return forward(r->adjacency);
}

#endif
