/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Processing of a packet at a SID. All behaviors take the same path:
 *
 *   checks -> O-flag copy -> phase 1: plan -> authentication -> phase 2 -> choice of the next hop
 *
 * Phase 1 reads the packet and plans. It returns VERDICT_AUTHENTICATE if the behavior has work that
 * needs an authenticated packet, such as learning headers. Phase 2 does that work. A new behavior
 * is a case in endpoint_plan().
 */
#ifndef SIDESTEP_ENDPOINT_H
#define SIDESTEP_ENDPOINT_H

#include "behavior/end.h"
#include "behavior/end_ad.h"
#include "behavior/end_am.h"
#include "behavior/end_as.h"
#include "behavior/end_b6.h"
#include "behavior/end_dt4.h"
#include "behavior/end_dt46.h"
#include "behavior/end_dt6.h"
#include "behavior/end_dx2.h"
#include "behavior/end_dx2v.h"
#include "behavior/end_dx4.h"
#include "behavior/end_dx6.h"
#include "behavior/end_t.h"
#include "behavior/end_x.h"
#include "hmac/verify.h"
#include "next_hop.h"
#include "oam.h"

/* Phase 1. */
SUBPROGRAM verdict endpoint_plan(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	if (!p || !r)
		return punt(unsupported);
	/* A planned push was carried out before (commit_push). */
	if (p->version != 6 || (p->plan & PLAN_PUSH))
		return punt(unsupported);
	/* The port has to accept SIDs (net.ipv6.conf.IF.seg6_enabled). */
	if (!(p->port_flags & SIDESTEP_PORT_SEG6))
		return punt(seg6_disabled);
	/* XDP has made the copy of a deferred frame. */
	if (unlikely(p->port_flags & SIDESTEP_PORT_O_FLAG) && !ENV_DEFERRED)
		oam_copy(e, p);
	switch (r->action) {
	case SIDESTEP_ROUTE_END:
		return end(e, p, r);
	case SIDESTEP_ROUTE_END_X:
		return end_x(e, p, r);
	case SIDESTEP_ROUTE_END_T:
		return end_t(e, p, r);
	case SIDESTEP_ROUTE_END_DX2:
	case SIDESTEP_ROUTE_END_DT2U:
	case SIDESTEP_ROUTE_END_DT2M:
		return end_dx2(e, p, r);
	case SIDESTEP_ROUTE_END_DX2V:
		return end_dx2v(e, p, r);
	case SIDESTEP_ROUTE_END_DX4:
		return end_dx4(e, p, r);
	case SIDESTEP_ROUTE_END_DX6:
		return end_dx6(e, p, r);
	case SIDESTEP_ROUTE_END_DT4:
		return end_dt4(e, p, r);
	case SIDESTEP_ROUTE_END_DT6:
		return end_dt6(e, p, r);
	case SIDESTEP_ROUTE_END_DT46:
		return end_dt46(e, p, r);
	case SIDESTEP_ROUTE_END_AM:
		return end_am(e, p, r);
	case SIDESTEP_ROUTE_END_AD:
		return end_ad(e, p, r);
	case SIDESTEP_ROUTE_END_AS:
		return end_as(e, p, r);
	case SIDESTEP_ROUTE_END_B6_ENCAPS:
		return end_b6_encaps(e, p, r);
	case SIDESTEP_ROUTE_END_B6_INSERT:
		return end_b6_insert(e, p, r);
	default:
		return punt(unsupported);
	}
}

/* Phase 2: the packet is authentic as far as the port and the SID require it. */
INLINE verdict endpoint_authenticated(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	switch (r->action) {
	case SIDESTEP_ROUTE_END_AD:
		return end_ad_authenticated(e, p, r);
	default:
		return punt(unsupported);
	}
}

/*
 * Processes the packet at the SID of route `r`. A drop in phase 1 comes before authentication; any
 * other verdict is valid only after it.
 */
INLINE verdict endpoint(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	verdict v, authentic;

	if (unlikely(r->flags & SIDESTEP_ROUTE_REQUIRE_HMAC))
		hmac_begin(p);
	v = endpoint_plan(e, p, r);
	/* RFC 8883 3.3: headers for this SID that cannot be read. The kernel would not check them. */
	if (unlikely(v == punt(ext_chain)))
		v = drop(chain_too_long);
	if (VERDICT_KIND(v) == VERDICT_DROP)
		return v;
	authentic = hmac_authenticate(e, p, r);
	if (authentic != VERDICT_CONTINUE)
		return authentic;
	if (unlikely(v == VERDICT_AUTHENTICATE))
		v = endpoint_authenticated(e, p, r);
	if (unlikely(v == forward(0)))
		v = next_hop_choose(e, p, r);
	return v;
}

#endif
