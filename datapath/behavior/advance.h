/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The next segment of the active SRH becomes the destination address (RFC 8986 4.1 S13 to S15), and with PSP the SRH may
 * go (4.16.1).
 */
#ifndef SIDESTEP_BEHAVIOR_ADVANCE_H
#define SIDESTEP_BEHAVIOR_ADVANCE_H

#include "../packet.h"
#include "../wire/srh.h"

/*
 * Nothing of the active SRH is looked at any more (Segments Left is 0 now, say): whatever comes next goes on behind it. `pop`:
 * the next SID is the last one and the SRH goes (RFC 8986 4.16.1 S14.1).
 */
INLINE verdict advance_used_up(ENV *e, struct packet *p, _Bool pop)
{
	const __u8 *srh = env_bytes(e, p->srh, 8);

	if (!srh)
		return punt(ext_chain);
	p->link = p->srh;
	p->proto = srh[SRH_NEXT_HEADER];
	p->cursor = p->srh + p->srh_length;
	if (pop) {
		p->plan |= PLAN_POP;
		env_trace(e, SIDESTEP_TRACE_POP, p->srh, p->srh_length, p->destination);
	}
	return VERDICT_CONTINUE;
}

/* The SRH is the active one and Segments Left is not 0. */
INLINE verdict advance_segment(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	const __u8 *segment;

	p->segments_left--;
	segment = env_bytes(e, p->srh + SRH_SEGMENTS + p->segments_left * SEGMENT_LENGTH, SEGMENT_LENGTH);
	if (!segment)
		return punt(ext_chain);
	p->destination = load_address(segment);
	p->plan |= PLAN_DESTINATION | PLAN_SEGMENTS_LEFT;
	env_trace(e, SIDESTEP_TRACE_SRH, p->srh, p->segments_left, p->destination);
	return p->segments_left ? VERDICT_CONTINUE : advance_used_up(e, p, (r->flags & SIDESTEP_ROUTE_PSP) != 0);
}

#endif
