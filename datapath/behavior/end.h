/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* End (RFC 8986 4.1): the next segment becomes the destination address, which is then looked up. */
#ifndef SIDESTEP_BEHAVIOR_END_H
#define SIDESTEP_BEHAVIOR_END_H

#include "csid.h"
#include "decap.h"
#include "replace_csid.h"

/*
 * Segments Left is 0 (RFC 8986 4.1 S02, 4.1.1). USD makes the inner packet the current one, for the
 * SID's lookup or adjacency (4.16.3). With USP, the walk has removed the used SRHs (4.16.2). The
 * upper-layer header behind them is dropped, because End accepts none.
 */
INLINE verdict endpoint_ultimate(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	if (r->flags & SIDESTEP_ROUTE_USD)
		return decap(e, p, DECAP_IPV4 | DECAP_IPV6);
	if (!p->srh_seen)
		return ext_refuse(p, drop(no_srh));
	return ext_refuse(p, r->flags & SIDESTEP_ROUTE_USP ? drop(upper_layer) :
							     drop(segments_left_zero));
}

/*
 * Common part of End, End.X, End.T and End.B6.Encaps: RFC 8986 4.1 S01 to S14, the flavors of 4.16,
 * and compressed SIDs.
 */
INLINE verdict endpoint_advance(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	if (r->flags & SIDESTEP_ROUTE_REPLACE_CSID) {
		verdict v = replace_csid(e, p, r);

		return v == VERDICT_ULTIMATE ? endpoint_ultimate(e, p, r) : v;
	}
	if (csid_next(e, p, r)) {
		verdict v = hop_limit_take(p);

		return v == VERDICT_CONTINUE && p->proto == PROTO_HOP_BY_HOP ? hop_by_hop(e, p, 0) :
									       v;
	}
	if (!p->segments_left) {
		verdict v = srh_first(e, p, r->flags & WALK_USP);

		if (v != VERDICT_CONTINUE)
			return v;
		if (!p->segments_left)
			return endpoint_ultimate(e, p, r);
	}
	return advance_segment(e, p, r);
}

INLINE verdict end(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	verdict v = endpoint_advance(e, p, r);

	if (v != VERDICT_CONTINUE)
		return v;
	/* After USD, the packet may be IPv4. */
	p->view = p->version == 6 ? p->view6 : p->view4;
	return lookup();
}

#endif
