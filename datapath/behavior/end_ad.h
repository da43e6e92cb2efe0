/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * End.AD, the dynamic proxy (draft-ietf-spring-srv6-service-programming-00 6.2): as End.AS, but the
 * outer headers are learned. Packets that the service returns get the learned headers.
 */
#ifndef SIDESTEP_BEHAVIOR_END_AD_H
#define SIDESTEP_BEHAVIOR_END_AD_H

#include "../table/flows.h"
#include "service.h"

/*
 * 6.2.1 S17.1: learns the outer headers, which end at the cursor, if they differ from the stored
 * headers and these are older than `age`.
 */
SUBPROGRAM verdict learn_headers(ENV *e, struct packet *p, __u32 index)
{
	struct sidestep_learned *proxy = env_learned(e, index);
	__u64 version;

	/* The headers are learned as they arrived, so an SRH that the plan removes would remain. */
	if (!p || !proxy || (p->plan & PLAN_POP))
		return punt(unsupported);
	version = learned_version(proxy);
	/* PERF: the common case. */
	if (likely(version && learned_matches_srh(e, p, learned_headers(proxy, version))))
		return VERDICT_CONTINUE;
	if (learned_length(p) > SIDESTEP_LEARNED_MAX)
		return drop(learned_length);
	if (!env_bytes(e, p->cursor - 8, 8))
		return punt(ext_chain);
	if (proxy->flows) {
		learn_flow(e, p, index, proxy);
		return VERDICT_CONTINUE;
	}
	/* If another CPU writes at the same time, the next packet tries again. */
	if (!version ||
	    (!learned_matches(e, p, index, version) && learned_has_age(e, proxy, proxy->time)))
		learned_write(e, p, index, version, 0);
	return VERDICT_CONTINUE;
}

/* Phase 1. The headers are learned in phase 2, after authentication. */
INLINE verdict end_ad(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	verdict v = service_unwrap(e, p, r);

	return v == VERDICT_CONTINUE ? VERDICT_AUTHENTICATE : v;
}

/* Phase 2 (endpoint.h): learns the headers and forwards the packet to the service. */
SUBPROGRAM verdict end_ad_authenticated(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	verdict v;

	if (!p || !r)
		return punt(unsupported);
	v = learn_headers(e, p, r->policy);
	if (v != VERDICT_CONTINUE)
		return v;
	env_trace(e, SIDESTEP_TRACE_LEARN, r->policy, learned_length(p), p->destination);
	return service_forward(e, p, r);
}

/* Inbound policy of 6.1.1 with the learned headers. The rewrite copies them. */
INLINE verdict restore(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	struct sidestep_learned *learned = env_learned(e, r->policy);
	const struct sidestep_headers *headers;

	if (!learned)
		return punt(unsupported);
	if (learned->flows) {
		verdict v = flow_learned(e, p, r->policy, 0);

		/*
		 * An ICMP error that the service sends belongs to the flow of the packet that it
		 * quotes.
		 */
		if (v == VERDICT_CONTINUE && !p->learned)
			v = flow_learned(e, p, r->policy, 1);
		if (v != VERDICT_CONTINUE)
			return v;
		learned = env_learned(e, p->policy);
		if (!learned)
			return punt(unsupported);
	} else {
		p->policy = r->policy;
		p->learned = learned_version(learned);
	}
	if (!p->learned)
		return drop(not_learned); /* S02 */
	headers = learned_headers(learned, p->learned);
	p->restored = headers->length;
	p->destination = load_address(headers->bytes + IPV6_DESTINATION);
	p->plan = p->frame ? PLAN_PUSH | PLAN_RESTORE | PLAN_ENCAP_FRAME : PLAN_PUSH | PLAN_RESTORE;
	p->view = p->view6;
	env_trace(e, SIDESTEP_TRACE_RESTORE, r->policy, p->restored, p->destination);
	return lookup();
}

#endif
