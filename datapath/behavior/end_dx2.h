/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * End.DX2 (RFC 8986 4.9): decapsulates an Ethernet frame and sends it unmodified out of one
 * interface. End.DT2U and End.DT2M (4.11, 4.12) send it into an ether device. The L2 table is that
 * of the kernel's bridge behind it. A frame between stations that the bridge knows leaves at once.
 */
#ifndef SIDESTEP_BEHAVIOR_END_DX2_H
#define SIDESTEP_BEHAVIOR_END_DX2_H

#include "../bridge.h"
#include "../tag.h"
#include "decap.h"

INLINE verdict end_dx2(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	verdict v = decap(e, p, DECAP_ETHERNET);

	if (v != VERDICT_CONTINUE)
		return v;
	p->view = 0;
	if (unlikely(r->tag)) {
		v = tag_plan(e, p, r->tag);
		if (v != VERDICT_CONTINUE)
			return v;
	}
	if (r->action != SIDESTEP_ROUTE_END_DX2) {
		const struct sidestep_port *to = bridge_port_behind(e, p, r->adjacency);

		if (to)
			return forward(to->egress);
	}
	return forward(r->adjacency);
}

#endif
