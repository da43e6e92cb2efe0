/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Moves to the next segment of the active SRH (RFC 8986 4.1 S13 to S15), and pops the SRH for PSP
 * (4.16.1).
 */
#ifndef SIDESTEP_BEHAVIOR_ADVANCE_H
#define SIDESTEP_BEHAVIOR_ADVANCE_H

#include "../pop.h"
#include "../wire/ipv6.h"
#include "../wire/srh.h"

/*
 * RFC 4291 2.7, 2.5.2, 2.5.3 and 2.5.6: addresses to which no segment may lead. The first byte
 * excludes most addresses with one comparison.
 */
INLINE _Bool segment_is_unusable(struct address a)
{
	return unlikely((__u8)(a.hi + 2) <= 2) && (ipv6_is_multicast(a) || ipv6_is_link_local(a) ||
						   ipv6_is_unspecified_or_loopback(a));
}

/* Makes Segment List[index] of the active SRH, as the plan leaves it, the destination. */
INLINE verdict segment_load(ENV *e, struct packet *p, __u32 index)
{
	__u32 at = !index && (p->plan & PLAN_LAST_SEGMENT) ?
			   p->l3 + IPV6_DESTINATION :
			   p->srh + SRH_SEGMENTS + index * SEGMENT_LENGTH;
	const __u8 *bytes = env_bytes(e, at, SEGMENT_LENGTH);

	if (!bytes)
		return punt(ext_chain);
	p->destination = load_address(bytes);
	return segment_is_unusable(p->destination) ? drop(segment_address) : VERDICT_CONTINUE;
}

/*
 * Moves the cursor past the active SRH after its last segment, so that the walk continues there.
 * `pop` removes it (PSP, RFC 8986 4.16.1 S14.1).
 */
INLINE verdict advance_used_up(ENV *e, struct packet *p, _Bool pop)
{
	const __u8 *srh = env_bytes(e, p->srh, 8);

	if (!srh)
		return punt(ext_chain);
	p->link = p->srh;
	p->proto = srh[SRH_NEXT_HEADER];
	p->cursor = p->srh + p->srh_length;
	return pop ? srh_pop(e, p, p->srh, p->srh_length, p->srh_link, p->proto) : VERDICT_CONTINUE;
}

/* Requires an active SRH with Segments Left greater than 0. */
INLINE verdict advance_segment(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	verdict v = hop_limit_take(p);

	if (v != VERDICT_CONTINUE)
		return v;
	p->segments_left--;
	v = segment_load(e, p, p->segments_left);
	if (v != VERDICT_CONTINUE)
		return v;
	p->plan |= PLAN_DESTINATION | PLAN_SEGMENTS_LEFT;
	env_trace(e, SIDESTEP_TRACE_SRH, p->srh, p->segments_left, p->destination);
	return p->segments_left ? VERDICT_CONTINUE :
				  advance_used_up(e, p, (r->flags & SIDESTEP_ROUTE_PSP) != 0);
}

#endif
