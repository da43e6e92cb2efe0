/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* End.X (RFC 8986 4.2): End, then one of the SID's layer 3 adjacencies. */
#ifndef SIDESTEP_BEHAVIOR_END_X_H
#define SIDESTEP_BEHAVIOR_END_X_H

#include "end.h"

INLINE verdict end_x(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	verdict v = endpoint_advance(e, p, r);

	if (v != VERDICT_CONTINUE)
		return v;
	p->view = 0;
	return forward(r->adjacency);
}

#endif
