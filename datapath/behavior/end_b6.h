/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Endpoints bound to an SRv6 policy.
 *
 * End.B6.Encaps and End.B6.Encaps.Red (RFC 8986 4.13, 4.14): End, then H.Encaps.
 *
 * End.B6.Insert, as in Linux (End.B6 in net/ipv6/seg6_local.c): inserts an SRH before the existing
 * one, whose Segments Left is unchanged. This SID is the last segment of the inserted SRH, so the
 * packet returns to it.
 */
#ifndef SIDESTEP_BEHAVIOR_END_B6_H
#define SIDESTEP_BEHAVIOR_END_B6_H

#include "end.h"
#include "headend.h"

INLINE verdict end_b6_encaps(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	verdict v = endpoint_advance(e, p, r);

	return v != VERDICT_CONTINUE ? v : headend(e, p, r);
}

INLINE verdict end_b6_insert(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	verdict v = srh_required(e, p);

	if (v == VERDICT_CONTINUE)
		v = hop_limit_take(p);
	return v == VERDICT_CONTINUE ? headend(e, p, r) : v;
}

#endif
