/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* End.DX4 (RFC 8986 4.5): decapsulates IPv4 and sends it to one next hop. */
#ifndef SIDESTEP_BEHAVIOR_END_DX4_H
#define SIDESTEP_BEHAVIOR_END_DX4_H

#include "../next_hop.h"
#include "decap.h"

INLINE verdict end_dx4(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	verdict v = decap(e, p, DECAP_IPV4);

	if (v != VERDICT_CONTINUE)
		return v;
	/*
	 * Linux checks the source as if the port had received the inner packet (ip_route_input in
	 * input_action_end_dx4_finish).
	 */
	p->check_source = 1;
	/* No next hop configured (nh6 ::, nh4 0.0.0.0): route by the tables, as Linux does. */
	if (!next_hop_exists(r))
		return lookup();
	p->view = 0;
	return forward(r->adjacency);
}

#endif
