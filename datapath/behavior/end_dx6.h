/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* End.DX6 (RFC 8986 4.4): decapsulates IPv6 and sends it to one next hop. */
#ifndef SIDESTEP_BEHAVIOR_END_DX6_H
#define SIDESTEP_BEHAVIOR_END_DX6_H

#include "../next_hop.h"
#include "decap.h"

INLINE verdict end_dx6(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	verdict v = decap(e, p, DECAP_IPV6);

	if (v != VERDICT_CONTINUE)
		return v;
	/* No next hop configured (nh6 ::, nh4 0.0.0.0): route by the tables, as Linux does. */
	if (!next_hop_exists(r))
		return lookup();
	p->view = 0;
	return forward(r->adjacency);
}

#endif
