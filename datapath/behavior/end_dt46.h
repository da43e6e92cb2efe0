/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* End.DT46 (RFC 8986 4.8): decapsulates IPv4 or IPv6 and looks it up in the SID's table. */
#ifndef SIDESTEP_BEHAVIOR_END_DT46_H
#define SIDESTEP_BEHAVIOR_END_DT46_H

#include "decap.h"

INLINE verdict end_dt46(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	verdict v = decap(e, p, DECAP_IPV4 | DECAP_IPV6);

	if (v != VERDICT_CONTINUE)
		return v;
	p->view = p->version == 6 ? r->view6 : r->view4;
	return lookup();
}

#endif
