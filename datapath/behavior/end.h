/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * End (RFC 8986 4.1): the next segment becomes the destination address; then the lookup that any packet gets.
 */
#ifndef SIDESTEP_BEHAVIOR_END_H
#define SIDESTEP_BEHAVIOR_END_H

#include "../wire/ext.h"

/*
 * What End, End.X and End.T share: RFC 8986 4.1 S01 to S14 without the hop limit, which is checked and decremented once
 * when the packet leaves, and 4.16.1 (PSP).
 */
INLINE verdict endpoint_advance(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	const __u8 *segment;

	if (!p->segments_left) {
		verdict v = ext_walk(e, p);

		if (v != VERDICT_CONTINUE)
			return v;
		/* S02, and 4.1.1 where there is no SRH: there is no upper layer that End would accept. */
		if (!p->segments_left)
			return p->met_srh ? drop(segments_left_zero) : drop(no_srh);
	}
	p->segments_left--;
	segment = env_bytes(e, p->srh + SRH_SEGMENTS + p->segments_left * SEGMENT_LENGTH, SEGMENT_LENGTH);
	if (!segment)
		return drop(srh_length);
	p->destination = load_address(segment);
	p->plan |= PLAN_DESTINATION | PLAN_SEGMENTS_LEFT;
	env_trace(e, SIDESTEP_TRACE_SRH, p->srh, p->segments_left, p->destination);

	if (p->segments_left == 0) {
		const __u8 *srh = env_bytes(e, p->srh, 8);

		if (!srh)
			return drop(srh_length);
		/* A SID of ours that comes next goes on behind this SRH. */
		p->link = p->srh;
		p->proto = srh[SRH_NEXT_HEADER];
		p->cursor = p->srh + p->srh_length;
		/* RFC 8986 4.16.1 S14.1 */
		if (r->flags & SIDESTEP_ROUTE_PSP) {
			p->plan |= PLAN_POP;
			env_trace(e, SIDESTEP_TRACE_POP, p->srh, p->srh_length, p->destination);
		}
	}
	return VERDICT_CONTINUE;
}

INLINE verdict end(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	verdict v = endpoint_advance(e, p, r);

	if (v != VERDICT_CONTINUE)
		return v;
	p->view = p->view6;
	return lookup();
}

#endif
