/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Carries out a plan in one pass: moves the headers before a popped SRH, changes the size once, and
 * writes every changed field. This file decides nothing. A failure leaves the packet unchanged,
 * except for REWRITE_BROKEN.
 */
#ifndef SIDESTEP_REWRITE_H
#define SIDESTEP_REWRITE_H

#include "flow.h"
#include "hmac/sign.h"
#include "insert.h"
#include "liveness.h"
#include "tag.h"
#include "table/learned.h"
#include "wire/eth.h"
#include "wire/srh.h"

enum rewrite_result {
	REWRITE_DONE,
	REWRITE_REFUSED, /* no room; the packet is unchanged */
	REWRITE_BROKEN   /* the packet has changed and must be dropped */
};

/* LIMIT: 8-byte units of headers before a popped or inserted SRH, IPv6 header included. */
#define REWRITE_MOVED_UNITS (INSERT_MOVED_MAX / 8)

/*
 * RFC 8986 4.16.1, 4.16.2: removes SRHs. The headers before them, from p->l3 on, move up to their
 * end, in 8-byte units from the last one. Header lengths are multiples of 8 bytes (RFC 8200 4).
 */
INLINE enum rewrite_result rewrite_pop(ENV *e, struct packet *p)
{
	__u8 *ip = env_bytes(e, p->l3, IPV6_LENGTH);
	__u8 *link = env_bytes(e, p->pop_link, 1);
	__u32 units = (p->pop - p->l3) / 8;

	if (!ip || !link || units > REWRITE_MOVED_UNITS)
		return REWRITE_REFUSED;
	*link = p->pop_next;
	store16(ip + IPV6_PAYLOAD_LENGTH,
		be16(be16(load16(ip + IPV6_PAYLOAD_LENGTH)) - p->pop_length));
	for (__u32 i = 0; i < REWRITE_MOVED_UNITS; i++) {
		__u8 *from, *to;

		if (i >= units)
			break;
		from = env_bytes(e, p->pop - 8 - i * 8, 8);
		to = env_bytes(e, p->pop + p->pop_length - 8 - i * 8, 8);
		if (!from || !to)
			return REWRITE_BROKEN;
		store64(to, load64(from));
	}
	p->l3 += p->pop_length;
	return REWRITE_DONE;
}

/*
 * Checks that a push has room, before steps that cannot be undone: a pop, and the trim of bytes
 * behind a decapsulated packet. TC always makes room, so only reversible targets try.
 */
INLINE enum rewrite_result rewrite_has_room(ENV *e, const struct packet *p)
{
	const struct sidestep_policy *policy = env_policy(e, p->policy);
	int more;

	if (!policy)
		return REWRITE_REFUSED;
	more = (int)policy->length + ETH_LENGTH - (int)p->l3;
	if (p->plan & PLAN_ENCAP_FRAME)
		more += ETH_LENGTH + tag_growth(p);
	if (p->plan & PLAN_POP)
		more -= (int)p->pop_length;
	if (!ENV_SHIFT_REVERSIBLE || more <= 0)
		return REWRITE_DONE;
	if (env_shift(e, -more, ENV_SHIFT_PLAIN) < 0)
		return REWRITE_REFUSED;
	return env_shift(e, more, ENV_SHIFT_PLAIN) < 0 ? REWRITE_BROKEN : REWRITE_DONE;
}

/* Writes the last 8 bytes of a policy's header, from offset `from`: the end of an HMAC TLV. */
INLINE int rewrite_rest(ENV *e, const struct sidestep_policy *policy, __u32 to, __u32 from)
{
	__u8 *out = env_bytes(e, to, 8);

	if (!out)
		return -1;
	store64(out, load64(policy->header + from));
	return 0;
}

/*
 * RFC 8986 5.1, 5.3 and RFC 2473: writes the outer headers at ETH_LENGTH. `payload` is the number
 * of bytes behind them, `proto` their type.
 */
INLINE int rewrite_push(ENV *e, const struct sidestep_policy *policy, __u32 payload, __u8 proto,
			__u8 traffic_class, __u32 label)
{
	__u8 *outer = env_bytes(e, ETH_LENGTH, IPV6_LENGTH);

	if (!outer)
		return -1;
	store32(outer, ipv6_first_word(traffic_class, label));
	store32(outer + 4, load32(policy->header + 4));
	store16(outer + IPV6_PAYLOAD_LENGTH, be16(payload + policy->length - IPV6_LENGTH));
	for (int i = IPV6_SOURCE; i < IPV6_LENGTH; i += 8)
		store64(outer + i, load64(policy->header + i));
	if (policy->length == IPV6_LENGTH) {
		outer[IPV6_NEXT_HEADER] = proto;
		return 0;
	}
	outer = env_bytes(e, ETH_LENGTH + IPV6_LENGTH, SRH_SEGMENTS);
	if (!outer)
		return -1;
	store64(outer, load64(policy->header + IPV6_LENGTH));
	outer[SRH_NEXT_HEADER] = proto;
#pragma clang loop unroll(full)
	for (__u32 i = 0; i <= SIDESTEP_SEGMENTS_MAX; i++) {
		__u32 at = IPV6_LENGTH + SRH_SEGMENTS + i * SEGMENT_LENGTH;

		if (at >= policy->length)
			break;
		if (at + SEGMENT_LENGTH > policy->length)
			return rewrite_rest(e, policy, ETH_LENGTH + at, at);
		outer = env_bytes(e, ETH_LENGTH + at, SEGMENT_LENGTH);
		if (!outer)
			return -1;
		store_address(outer, load_address(policy->header + at));
	}
	return 0;
}

/*
 * H.Insert: moves the Hop-by-Hop header behind the IPv6 header at offset `from` to its new place.
 * `moved` is the length of both. Returns the Next Header field of the moved header.
 */
INLINE __u8 *rewrite_move_options(ENV *e, __u32 from, __u32 moved)
{
#pragma clang loop unroll(disable)
	for (__u32 i = IPV6_LENGTH / 8; i < REWRITE_MOVED_UNITS; i++) {
		const __u8 *in = env_bytes(e, from + i * 8, 8);
		__u8 *out = env_bytes(e, ETH_LENGTH + i * 8, 8);

		if (i * 8 >= moved)
			break;
		if (!in || !out)
			return NULL;
		store64(out, load64(in));
	}
	return env_bytes(e, ETH_LENGTH + IPV6_LENGTH, 1);
}

/*
 * H.Insert: moves the `moved` bytes in front of the place of the SRH from offset `from` to
 * ETH_LENGTH, and writes the SRH behind them. They are the IPv6 header and a Hop-by-Hop header.
 * `original` becomes Segment List[0].
 */
INLINE int rewrite_insert(ENV *e, const struct sidestep_policy *policy, __u32 from, __u32 moved,
			  struct address original)
{
	const __u8 *in = env_bytes(e, from, IPV6_LENGTH);
	__u8 *out = env_bytes(e, ETH_LENGTH, IPV6_LENGTH), *link;
	__u32 srh = ETH_LENGTH + moved;
	__u16 payload;
	__u8 proto;

	if (!in || !out)
		return -1;
	/* The new place may overlap the old one: the bytes move in order. */
	payload = be16(load16(in + IPV6_PAYLOAD_LENGTH));
	proto = in[IPV6_NEXT_HEADER];
	link = out + IPV6_NEXT_HEADER;
	for (int i = 0; i < IPV6_DESTINATION; i += 8)
		store64(out + i, load64(in + i));
	store16(out + IPV6_PAYLOAD_LENGTH, be16(payload + policy->length));
	if (unlikely(moved != IPV6_LENGTH)) {
		link = rewrite_move_options(e, from, moved);
		out = env_bytes(e, ETH_LENGTH, IPV6_LENGTH);
		if (!link || !out)
			return -1;
		proto = *link;
	}
	store_address(out + IPV6_DESTINATION, load_address(policy->first));
	*link = PROTO_ROUTING;
	out = env_bytes(e, srh, SRH_SEGMENTS + SEGMENT_LENGTH);
	if (!out)
		return -1;
	store64(out, load64(policy->header));
	out[SRH_NEXT_HEADER] = proto;
	store_address(out + SRH_SEGMENTS, original);
#pragma clang loop unroll(full)
	for (__u32 i = 1; i <= SIDESTEP_SEGMENTS_MAX; i++) {
		__u32 at = SRH_SEGMENTS + i * SEGMENT_LENGTH;

		if (at >= policy->length)
			break;
		if (at + SEGMENT_LENGTH > policy->length)
			return rewrite_rest(e, policy, srh + at, at);
		out = env_bytes(e, srh + at, SEGMENT_LENGTH);
		if (!out)
			return -1;
		store_address(out, load_address(policy->header + at));
	}
	return 0;
}

/* Writes learned headers to ETH_LENGTH. Returns -1 if they were overwritten during the copy. */
INLINE int rewrite_restore(ENV *e, const struct packet *p, __u32 payload, __u8 traffic_class,
			   __u32 label)
{
	struct sidestep_learned *learned = env_learned(e, p->policy);
	const __u64 *words;
	__u8 *out;

	if (!learned)
		return -1;
	words = (const __u64 *)learned_headers(learned, p->learned)->bytes;
	out = env_bytes(e, ETH_LENGTH, IPV6_LENGTH);
	if (!out)
		return -1;
	for (int i = 0; i < IPV6_LENGTH / 8; i++)
		store64(out + i * 8, words[i]);
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < LEARNED_PAIRS; i++) {
		__u32 at = IPV6_LENGTH + i * 16;

		if (at >= p->restored)
			break;
		if (at + 16 > p->restored || i == LEARNED_PAIRS - 1) {
			out = env_bytes(e, ETH_LENGTH + at, 8);
			if (!out)
				return -1;
			store64(out, words[at / 8]);
			break;
		}
		out = env_bytes(e, ETH_LENGTH + at, 16);
		if (!out)
			return -1;
		store64(out, words[at / 8]);
		store64(out + 8, words[at / 8 + 1]);
	}
	out = env_bytes(e, ETH_LENGTH, IPV6_LENGTH);
	if (!out || !learned_untouched(learned, p->learned))
		return -1;
	store32(out, ipv6_first_word(traffic_class, label));
	store16(out + IPV6_PAYLOAD_LENGTH, be16(payload + p->restored - IPV6_LENGTH));
	return 0;
}

/*
 * Updates the IP header at `at`: takes `decrement` from the hop limit or TTL, and writes destination
 * and ECN. `srh` is the new offset of the SRH.
 */
INLINE int rewrite_ip(ENV *e, const struct packet *p, __u32 at, __u8 decrement, _Bool destination,
		      __u32 srh)
{
	__u8 *ip;

	if (p->version == 6) {
		ip = env_bytes(e, at, IPV6_LENGTH);
		if (!ip)
			return -1;
		ip[IPV6_HOP_LIMIT] -= decrement;
		if (p->plan & PLAN_ECN)
			ip[1] = (__u8)((ip[1] & ~(ECN_MASK << 4)) | (p->ecn << 4));
		if (p->plan & PLAN_LAST_SEGMENT) {
			struct address destination_before = load_address(ip + IPV6_DESTINATION);
			__u8 *last = env_bytes(e, srh + SRH_SEGMENTS, SEGMENT_LENGTH);

			if (!last)
				return -1;
			store_address(last, destination_before);
		}
		if (destination)
			store_address(ip + IPV6_DESTINATION, p->destination);
		if (p->plan & PLAN_SEGMENTS_LEFT) {
			__u8 *fixed = env_bytes(e, srh, SRH_SEGMENTS);

			if (!fixed)
				return -1;
			fixed[SRH_SEGMENTS_LEFT] = p->segments_left;
		}
	} else if (p->version == 4) {
		__u16 before, checksum;

		ip = env_bytes(e, at, IPV4_LENGTH);
		if (!ip)
			return -1;
		checksum = load16(ip + IPV4_CHECKSUM);
		if (decrement) {
			before = load16(ip + IPV4_TTL);
			ip[IPV4_TTL] -= decrement;
			checksum = checksum_update(checksum, before, load16(ip + IPV4_TTL));
		}
		if (p->plan & PLAN_ECN) {
			before = load16(ip);
			ip[IPV4_TOS] = (__u8)((ip[IPV4_TOS] & ~ECN_MASK) | p->ecn);
			checksum = checksum_update(checksum, before, load16(ip));
		}
		store16(ip + IPV4_CHECKSUM, checksum);
	}
	return 0;
}

/* Traffic class of an outer header, from the current header. */
INLINE __u8 rewrite_traffic_class(ENV *e, const struct packet *p)
{
	const __u8 *ip = env_bytes(e, p->l3, IPV4_LENGTH);
	__u8 class;

	if (!ip || !p->version)
		return 0;
	class = p->version == 6 ? ipv6_traffic_class(ip) : ip[IPV4_TOS];
	return (__u8)((class & ~ECN_MASK) | p->ecn);
}

/*
 * Ethernet header for an adjacency. It uses whole words: BPF has no unaligned loads from the stack.
 */
INLINE struct eth_header eth_toward(const struct sidestep_adjacency *adjacency, __u16 type)
{
	const __u8 *words = (const __u8 *)adjacency;
	__u64 destination = load64(words), source = load64(words + 8);
	struct eth_header eth = {(destination & 0xffffffffffffull) | source << 48,
				 (__u32)(source >> 16), type};

	return eth;
}

/*
 * Rewrites a packet whose size does not change: plain forwarding, and End without PSP. PERF:
 * without a call and the general case, plain forwarding takes 70 instead of 91 ns.
 */
INLINE enum rewrite_result rewrite_in_place(ENV *e, struct packet *p,
					    const struct sidestep_adjacency *adjacency)
{
	__u8 *out;

	if (rewrite_ip(e, p, p->l3, hop_limit_decrement(p), (p->plan & PLAN_DESTINATION) != 0,
		       p->srh) < 0)
		return REWRITE_BROKEN;
	out = env_bytes(e, 0, ETH_LENGTH);
	if (!out)
		return REWRITE_BROKEN;
	eth_store(out, eth_toward(adjacency, p->version == 4 ? ETHERTYPE_IPV4 : ETHERTYPE_IPV6));
	return REWRITE_DONE;
}

/* Parts of the new frame. They are gathered before the size changes and the old bytes are lost. */
struct rewrite_frame {
	const struct sidestep_policy *policy; /* policy to push; NULL: none, or learned headers */
	struct eth_header eth;                /* Ethernet header as it arrived */
	/* PLAN_FRAME, PLAN_ENCAP_FRAME: Ethernet header of the inner frame */
	struct eth_header inner;
	__u32 moved;          /* SIDESTEP_POLICY_INSERT: bytes before the SRH */
	enum env_shift strip; /* kind of shift that removes the outer headers */
	enum env_shift how;   /* kind of the last shift */
	__u32 grow;           /* bytes to add behind the Ethernet header */
	__u32 payload;        /* bytes behind the pushed headers */
	__u32 flow_label;
	__u8 traffic_class, proto;
	__u8 decrement;    /* of the hop limit of the current IP header */
	_Bool destination; /* the current IP header gets a new destination */
};

/* Gathers the parts of a push. */
INLINE enum rewrite_result rewrite_prepare_push(ENV *e, struct packet *p, struct rewrite_frame *f)
{
	const struct sidestep_policy *policy = 0;

	if (p->plan & PLAN_RESTORE) {
		f->grow = p->restored;
	} else {
		policy = env_policy(e, p->policy);
		if (!policy)
			return REWRITE_REFUSED;
		f->policy = policy;
		f->grow = policy->length;
	}
	if (policy && policy->kind == SIDESTEP_POLICY_INSERT) {
		f->moved = insert_offset(e, p->l3);
		if (!f->moved || f->moved > REWRITE_MOVED_UNITS * 8)
			return p->plan & PLAN_POP ? REWRITE_BROKEN : REWRITE_REFUSED;
		f->destination = 0;
		f->how = ENV_SHIFT_PLAIN;
		p->hmac.key = (__u8)policy->hmac_key;
		return REWRITE_DONE;
	}
	f->flow_label = flow_label(e, p, policy ? policy->flow_label : SIDESTEP_FLOW_LABEL_COPY);
	f->traffic_class = rewrite_traffic_class(e, p);
	f->proto = p->version == 6 ? PROTO_IPV6 : PROTO_IPV4;
	f->how = ENV_SHIFT_ENCAP;
	if (p->plan & PLAN_ENCAP_FRAME) {
		/* Decapsulation of a frame cannot restore ECN (RFC 6040 covers IP only). */
		f->traffic_class &= (__u8)~ECN_MASK;
		f->proto = PROTO_ETHERNET;
		f->how = ENV_SHIFT_ENCAP_L2;
		f->inner = f->eth;
		f->grow += ETH_LENGTH;
		f->payload += ETH_LENGTH;
		f->decrement = 0;
	}
	/* A destination that was planned before the push belongs to the inner packet. */
	if (f->destination)
		p->destination = p->inserted;
	return REWRITE_DONE;
}

/* Gathers the parts, and pops the SRH once a push is known to have room. */
INLINE enum rewrite_result rewrite_prepare(ENV *e, struct packet *p, struct rewrite_frame *f)
{
	enum rewrite_result result;
	const __u8 *eth;

	if ((p->plan & PLAN_PUSH) &&
	    ((p->plan & PLAN_POP) || ((p->plan & PLAN_STRIP) && p->frame_length > p->end))) {
		result = rewrite_has_room(e, p);
		if (result != REWRITE_DONE)
			return result;
	}
	if (p->plan & PLAN_POP) {
		result = rewrite_pop(e, p);
		if (result != REWRITE_DONE)
			return result;
	}
	f->payload = p->end - p->l3;
	f->strip = p->version == 6 ? ENV_SHIFT_DECAP6 : ENV_SHIFT_DECAP4;
	if (p->plan & PLAN_STRIP)
		f->how = f->strip;
	if (p->plan & PLAN_FRAME) {
		eth = env_bytes(e, p->l3 - ETH_LENGTH, ETH_LENGTH);
		if (!eth)
			return REWRITE_REFUSED;
		f->inner = eth_load(eth);
		f->decrement = 0;
	}
	return p->plan & PLAN_PUSH ? rewrite_prepare_push(e, p, f) : REWRITE_DONE;
}

/* Changes the size. `delta` bytes behind the Ethernet header are removed, or added if negative. */
INLINE enum rewrite_result rewrite_resize(ENV *e, const struct packet *p,
					  const struct rewrite_frame *f, int delta)
{
	enum rewrite_result refused = p->plan & PLAN_POP ? REWRITE_BROKEN : REWRITE_REFUSED;
	int removed = 0;

	/*
	 * Removes link padding behind the packet (RFC 894) first: TC cannot trim an encapsulated
	 * skb. The kernel does not need the padding if a later step is refused.
	 */
	if (p->frame_length > p->end && env_trim(e, p->end) < 0)
		return refused;
	/*
	 * Removing a tunnel and adding another one are two shifts, because TC derives the offload
	 * state from each.
	 */
	if ((p->plan & PLAN_PUSH) && p->l3 > ETH_LENGTH) {
		removed = (int)p->l3 - ETH_LENGTH;
		if (env_shift(e, removed, p->plan & PLAN_STRIP ? f->strip : ENV_SHIFT_PLAIN) < 0)
			return refused;
	}
	if (delta == removed || env_shift(e, delta - removed, f->how) == 0)
		return REWRITE_DONE;
	/* Nothing is written yet: the opposite shift restores the packet. */
	if (removed && (!ENV_SHIFT_REVERSIBLE || env_shift(e, -removed, ENV_SHIFT_PLAIN) < 0))
		return REWRITE_BROKEN;
	return refused;
}

/* Writes the new bytes behind the Ethernet header. Returns -1 if they are not in place. */
INLINE int rewrite_headers(ENV *e, const struct packet *p, const struct rewrite_frame *f, int delta)
{
	const struct sidestep_policy *policy = f->policy;
	__u32 at = ETH_LENGTH + f->grow;
	__u8 *inner;

	if (p->plan & PLAN_RESTORE) {
		if (rewrite_restore(e, p, f->payload, f->traffic_class, f->flow_label) < 0)
			return -1;
	} else if (policy && policy->kind == SIDESTEP_POLICY_INSERT) {
		if (rewrite_insert(e, policy, at, f->moved, p->inserted) < 0)
			return -1;
		at = ETH_LENGTH;
	} else if (policy && rewrite_push(e, policy, f->payload, f->proto, f->traffic_class,
					  f->flow_label) < 0) {
		return -1;
	}
	if (!(p->plan & PLAN_ENCAP_FRAME))
		return rewrite_ip(e, p, at, f->decrement, f->destination,
				  (__u32)((int)p->srh - delta));
	inner = env_bytes(e, at - ETH_LENGTH, ETH_LENGTH);
	if (!inner)
		return -1;
	eth_store(inner, f->inner);
	return 0;
}

/*
 * Carries out the plan. A NULL `adjacency` keeps the packet on this node: only the SIDs have
 * decremented the hop limit. The inner packet of a push is forwarded in both cases.
 */
SUBPROGRAM enum rewrite_result rewrite(ENV *e, struct packet *p,
				       const struct sidestep_adjacency *adjacency)
{
	struct rewrite_frame f = {};
	enum rewrite_result result;
	__u8 *eth;
	int delta;

	if (!p)
		return REWRITE_REFUSED;
	eth = env_bytes(e, 0, ETH_LENGTH);
	if (!eth)
		return REWRITE_REFUSED;
	f.eth = eth_load(eth);
	f.destination = (p->plan & PLAN_DESTINATION) != 0;
	f.decrement = adjacency || (p->plan & PLAN_PUSH) ? hop_limit_decrement(p) : p->hops;
	result = rewrite_prepare(e, p, &f);
	if (result != REWRITE_DONE)
		return result;
	delta = (int)p->l3 - ETH_LENGTH - (int)f.grow;
	result = rewrite_resize(e, p, &f, delta);
	if (result != REWRITE_DONE)
		return result;
	p->frame_length = (__u32)((int)p->end - delta);
	if (rewrite_headers(e, p, &f, delta) < 0)
		return REWRITE_BROKEN;

	eth = env_bytes(e, 0, ETH_LENGTH);
	if (!eth)
		return REWRITE_BROKEN;
	if (p->plan & PLAN_FRAME) {
		eth_store(eth, f.inner);
		return REWRITE_DONE;
	}
	f.eth.type = p->version == 4 && !(p->plan & PLAN_PUSH) ? ETHERTYPE_IPV4 : ETHERTYPE_IPV6;
	if (adjacency)
		f.eth = eth_toward(adjacency, f.eth.type);
	eth_store(eth, f.eth);
	return REWRITE_DONE;
}

/*
 * Changes the tag, calls rewrite(), and then signs an inserted SRH if its policy has a key. Tag and
 * signature are outside rewrite() because of the stack limit, and of that of the verifier's steps.
 */
INLINE enum rewrite_result rewrite_and_sign(ENV *e, struct packet *p,
					    const struct sidestep_adjacency *adjacency)
{
	enum rewrite_result result;

	if (unlikely(p->tag)) {
		if ((p->plan & PLAN_PUSH) && rewrite_has_room(e, p) != REWRITE_DONE)
			return REWRITE_REFUSED;
		if (tag_change(e, p) < 0)
			return REWRITE_BROKEN;
	}
	result = rewrite(e, p, adjacency);
	/* The bytes of the old tag are gone. */
	if (unlikely(p->tag) && result == REWRITE_REFUSED)
		return REWRITE_BROKEN;
	p->tag = 0;
	if (unlikely(p->plan & PLAN_REFLECT) && result == REWRITE_DONE && reflect_write(e, p) < 0)
		return REWRITE_BROKEN;
	if (likely(!p->hmac.key) || result != REWRITE_DONE)
		return result;
	if (hmac_sign(e, ETH_LENGTH, p->hmac.key) < 0)
		return REWRITE_BROKEN;
	p->hmac.key = 0;
	return REWRITE_DONE;
}

#endif
