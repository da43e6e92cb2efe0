/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The extension header chain of the current IPv6 packet (RFC 8200 4), walked in order, as far as a SID needs it: to the
 * first SRH whose Segments Left is not 0 (a routing header with 0 is passed over, RFC 8200 4.4), or to the upper-layer
 * header. The walk goes on from where the last one stopped.
 *
 * What lies in the packet but cannot be read in place (beyond OFFSET_MAX, or not in the linear part of an skb or XDP
 * frame) is the kernel's, not an error of the packet.
 */
#ifndef SIDESTEP_READ_EXT_H
#define SIDESTEP_READ_EXT_H

#include "../hmac/state.h"
#include "../packet.h"
#include "../wire/ext.h"
#include "../wire/ipv6.h"
#include "../wire/srh.h"

/* Whether the options of the Hop-by-Hop header at the cursor are only padding. Others ask something of every router. */
SUBPROGRAM int hop_by_hop_is_padding(ENV *e, __u32 offset, __u32 length)
{
	__u32 at = 2;

	for (int i = 0; i < SIDESTEP_HBH_OPTIONS_MAX; i++) {
		const __u8 *option;

		if (at >= length)
			return at == length;
		option = env_bytes(e, offset + at, 1);
		if (!option)
			return 0;
		if (*option == OPTION_PAD1) {
			at++;
			continue;
		}
		if (*option != OPTION_PADN)
			return 0;
		option = env_bytes(e, offset + at, 2);
		if (!option)
			return 0;
		at += 2 + option[1];
	}
	return 0;
}

/*
 * Only the Hop-by-Hop header: the rest of the chain is for the destination (RFC 8200 4). It is one only right behind the
 * IPv6 header (4.1); behind an SRH that a SID has passed it is nobody's on the way.
 */
INLINE verdict hop_by_hop(ENV *e, const struct packet *p)
{
	const __u8 *header = env_bytes(e, p->cursor, 2);
	__u32 length;

	if (p->cursor != p->l3 + IPV6_LENGTH)
		return VERDICT_CONTINUE;
	if (!header)
		return p->cursor + 2 <= p->end ? punt(ext_chain) : drop(ext_header);
	length = ext_length(header);
	if (p->cursor + length > p->end)
		return drop(ext_header);
	return hop_by_hop_is_padding(e, p->cursor, length) ? VERDICT_CONTINUE : punt(hop_by_hop);
}

/* The TLVs between Segment List and end of the SRH do not run past it: 0, or the verdict that ends the packet's way here. */
SUBPROGRAM verdict srh_tlvs(ENV *e, __u32 at, __u32 end)
{
	for (int i = 0; i < SIDESTEP_TLVS_MAX; i++) {
		const __u8 *tlv;

		if (at >= end)
			break;
		tlv = env_bytes(e, at, 1);
		if (!tlv)
			return punt(ext_chain);
		if (*tlv == SRH_TLV_PAD1) {
			at++;
			continue;
		}
		if (at + 2 > end)
			return drop(srh_tlv);
		tlv = env_bytes(e, at, 2);
		if (!tlv)
			return punt(ext_chain);
		at += 2 + tlv[1];
	}
	/* Nothing is done with them: what stands beyond the limit is passed on as it is. */
	return at > end ? drop(srh_tlv) : VERDICT_CONTINUE;
}

/* RFC 8754 4.3.1.1, the checks on an SRH that is to be processed. Makes it the active one. */
INLINE verdict srh_read(ENV *e, struct packet *p, const __u8 *srh, __u32 length)
{
	__u32 segments_end = SRH_SEGMENTS + (srh[SRH_LAST_ENTRY] + 1u) * SEGMENT_LENGTH;
	__u8 segments_left = srh[SRH_SEGMENTS_LEFT];

	p->srh = p->cursor;
	if (segments_end > length)
		return drop(srh_length);
	if (segments_left > srh[SRH_LAST_ENTRY] + 1u)
		return drop(srh_segments_left);
	/* Two SRHs to be changed in one pass would need two plans. */
	if (p->plan & (PLAN_SEGMENTS_LEFT | PLAN_POP))
		return punt(unsupported);
	p->srh_seen = 1;
	p->srh_length = length;
	p->srh_link = p->link;
	p->segments_left = segments_left;
	hmac_note(p, p->cursor, length, srh[SRH_FLAGS]);
	if (unlikely(segments_end < length))
		return srh_tlvs(e, p->cursor + segments_end, p->cursor + length);
	return VERDICT_CONTINUE;
}

/* The C-SID of `length` (2, 4) bytes at `at`. 0: it cannot be read in place. */
INLINE _Bool csid_load(ENV *e, __u32 at, __u8 length, __u32 *csid)
{
	const __u8 *bytes = env_bytes(e, at, 2);

	if (!bytes)
		return 0;
	*csid = be16(load16(bytes));
	if (length == 2)
		return 1;
	bytes = env_bytes(e, at, 4);
	if (!bytes)
		return 0;
	*csid = be32(load32(bytes));
	return 1;
}

/* What an SRH with Segments Left 0 has for a SID with REPLACE-C-SID. */
enum srh_rest {
	SRH_USED_UP,
	SRH_HOLDS_CSID,
	SRH_UNREADABLE /* not in place */
};

/*
 * RFC 9800 4.2.1 S02: is there a C-SID before the current one (that of DA.Arg.Index) in Segment List[0]? An SRH without
 * room for that entry is not used up: it cannot be, as the checks that follow find.
 */
INLINE enum srh_rest srh_rest(ENV *e, const struct packet *p, __u32 srh, __u32 length)
{
	__u32 csid;

	if (!p->csid.length || !p->csid.index)
		return SRH_USED_UP;
	if (length < SRH_SEGMENTS + SEGMENT_LENGTH)
		return SRH_HOLDS_CSID;
	if (!csid_load(e, srh + SRH_SEGMENTS + (p->csid.index - 1u) * p->csid.length, p->csid.length, &csid))
		return SRH_UNREADABLE;
	return csid ? SRH_HOLDS_CSID : SRH_USED_UP;
}

/*
 * Walks on. Continue: p->srh is an SRH with Segments Left > 0 (or one that holds a further C-SID, srh_rest) and p->proto is
 * PROTO_ROUTING, or p->proto at p->cursor is the upper-layer protocol (a fragment header counts as one: nothing behind it
 * can be processed before reassembly).
 */
SUBPROGRAM verdict ext_walk(ENV *e, struct packet *p)
{
	if (!p)
		return punt(unsupported);
	for (int i = 0; i < SIDESTEP_EXT_HEADERS_MAX; i++) {
		const __u8 *header;
		__u32 length;

		if (!ext_is_walked(p->proto))
			return VERDICT_CONTINUE;
		header = env_bytes(e, p->cursor, 8);
		if (!header)
			return p->cursor + 8 <= p->end ? punt(ext_chain) : drop(ext_header);
		length = ext_length(header);
		if (p->cursor + length > p->end) {
			if (p->proto != PROTO_ROUTING || header[SRH_ROUTING_TYPE] != ROUTING_TYPE_SRH)
				return drop(ext_header);
			p->srh = p->cursor;
			return drop(srh_length);
		}
		if (p->proto == PROTO_ROUTING) {
			p->srh_seen = 1;
			if (header[SRH_SEGMENTS_LEFT]) {
				if (header[SRH_ROUTING_TYPE] != ROUTING_TYPE_SRH)
					return punt(routing_header);
				return srh_read(e, p, header, length);
			}
			if (header[SRH_ROUTING_TYPE] == ROUTING_TYPE_SRH) {
				enum srh_rest rest = srh_rest(e, p, p->cursor, length);

				if (rest == SRH_UNREADABLE)
					return punt(ext_chain);
				if (rest == SRH_HOLDS_CSID)
					return srh_read(e, p, header, length);
			}
			/* Nothing to process (RFC 8754 4.3.1.1 S03), but Linux verifies an HMAC here too: of the first one. */
			if (header[SRH_ROUTING_TYPE] == ROUTING_TYPE_SRH && !p->hmac.srh)
				hmac_note(p, p->cursor, length, header[SRH_FLAGS]);
		} else if (p->proto == PROTO_HOP_BY_HOP && !hop_by_hop_is_padding(e, p->cursor, length)) {
			return punt(hop_by_hop);
		}
		p->link = p->cursor;
		p->cursor = ext_next(header, p->cursor, &p->proto);
	}
	return punt(ext_chain);
}

/*
 * As ext_walk. PERF: the usual packet has its SRH right where the walk begins; for it the walk's loop is not entered
 * (4 of 130 ns of End.X).
 */
INLINE verdict srh_first(ENV *e, struct packet *p)
{
	const __u8 *header = env_bytes(e, p->cursor, 8);
	__u32 length;

	if (!header || p->proto != PROTO_ROUTING || header[SRH_ROUTING_TYPE] != ROUTING_TYPE_SRH ||
	    !header[SRH_SEGMENTS_LEFT])
		return ext_walk(e, p);
	length = ext_length(header);
	if (p->cursor + length > p->end) {
		p->srh = p->cursor;
		return drop(srh_length);
	}
	return srh_read(e, p, header, length);
}

#endif
