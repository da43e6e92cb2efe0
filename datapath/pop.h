/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Plans the removal of SRHs: PSP removes the active SRH after its last segment (RFC 8986 4.16.1),
 * USP removes SRHs that arrive with Segments Left 0 (4.16.2).
 */
#ifndef SIDESTEP_POP_H
#define SIDESTEP_POP_H

#include "packet.h"

/*
 * Removes the SRH at `at`. The Next Header field at `link` announces it, and `next` follows it. A
 * plan removes one range of bytes, so a further SRH has to follow the last one directly. The SRH
 * that the plan changes may lie behind the range.
 *
 * RFC 8200 4: a Hop-by-Hop header behind the SRH is an error. Without the SRH, it would be one that
 * no router has processed.
 */
INLINE verdict srh_pop(ENV *e, struct packet *p, __u32 at, __u32 length, __u32 link, __u8 next)
{
	if (unlikely(next == PROTO_HOP_BY_HOP)) {
		p->link = (__u16)at;
		return drop(hop_by_hop_order);
	}
	if (!(p->plan & PLAN_POP)) {
		p->plan |= PLAN_POP;
		p->pop = (__u16)at;
		p->pop_length = 0;
		p->pop_link = (__u16)link;
	} else if (at != (__u32)p->pop + p->pop_length) {
		return punt(unsupported);
	}
	p->pop_length += (__u16)length;
	p->pop_next = next;
	if (p->srh == at) {
		p->srh = 0;
		p->plan &= ~(PLAN_SEGMENTS_LEFT | PLAN_LAST_SEGMENT);
	}
	env_trace(e, SIDESTEP_TRACE_POP, at, length, p->destination);
	return VERDICT_CONTINUE;
}

#endif
