/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* End.DT4 (RFC 8986 4.7): decapsulates IPv4 and looks it up in the SID's table. */
#ifndef SIDESTEP_BEHAVIOR_END_DT4_H
#define SIDESTEP_BEHAVIOR_END_DT4_H

#include "decap.h"

INLINE verdict end_dt4(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	verdict v = decap(e, p, DECAP_IPV4);

	if (v != VERDICT_CONTINUE)
		return v;
	p->view = r->view4;
	return lookup();
}

#endif
