/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * End.AS, the static proxy (draft-ietf-spring-srv6-service-programming-00 6.1): the service gets
 * the packet without its outer headers. Returned packets are encapsulated as at a headend, with the
 * configured segments: the return path is a SIDESTEP_ROUTE_HEADEND.
 */
#ifndef SIDESTEP_BEHAVIOR_END_AS_H
#define SIDESTEP_BEHAVIOR_END_AS_H

#include "service.h"

INLINE verdict end_as(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	verdict v = service_unwrap(e, p, r);

	return v == VERDICT_CONTINUE ? service_forward(e, p, r) : v;
}

#endif
