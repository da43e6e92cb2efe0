/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Indirect lookups: rules by source address, and routes for some sources only. The prefix table has
 * no route for their destinations, but a record that names the view for the next step.
 */
#ifndef SIDESTEP_LOOKUP_H
#define SIDESTEP_LOOKUP_H

#include "table/learned.h"
#include "packet.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"

/* Addresses of a lookup. */
struct lookup_key {
	struct address destination, source;
};

INLINE _Bool route_is_indirect(const struct sidestep_route *r)
{
	return r->action == SIDESTEP_ROUTE_SOURCE || r->action == SIDESTEP_ROUTE_NEXT;
}

/* Source address of the packet after the plan: that of a pushed outer header, if any. */
INLINE struct address source_address(ENV *e, const struct packet *p)
{
	const struct sidestep_policy *policy = 0;
	struct address source = {};
	const __u8 *ip;

	if (p->plan & PLAN_RESTORE) {
		struct sidestep_learned *learned = env_learned(e, p->policy);

		return learned ? load_address(learned_headers(learned, p->learned)->bytes +
					      IPV6_SOURCE) :
				 source;
	}
	if (p->plan & PLAN_PUSH)
		policy = env_policy(e, p->policy);
	if (policy && policy->kind != SIDESTEP_POLICY_INSERT)
		return load_address(policy->header + IPV6_SOURCE);
	if (p->version == 6) {
		ip = env_bytes(e, p->l3, IPV6_LENGTH);
		if (ip)
			source = load_address(ip + IPV6_SOURCE);
	} else {
		ip = env_bytes(e, p->l3, IPV4_LENGTH);
		if (ip)
			source.hi = load32(ip + IPV4_SOURCE);
	}
	return source;
}

/* Key for the reverse path of an IPv4 packet: source and destination exchanged. */
INLINE struct lookup_key reverse_key(const __u8 *ip)
{
	struct lookup_key key = {};

	key.destination.hi = load32(ip + IPV4_SOURCE);
	key.source.hi = load32(ip + IPV4_DESTINATION);
	return key;
}

/*
 * Returns the index of the route that the indirect record at `index` leads to; 0 if there is none.
 * `reverse` selects the key of the reverse path.
 */
SUBPROGRAM __u32 lookup_indirect(ENV *e, struct packet *p, __u32 index, _Bool reverse)
{
	struct lookup_key key;

	if (!p)
		return 0;
	if (reverse) {
		const __u8 *ip = env_bytes(e, p->l3, IPV4_LENGTH);

		if (!ip)
			return 0;
		key = reverse_key(ip);
	} else {
		key.destination = p->destination;
		key.source = source_address(e, p);
	}
	for (int i = 0; i <= SIDESTEP_INDIRECT_MAX; i++) {
		const struct sidestep_route *r = env_route(e, index);
		__u32 view;

		if (!index || !r)
			return 0;
		if (!route_is_indirect(r))
			return index;
		view = r->view6 ? r->view6 : r->view4;
		if (r->action == SIDESTEP_ROUTE_SOURCE) {
			index = env_fib_lookup(e, view, key.source);
			env_trace(e, SIDESTEP_TRACE_SOURCE, view, index, key.source);
		} else {
			index = env_fib_lookup(e, view, key.destination);
			env_trace(e, SIDESTEP_TRACE_LOOKUP, view, index, key.destination);
		}
	}
	return 0;
}

#endif
