/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * End.DX2 (RFC 8986 4.9): decapsulates an Ethernet frame and sends it unmodified out of one
 * interface.
 */
#ifndef SIDESTEP_BEHAVIOR_END_DX2_H
#define SIDESTEP_BEHAVIOR_END_DX2_H

#include "decap.h"

INLINE verdict end_dx2(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	verdict v = decap(e, p, DECAP_ETHERNET);

	if (v != VERDICT_CONTINUE)
		return v;
	p->view = 0;
	return forward(r->adjacency);
}

#endif
