/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * End.AD, the dynamic proxy (draft-ietf-spring-srv6-service-programming-00 6.2): the service gets the packet without its
 * outer headers, as from End.AS. They are learned as they would go on, and what the service sends back gets them again.
 */
#ifndef SIDESTEP_BEHAVIOR_END_AD_H
#define SIDESTEP_BEHAVIOR_END_AD_H

#include "../table/learned.h"
#include "service.h"

INLINE verdict end_ad(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	verdict v = service_unwrap(e, p, r);

	if (v == VERDICT_CONTINUE)
		v = learn(e, p, r->policy);
	return v == VERDICT_CONTINUE ? service_forward(e, p, r) : v;
}

/* 6.1.1, inbound policy, with what was learned: it is planned here, and copied when the packet leaves. */
INLINE verdict restore(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	struct sidestep_learned *learned = env_learned(e, r->policy);
	const struct sidestep_headers *headers;

	if (!learned)
		return punt(unsupported);
	p->learned = learned_version(learned);
	if (!p->learned)
		return drop(not_learned); /* S02 */
	headers = learned_headers(learned, p->learned);
	p->restored = headers->length;
	p->destination = load_address(headers->bytes + IPV6_DESTINATION);
	p->policy = r->policy;
	p->plan = p->frame ? PLAN_PUSH | PLAN_RESTORE | PLAN_CARRY : PLAN_PUSH | PLAN_RESTORE;
	p->view = p->view6;
	env_trace(e, SIDESTEP_TRACE_RESTORE, r->policy, p->restored, p->destination);
	return lookup();
}

#endif
