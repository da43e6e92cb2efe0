/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* End.DT6 (RFC 8986 4.6): decapsulates IPv6 and looks it up in the SID's table. */
#ifndef SIDESTEP_BEHAVIOR_END_DT6_H
#define SIDESTEP_BEHAVIOR_END_DT6_H

#include "decap.h"

INLINE verdict end_dt6(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	verdict v = decap(e, p, DECAP_IPV6);

	if (v != VERDICT_CONTINUE)
		return v;
	p->view = r->view6;
	return lookup();
}

#endif
