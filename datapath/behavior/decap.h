/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Decapsulation, common to End.DX* and End.DT* (RFC 8986 4.4 to 4.9): walks the rest of the outer
 * headers and makes the inner packet the current one.
 */
#ifndef SIDESTEP_BEHAVIOR_DECAP_H
#define SIDESTEP_BEHAVIOR_DECAP_H

#include "../read/ext.h"
#include "../read/ip.h"

/* Upper-layer headers that a SID accepts. */
#define DECAP_IPV4 0x1u
#define DECAP_IPV6 0x2u
#define DECAP_ETHERNET 0x4u

/* RFC 6040 4.2, figure 4. `p->ecn` holds the inner field. */
INLINE verdict decap_ecn(struct packet *p, __u8 outer)
{
	if (outer == ECN_CE && p->ecn == ECN_NOT_ECT)
		return drop(ecn);
	if ((outer == ECN_CE && p->ecn != ECN_CE) || (outer == ECN_ECT1 && p->ecn == ECN_ECT0)) {
		p->ecn = outer;
		p->plan |= PLAN_ECN;
	}
	return VERDICT_CONTINUE;
}

/* Next Header that announced the inner packet: 4, 41 or 143. */
INLINE __u8 decap_type(const struct packet *p)
{
	if (p->plan & PLAN_FRAME)
		return PROTO_ETHERNET;
	return p->version == 6 ? PROTO_IPV6 : PROTO_IPV4;
}

/* Makes the packet at the cursor the current one, if its type is accepted. */
INLINE verdict decap_inner(ENV *e, struct packet *p, __u32 accepted)
{
	__u8 outer_ecn = p->ecn;
	__u32 inner = p->cursor, end = p->end;
	verdict v = VERDICT_CONTINUE;

	p->srh = 0;
	p->srh_seen = 0;
	p->hops = 0;
	if (p->proto == PROTO_IPV6 && (accepted & DECAP_IPV6)) {
		p->plan = PLAN_STRIP;
		v = ipv6_read(e, p, inner, end, 1);
		p->view = p->view6;
	} else if (p->proto == PROTO_IPV4 && (accepted & DECAP_IPV4)) {
		p->plan = PLAN_STRIP;
		v = ipv4_read(e, p, inner, end, 1);
		p->view = p->view4;
	} else if (p->proto == PROTO_ETHERNET && (accepted & DECAP_ETHERNET)) {
		if (inner + ETH_LENGTH > end)
			return drop(inner_header);
		p->l3 = inner + ETH_LENGTH;
		p->version = 0;
		p->plan = PLAN_STRIP | PLAN_FRAME;
	} else if (p->proto == PROTO_FRAGMENT) {
		return punt(fragment);
	} else {
		/*
		 * RFC 8986 4.1.1. The outer packet is still the current one, so the ICMP error goes
		 * to its source.
		 */
		return ext_refuse(p, drop(upper_layer));
	}
	if (v != VERDICT_CONTINUE)
		return v;
	env_trace(e, SIDESTEP_TRACE_DECAP, decap_type(p), inner, p->destination);
	return p->plan & PLAN_FRAME ? VERDICT_CONTINUE : decap_ecn(p, outer_ecn);
}

INLINE verdict decap(ENV *e, struct packet *p, __u32 accepted)
{
	verdict v;

	if (p->segments_left)
		return drop(segments_left_not_zero);
	v = ext_walk(e, p, 0);
	if (v != VERDICT_CONTINUE)
		return v;
	/* RFC 8986 4.4 S02 (End.DX6), and the same in 4.5 to 4.9. This includes a reduced SRH. */
	if (p->segments_left)
		return drop(segments_left_not_zero);
	return decap_inner(e, p, accepted);
}

#endif
