/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Carries out what was planned, in one pass: move the headers in front of a popped SRH, change the size once, then
 * write every field that changes. Nothing here decides anything; a failure leaves the packet unchanged except where
 * REWRITE_BROKEN says so.
 */
#ifndef SIDESTEP_REWRITE_H
#define SIDESTEP_REWRITE_H

#include "flow.h"
#include "hmac/sign.h"
#include "table/learned.h"
#include "wire/eth.h"
#include "wire/srh.h"

enum rewrite_result {
	REWRITE_DONE,
	REWRITE_REFUSED, /* no room: the packet is unchanged */
	REWRITE_BROKEN   /* the packet is no longer what arrived: drop it */
};

/* LIMIT: 8-byte units between the IPv6 header and an SRH that is popped (extension headers before it). */
#define REWRITE_MOVED_UNITS 32

/*
 * RFC 8986 4.16.1: takes the SRH out by moving what stands before it, from p->l3 on, up to its end. Header lengths are
 * multiples of 8 bytes (RFC 8200 4), so it goes by 8 bytes, the last ones first.
 */
INLINE enum rewrite_result rewrite_pop(ENV *e, struct packet *p)
{
	__u8 *ip = env_bytes(e, p->l3, IPV6_LENGTH);
	__u8 *link = env_bytes(e, p->srh_link, 1);
	const __u8 *srh = env_bytes(e, p->srh, 8);
	__u32 units = (p->srh - p->l3) / 8;

	if (!ip || !link || !srh || units > REWRITE_MOVED_UNITS)
		return REWRITE_REFUSED;
	*link = srh[SRH_NEXT_HEADER];
	store16(ip + IPV6_PAYLOAD_LENGTH, be16(be16(load16(ip + IPV6_PAYLOAD_LENGTH)) - p->srh_length));
	for (__u32 i = 0; i < REWRITE_MOVED_UNITS; i++) {
		__u8 *from, *to;

		if (i >= units)
			break;
		from = env_bytes(e, p->srh - 8 - i * 8, 8);
		to = env_bytes(e, p->srh + p->srh_length - 8 - i * 8, 8);
		if (!from || !to)
			return REWRITE_BROKEN;
		store64(to, load64(from));
	}
	p->l3 += p->srh_length;
	return REWRITE_DONE;
}

/*
 * Whether there is room for what a policy adds beyond what goes. Neither a pop nor what is cut off behind a decapsulated
 * packet (that may be more than padding) can be taken back, so this is asked before. TC is not asked: it finds the room.
 */
INLINE enum rewrite_result rewrite_has_room(ENV *e, const struct packet *p)
{
	const struct sidestep_policy *policy = env_policy(e, p->policy);
	int more;

	if (!policy)
		return REWRITE_REFUSED;
	more = (int)policy->length + ETH_LENGTH - (int)p->l3;
	if (p->plan & PLAN_ENCAP_FRAME)
		more += ETH_LENGTH;
	if (p->plan & PLAN_POP)
		more -= (int)p->srh_length;
	if (!ENV_SHIFT_REVERSIBLE || more <= 0)
		return REWRITE_DONE;
	if (env_shift(e, -more, ENV_SHIFT_PLAIN) < 0)
		return REWRITE_REFUSED;
	return env_shift(e, more, ENV_SHIFT_PLAIN) < 0 ? REWRITE_BROKEN : REWRITE_DONE;
}

/* The last 8 bytes of a policy's header, which begin at `from`: the end of an HMAC TLV. */
INLINE int rewrite_rest(ENV *e, const struct sidestep_policy *policy, __u32 to, __u32 from)
{
	__u8 *out = env_bytes(e, to, 8);

	if (!out)
		return -1;
	store64(out, load64(policy->header + from));
	return 0;
}

/*
 * RFC 8986 5.1 and 5.3 with RFC 2473: the outer headers at ETH_LENGTH. `payload`: bytes behind them; `proto`: what they
 * are.
 */
INLINE int rewrite_push(ENV *e, const struct sidestep_policy *policy, __u32 payload, __u8 proto, __u8 traffic_class,
			__u32 label)
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

/* H.Insert: the IPv6 header `ip` goes to ETH_LENGTH, the SRH behind it. `original` becomes Segment List[0]. */
INLINE int rewrite_insert(ENV *e, const struct sidestep_policy *policy, const __u64 ip[5], struct address original)
{
	__u8 *out = env_bytes(e, ETH_LENGTH, IPV6_LENGTH);
	__u8 proto;

	if (!out)
		return -1;
	for (int i = 0; i < 5; i++)
		store64(out + i * 8, ip[i]);
	proto = out[IPV6_NEXT_HEADER];
	out[IPV6_NEXT_HEADER] = PROTO_ROUTING;
	store16(out + IPV6_PAYLOAD_LENGTH, be16(be16(load16(out + IPV6_PAYLOAD_LENGTH)) + policy->length));
	store_address(out + IPV6_DESTINATION, load_address(policy->first));
	out = env_bytes(e, ETH_LENGTH + IPV6_LENGTH, SRH_SEGMENTS + SEGMENT_LENGTH);
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
			return rewrite_rest(e, policy, ETH_LENGTH + IPV6_LENGTH + at, at);
		out = env_bytes(e, ETH_LENGTH + IPV6_LENGTH + at, SEGMENT_LENGTH);
		if (!out)
			return -1;
		store_address(out, load_address(policy->header + at));
	}
	return 0;
}

/*
 * The headers that a dynamic proxy has learned, at ETH_LENGTH. -1 also if they were overwritten meanwhile: then another
 * chain's may be among them.
 */
INLINE int rewrite_restore(ENV *e, const struct packet *p, __u32 payload, __u8 traffic_class, __u32 label)
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

/* The current IP header, now at `at`: hop limit or TTL, destination, ECN. `srh`: where its SRH is now. */
INLINE int rewrite_ip(ENV *e, const struct packet *p, __u32 at, _Bool decrement, _Bool destination, __u32 srh)
{
	__u8 *ip;

	if (p->version == 6) {
		ip = env_bytes(e, at, IPV6_LENGTH);
		if (!ip)
			return -1;
		if (decrement)
			ip[IPV6_HOP_LIMIT]--;
		if (p->plan & PLAN_ECN)
			ip[1] = (__u8)((ip[1] & ~(ECN_MASK << 4)) | (p->ecn << 4));
		if ((p->plan & (PLAN_LAST_SEGMENT | PLAN_POP)) == PLAN_LAST_SEGMENT) {
			struct address destination_before = load_address(ip + IPV6_DESTINATION);
			__u8 *last = env_bytes(e, srh + SRH_SEGMENTS, SEGMENT_LENGTH);

			if (!last)
				return -1;
			store_address(last, destination_before);
		}
		if (destination)
			store_address(ip + IPV6_DESTINATION, p->destination);
		if ((p->plan & (PLAN_SEGMENTS_LEFT | PLAN_POP)) == PLAN_SEGMENTS_LEFT) {
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
			ip[IPV4_TTL]--;
			checksum = ipv4_checksum_update(checksum, before, load16(ip + IPV4_TTL));
		}
		if (p->plan & PLAN_ECN) {
			before = load16(ip);
			ip[IPV4_TOS] = (__u8)((ip[IPV4_TOS] & ~ECN_MASK) | p->ecn);
			checksum = ipv4_checksum_update(checksum, before, load16(ip));
		}
		store16(ip + IPV4_CHECKSUM, checksum);
	}
	return 0;
}

/* The traffic class that an encapsulation gets from the current header. */
INLINE __u8 rewrite_traffic_class(ENV *e, const struct packet *p)
{
	const __u8 *ip = env_bytes(e, p->l3, IPV4_LENGTH);
	__u8 class;

	if (!ip || !p->version)
		return 0;
	class = p->version == 6 ? ipv6_traffic_class(ip) : ip[IPV4_TOS];
	return (__u8)((class & ~ECN_MASK) | p->ecn);
}

/* The Ethernet header toward an adjacency, type included. By whole words: BPF has no unaligned loads from the stack. */
INLINE struct eth_header eth_toward(const struct sidestep_adjacency *adjacency, __u16 type)
{
	const __u8 *words = (const __u8 *)adjacency;
	__u64 destination = load64(words), source = load64(words + 8);
	struct eth_header eth = {(destination & 0xffffffffffffull) | source << 48, (__u32)(source >> 16), type};

	return eth;
}

/*
 * For plans that leave the size as it is, which is every plain packet and every End without PSP. PERF: no call, no
 * general case; plain forwarding 91 -> 70 ns.
 */
INLINE enum rewrite_result rewrite_in_place(ENV *e, struct packet *p, const struct sidestep_adjacency *adjacency)
{
	__u8 *out;

	if (rewrite_ip(e, p, p->l3, 1, (p->plan & PLAN_DESTINATION) != 0, p->srh) < 0)
		return REWRITE_BROKEN;
	out = env_bytes(e, 0, ETH_LENGTH);
	if (!out)
		return REWRITE_BROKEN;
	eth_store(out, eth_toward(adjacency, p->version == 4 ? ETHERTYPE_IPV4 : ETHERTYPE_IPV6));
	return REWRITE_DONE;
}

/* What the frame becomes. Gathered before its size changes: then what it is taken from is gone. */
struct rewrite_frame {
	const struct sidestep_policy *policy; /* what is pushed; NULL: nothing, or what was learned */
	struct eth_header eth; /* of the frame as it arrived */
	struct eth_header inner; /* of the frame within: PLAN_FRAME, PLAN_ENCAP_FRAME */
	__u64 ip[5]; /* SIDESTEP_POLICY_INSERT: the IPv6 header */
	enum env_shift strip; /* what it is to take the outer headers off, */
	enum env_shift how; /* and what the change of size is in the end */
	__u32 grow; /* bytes that are added behind the Ethernet header */
	__u32 payload; /* bytes behind what is pushed */
	__u32 flow_label;
	__u8 traffic_class, proto;
	_Bool destination, decrement; /* of the current IP header */
};

/* Gathers for the policy. */
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
		const __u8 *ip = env_bytes(e, p->l3, IPV6_LENGTH);

		if (!ip)
			return REWRITE_REFUSED;
		for (int i = 0; i < 5; i++)
			f->ip[i] = load64(ip + i * 8);
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
		/* RFC 6040 has no decapsulation for frames: an outer ECN would be lost. */
		f->traffic_class &= (__u8)~ECN_MASK;
		f->proto = PROTO_ETHERNET;
		f->how = ENV_SHIFT_ENCAP_L2;
		f->inner = f->eth;
		f->grow += ETH_LENGTH;
		f->payload += ETH_LENGTH;
		f->decrement = 0;
	}
	/* Planned before the push, the destination is the inner packet's. */
	if (f->destination)
		p->destination = p->inserted;
	return REWRITE_DONE;
}

/* Gathers. Only where it is sure of room for it is an SRH popped, too. */
INLINE enum rewrite_result rewrite_prepare(ENV *e, struct packet *p, struct rewrite_frame *f)
{
	enum rewrite_result result;
	const __u8 *eth;

	if ((p->plan & PLAN_PUSH) && ((p->plan & PLAN_POP) || ((p->plan & PLAN_STRIP) && p->frame_length > p->end))) {
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

/* The change of size. `delta`: how many bytes go behind the Ethernet header; negative: come. */
INLINE enum rewrite_result rewrite_resize(ENV *e, const struct packet *p, const struct rewrite_frame *f, int delta)
{
	enum rewrite_result refused = p->plan & PLAN_POP ? REWRITE_BROKEN : REWRITE_REFUSED;
	int removed = 0;

	/*
	 * Behind the packet's end is only padding of the link (RFC 894). It goes first: TC cuts no encapsulated skb. The
	 * kernel would not miss it if the rest is refused.
	 */
	if (p->frame_length > p->end && env_trim(e, p->end) < 0)
		return refused;
	/* A tunnel removed and another one put on are two changes: TC keeps offload state by what each of them is. */
	if ((p->plan & PLAN_PUSH) && p->l3 > ETH_LENGTH) {
		removed = (int)p->l3 - ETH_LENGTH;
		if (env_shift(e, removed, p->plan & PLAN_STRIP ? f->strip : ENV_SHIFT_PLAIN) < 0)
			return refused;
	}
	if (delta == removed || env_shift(e, delta - removed, f->how) == 0)
		return REWRITE_DONE;
	/* Nothing is written yet, so where the bytes come back the packet is as it was. */
	if (removed && (!ENV_SHIFT_REVERSIBLE || env_shift(e, -removed, ENV_SHIFT_PLAIN) < 0))
		return REWRITE_BROKEN;
	return refused;
}

/* The bytes that are new, behind the Ethernet header. -1: they cannot be written in place. */
INLINE int rewrite_headers(ENV *e, const struct packet *p, const struct rewrite_frame *f, int delta)
{
	const struct sidestep_policy *policy = f->policy;
	__u32 at = ETH_LENGTH + f->grow;
	__u8 *inner;

	if (p->plan & PLAN_RESTORE) {
		if (rewrite_restore(e, p, f->payload, f->traffic_class, f->flow_label) < 0)
			return -1;
	} else if (policy && policy->kind == SIDESTEP_POLICY_INSERT) {
		if (rewrite_insert(e, policy, f->ip, p->inserted) < 0)
			return -1;
		at = ETH_LENGTH;
	} else if (policy && rewrite_push(e, policy, f->payload, f->proto, f->traffic_class, f->flow_label) < 0) {
		return -1;
	}
	if (!(p->plan & PLAN_ENCAP_FRAME))
		return rewrite_ip(e, p, at, f->decrement, f->destination, (__u32)((int)p->srh - delta));
	inner = env_bytes(e, at - ETH_LENGTH, ETH_LENGTH);
	if (!inner)
		return -1;
	eth_store(inner, f->inner);
	return 0;
}

/*
 * `adjacency` says where the packet goes; NULL: it stays here. This node's own stack then decrements the hop limit itself;
 * what is carried by headers that are put on has it decremented before.
 */
SUBPROGRAM enum rewrite_result rewrite(ENV *e, struct packet *p, const struct sidestep_adjacency *adjacency)
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
	f.decrement = adjacency || (p->plan & PLAN_PUSH);
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

/* As rewrite; what was inserted is then signed, where its policy says so. Not within it: there the stack would not do. */
INLINE enum rewrite_result rewrite_and_sign(ENV *e, struct packet *p, const struct sidestep_adjacency *adjacency)
{
	enum rewrite_result result = rewrite(e, p, adjacency);

	if (likely(!p->hmac.key) || result != REWRITE_DONE)
		return result;
	if (hmac_sign(e, ETH_LENGTH, p->hmac.key) < 0)
		return REWRITE_BROKEN;
	p->hmac.key = 0;
	return REWRITE_DONE;
}

#endif
