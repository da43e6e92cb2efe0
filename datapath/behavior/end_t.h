/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* End.T (RFC 8986 4.3): End with a lookup in the SID's table. */
#ifndef SIDESTEP_BEHAVIOR_END_T_H
#define SIDESTEP_BEHAVIOR_END_T_H

#include "end.h"

INLINE verdict end_t(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	verdict v = endpoint_advance(e, p, r);

	if (v != VERDICT_CONTINUE)
		return v;
	p->view = p->version == 6 ? r->view6 : r->view4;
	return lookup();
}

#endif
