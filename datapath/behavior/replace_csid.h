/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * REPLACE-C-SID (RFC 9800 4.2): entries of the segment list are containers of C-SIDs, filled from
 * the right:
 *
 *    0                                              127
 *   | C-SID 0 | C-SID 1 | ...             | C-SID K-1 |    K = 128 / C-SID length: 4 or 8
 *
 * The destination address is Locator-Block | C-SID | Argument. The last 2 or 3 bits of the Argument
 * (DA.Arg.Index) are the number of this C-SID in Segment List[Segments Left]. The C-SID to the left
 * replaces it. After C-SID 0, or before a C-SID that is 0, the entry at Segments Left - 1 follows.
 */
#ifndef SIDESTEP_BEHAVIOR_REPLACE_CSID_H
#define SIDESTEP_BEHAVIOR_REPLACE_CSID_H

#include "../read/ext.h"
#include "csid.h"
#include "advance.h"

/*
 * Writes a C-SID into bits LBL to LBL+LNFL-1 of the destination, and DA.Arg.Index (RFC 9800 4.2.1
 * R20, R05, R17).
 */
INLINE void replace_destination(struct packet *p, const struct sidestep_route *r, __u32 csid,
				__u32 index, __u32 last)
{
	struct address_bits address = {be64(p->destination.hi), be64(p->destination.lo)};
	struct address_bits mask = {0, r->function_bits == 32 ? 0xffffffffull : 0xffffull},
			    bits = {0, csid};
	__u32 shift = 128u - r->block_bits - r->function_bits;

	mask = address_shift_left(mask, shift);
	bits = address_shift_left(bits, shift);
	address.high = (address.high & ~mask.high) | bits.high;
	address.low = (((address.low & ~mask.low) | bits.low) & ~(__u64)last) | index;
	p->destination.hi = be64(address.high);
	p->destination.lo = be64(address.low);
	p->plan |= PLAN_DESTINATION | PLAN_SEGMENTS_LEFT;
}

/*
 * Finds the SRH that the SID processes: the active one, one whose last entry an earlier local SID
 * has reached, or the next one in the packet. VERDICT_ULTIMATE: no SRH has a further C-SID (S02).
 */
INLINE verdict replace_srh(ENV *e, struct packet *p, __u32 how)
{
	enum srh_rest rest;
	verdict v;

	if (p->segments_left)
		return VERDICT_CONTINUE;
	if (p->srh) {
		rest = srh_rest(e, p, p->srh, p->srh_length);
		if (rest == SRH_UNREADABLE)
			return punt(ext_chain);
		if (rest == SRH_HOLDS_CSID)
			return VERDICT_CONTINUE;
	}
	v = srh_first(e, p, how);
	if (v != VERDICT_CONTINUE)
		return v;
	return p->proto == PROTO_ROUTING ? VERDICT_CONTINUE : VERDICT_ULTIMATE;
}

/*
 * RFC 9800 4.2.1 for the SRH that was found. The reader has checked that Last Entry fits the SRH,
 * and Segments Left (R13).
 */
INLINE verdict replace_step(ENV *e, struct packet *p, const struct sidestep_route *r, __u32 last)
{
	__u32 index = p->csid.index, csid, next = 0;
	__u8 length = p->csid.length;
	const __u8 *srh;
	verdict v;

	if (index) { /* R01 */
		srh = env_bytes(e, p->srh, 8);
		if (!srh)
			return punt(ext_chain);
		if (p->segments_left > srh[SRH_LAST_ENTRY]) /* R02 */
			return drop(srh_segments_left);
		index--; /* R05 */
	} else {
		p->segments_left--; /* R16 */
		index = last;       /* R17 */
	}
	if (!csid_load(e,
		       p->srh + SRH_SEGMENTS + p->segments_left * SEGMENT_LENGTH + index * length,
		       length, &csid))
		return punt(ext_chain);
	/* R06 to R10: the container is not full. The next entry is a whole segment. */
	if (!csid && p->csid.index)
		return advance_segment(e, p, r);
	v = hop_limit_take(p); /* S05 */
	if (v != VERDICT_CONTINUE)
		return v;
	replace_destination(p, r, csid, index, last); /* R20 */
	env_trace(e, SIDESTEP_TRACE_REPLACE_CSID, p->segments_left, index, p->destination);
	if (p->segments_left)
		return VERDICT_CONTINUE;
	/* RFC 9800 4.2.8, R20.1: the new C-SID is the last one if no C-SID follows it. */
	if (index && !csid_load(e, p->srh + SRH_SEGMENTS + (index - 1) * length, length, &next))
		return punt(ext_chain);
	return advance_used_up(e, p, (r->flags & SIDESTEP_ROUTE_PSP) && !next);
}

/* Processes the SID. VERDICT_ULTIMATE: the segment list has no further C-SID (S03). */
SUBPROGRAM verdict replace_csid(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	__u32 last;
	verdict v;

	if (!p || !r)
		return punt(unsupported);
	last = r->function_bits == 32 ? 3 : 7;
	p->csid.length = r->function_bits == 32 ? 4 : 2;
	p->csid.index = (__u8)(be64(p->destination.lo) & last);
	v = replace_srh(e, p, r->flags & WALK_USP);
	if (v == VERDICT_CONTINUE)
		v = replace_step(e, p, r, last);
	p->csid.length = 0;
	return v;
}

#endif
