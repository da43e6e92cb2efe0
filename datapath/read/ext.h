/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reads the extension headers of the current IPv6 packet (RFC 8200 4) in order, as far as a SID
 * needs them: to the first SRH whose Segments Left is not 0, or to the upper-layer header. Routing
 * headers with Segments Left 0 are passed (RFC 8200 4.4), or removed (USP). A walk starts where the
 * last one stopped.
 *
 * Headers that cannot be read in place have the verdict punt(ext_chain): they are beyond OFFSET_MAX,
 * or not in the linear part of an skb or XDP frame. endpoint.h decides about them.
 */
#ifndef SIDESTEP_READ_EXT_H
#define SIDESTEP_READ_EXT_H

#include "../hmac/state.h"
#include "../pop.h"
#include "../wire/ext.h"
#include "../wire/ipv6.h"
#include "../wire/srh.h"

/* How a walk treats the headers, besides 0. */
#define WALK_USP SIDESTEP_ROUTE_USP /* removes SRHs with Segments Left 0 (RFC 8986 4.16.2) */
#define WALK_PEEK 0x100u            /* only looks, because the destination is another node */

/*
 * Obeys the options of the Hop-by-Hop or Destination Options header at the cursor (RFC 8200 4.2).
 * Padding is the only known option; the type of any other says whether the packet is discarded. The
 * cursor then is at that option.
 *
 * `kernel`: the packet is forwarded as it arrived, by a route of the kernel, which processes all
 * Hop-by-Hop options but padding (ipv6_parse_hopopts in net/ipv6/exthdrs.c).
 */
SUBPROGRAM verdict options_read(ENV *e, struct packet *p, __u32 length, _Bool kernel)
{
	__u32 at = 2;

	if (!p)
		return punt(unsupported);
	for (int i = 0; i < SIDESTEP_OPTIONS_MAX; i++) {
		const __u8 *option;

		if (at >= length)
			break;
		option = env_bytes(e, p->cursor + at, 1);
		if (!option)
			break;
		if (*option == OPTION_PAD1) {
			at++;
			continue;
		}
		if (*option != OPTION_PADN && kernel)
			return punt(hop_by_hop);
		if (*option & OPTION_ACTION) {
			p->cursor += at;
			return drop(unknown_option);
		}
		at += 2;
		if (at > length)
			break;
		option = env_bytes(e, p->cursor + at - 2, 2);
		if (!option)
			return kernel ? punt(hop_by_hop) : punt(ext_chain);
		at += option[1];
	}
	if (at == length)
		return VERDICT_CONTINUE;
	if (kernel)
		return punt(hop_by_hop);
	if (at > length)
		return drop(ext_header);
	p->cursor += at;
	return drop(too_many_options);
}

/*
 * Checks a Hop-by-Hop header directly behind the IPv6 header. Elsewhere it is not one (RFC 8200
 * 4.1); all other extension headers are for the destination only (RFC 8200 4). `kernel`: see
 * options_read().
 */
INLINE verdict hop_by_hop(ENV *e, struct packet *p, _Bool kernel)
{
	const __u8 *header = env_bytes(e, p->cursor, 2);
	__u32 length;

	if (p->cursor != p->l3 + IPV6_LENGTH)
		return VERDICT_CONTINUE;
	if (!header)
		return p->cursor + 2 <= p->end ? punt(ext_chain) : drop(ext_header);
	length = ext_length(header, PROTO_HOP_BY_HOP);
	if (p->cursor + length > p->end)
		return drop(ext_header);
	return options_read(e, p, length, kernel);
}

/*
 * Checks that the TLVs of the SRH end within it. Returns CONTINUE, or the verdict for the packet.
 */
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
	/* TLVs beyond the limit are not checked. They are forwarded unmodified. */
	return at > end ? drop(srh_tlv) : VERDICT_CONTINUE;
}

/* Drops a packet that ends within its SRH. icmp_value() finds the cursor at the end of the packet. */
INLINE verdict srh_beyond_packet(struct packet *p)
{
	p->srh = (__u16)p->cursor;
	p->cursor = p->end;
	return drop(srh_length);
}

/* Checks the SRH (RFC 8754 4.3.1.1) and makes it the active one. */
INLINE verdict srh_read(ENV *e, struct packet *p, const __u8 *srh, __u32 length)
{
	__u32 segments_end = SRH_SEGMENTS + (srh[SRH_LAST_ENTRY] + 1u) * SEGMENT_LENGTH;
	__u8 segments_left = srh[SRH_SEGMENTS_LEFT];

	p->srh = (__u16)p->cursor;
	if (segments_end > length)
		return drop(srh_length);
	if (segments_left > srh[SRH_LAST_ENTRY] + 1u)
		return drop(srh_segments_left);
	/* A plan can change one SRH only. It may remove those before it. */
	if (p->plan & PLAN_SEGMENTS_LEFT)
		return punt(unsupported);
	p->srh_seen = 1;
	p->srh_length = (__u16)length;
	p->srh_link = (__u16)p->link;
	p->segments_left = segments_left;
	hmac_note(p, p->cursor, length, srh[SRH_FLAGS]);
	if (unlikely(segments_end < length))
		return srh_tlvs(e, p->cursor + segments_end, p->cursor + length);
	return VERDICT_CONTINUE;
}

/* Loads the C-SID of `length` (2 or 4) bytes at `at`. Returns false if it is not in place. */
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

/* State of an SRH with Segments Left 0, for a SID with REPLACE-C-SID. */
enum srh_rest {
	SRH_USED_UP,
	SRH_HOLDS_CSID,
	SRH_UNREADABLE /* not in place */
};

/*
 * RFC 9800 4.2.1 S02: is there a C-SID before the current one (DA.Arg.Index) in Segment List[0]? An
 * SRH that is too short for that entry counts as holding one, so that srh_read() rejects it.
 */
INLINE enum srh_rest srh_rest(ENV *e, const struct packet *p, __u32 srh, __u32 length)
{
	__u32 csid;

	if (!p->csid.length || !p->csid.index)
		return SRH_USED_UP;
	if (length < SRH_SEGMENTS + SEGMENT_LENGTH)
		return SRH_HOLDS_CSID;
	if (!csid_load(e, srh + SRH_SEGMENTS + (p->csid.index - 1u) * p->csid.length,
		       p->csid.length, &csid))
		return SRH_UNREADABLE;
	return csid ? SRH_HOLDS_CSID : SRH_USED_UP;
}

/* Obeys the options at the cursor, if they are for this node. */
INLINE verdict ext_options(ENV *e, struct packet *p, __u32 length, __u32 how)
{
	_Bool first = p->cursor == p->l3 + IPV6_LENGTH;

	if (p->proto == PROTO_HOP_BY_HOP ? first : !(how & WALK_PEEK))
		return options_read(e, p, length, 0);
	return how & WALK_PEEK ? VERDICT_CONTINUE : drop(hop_by_hop_order);
}

/* Removes the active SRH, whose segments an earlier local SID has used up. */
INLINE verdict srh_pop_active(ENV *e, struct packet *p)
{
	const __u8 *srh = env_bytes(e, p->srh, 8);

	if (!srh)
		return punt(ext_chain);
	return srh_pop(e, p, p->srh, p->srh_length, p->srh_link, srh[SRH_NEXT_HEADER]);
}

/*
 * Walks the extension headers. CONTINUE means one of two results: p->proto is PROTO_ROUTING, and
 * p->srh is an SRH with Segments Left > 0 or with a further C-SID (srh_rest); or p->proto at
 * p->cursor is the upper-layer protocol. A Fragment header counts as upper layer if the rest needs
 * reassembly. `how` is a combination of WALK_*.
 */
SUBPROGRAM verdict ext_walk(ENV *e, struct packet *p, __u32 how)
{
	verdict v = VERDICT_CONTINUE;

	if (!p)
		return punt(unsupported);
	if ((how & WALK_USP) && p->srh)
		v = srh_pop_active(e, p);
	for (int i = 0; i < SIDESTEP_EXT_HEADERS_MAX; i++) {
		const __u8 *header;
		__u32 length;

		if (v != VERDICT_CONTINUE ||
		    (!ext_is_walked(p->proto) && p->proto != PROTO_FRAGMENT))
			return v;
		header = env_bytes(e, p->cursor, 8);
		if (!header)
			return p->cursor + 8 <= p->end ? punt(ext_chain) : drop(ext_header);
		length = ext_length(header, p->proto);
		if (p->cursor + length > p->end) {
			if (p->proto != PROTO_ROUTING ||
			    header[SRH_ROUTING_TYPE] != ROUTING_TYPE_SRH)
				return drop(ext_header);
			return srh_beyond_packet(p);
		}
		if (!ext_is_passed(header, p->proto))
			return VERDICT_CONTINUE;
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
			/*
			 * There is no segment to process (RFC 8754 4.3.1.1 S03), but Linux verifies
			 * the HMAC of the first such SRH.
			 */
			if (header[SRH_ROUTING_TYPE] == ROUTING_TYPE_SRH && !p->hmac.srh)
				hmac_note(p, p->cursor, length, header[SRH_FLAGS]);
			if ((how & WALK_USP) && header[SRH_ROUTING_TYPE] == ROUTING_TYPE_SRH)
				v = srh_pop(e, p, p->cursor, length, p->link,
					    header[SRH_NEXT_HEADER]);
		} else if (p->proto != PROTO_FRAGMENT) {
			v = ext_options(e, p, length, how);
			if (v != VERDICT_CONTINUE)
				return v;
		}
		p->link = p->cursor;
		p->cursor = ext_next(header, p->cursor, &p->proto);
	}
	if (v == VERDICT_CONTINUE && (ext_is_walked(p->proto) || p->proto == PROTO_FRAGMENT))
		return drop(too_many_headers);
	return v;
}

/*
 * ext_walk() with a fast path. PERF: most packets have their SRH at the start of the walk; skipping
 * the loop saves 4 of the 130 ns of End.X. USP removes the active SRH first.
 */
INLINE verdict srh_first(ENV *e, struct packet *p, __u32 how)
{
	const __u8 *header = env_bytes(e, p->cursor, 8);
	__u32 length;

	if (unlikely(how & WALK_USP) || !header || p->proto != PROTO_ROUTING ||
	    header[SRH_ROUTING_TYPE] != ROUTING_TYPE_SRH || !header[SRH_SEGMENTS_LEFT])
		return ext_walk(e, p, how);
	length = ext_length(header, PROTO_ROUTING);
	if (p->cursor + length > p->end)
		return srh_beyond_packet(p);
	return srh_read(e, p, header, length);
}

/*
 * Returns the verdict for a packet whose upper-layer header no SID accepts. This is `otherwise`,
 * unless that header is an extension header. RFC 8200 4.5: nothing is reassembled here. RFC 4302
 * 3.4.2 and RFC 4303 3.4.2: a packet without a security association is discarded.
 */
INLINE verdict ext_refuse(const struct packet *p, verdict otherwise)
{
	switch (p->proto) {
	case PROTO_FRAGMENT:
		return drop(reassembly);
	case PROTO_AUTHENTICATION:
	case PROTO_ESP:
		return drop(security_association);
	default:
		return otherwise;
	}
}

/*
 * Finds the SRH for a behavior that needs a further segment. Drops a packet without an SRH, or with
 * Segments Left 0 (RFC 8986 4.1.1, 4.1 S02).
 */
INLINE verdict srh_required(ENV *e, struct packet *p)
{
	verdict v = p->segments_left ? VERDICT_CONTINUE : srh_first(e, p, 0);

	if (v != VERDICT_CONTINUE || p->segments_left)
		return v;
	return ext_refuse(p, p->srh_seen ? drop(segments_left_zero) : drop(no_srh));
}

#endif
