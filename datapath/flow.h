/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Flow hash: for the outer flow label of an encapsulation (RFC 6437) and for the choice among next
 * hops (RFC 6438).
 *
 * h = 0; for each little-endian 64-bit word w of the input: h = (h ^ w) * K mod 2^64, h ^= h >> 32.
 * The input is source and destination, then one word with the ports (TCP, UDP, SCTP, not of a
 * fragment) and the protocol. A frame without an IP packet has its two Ethernet addresses instead.
 * The label is the 20 bits from bit 40 of h; 1 replaces 0, which would mean "no label".
 */
#ifndef SIDESTEP_FLOW_H
#define SIDESTEP_FLOW_H

#include "packet.h"
#include "read/ip.h"

/*
 * 2^64 divided by the golden ratio, made odd: multiplication spreads low bits upwards (Knuth 6.4).
 */
#define FLOW_MULTIPLIER 0x9E3779B97F4A7C15ull

INLINE __u64 flow_mix(__u64 h, __u64 word)
{
	h = (h ^ word) * FLOW_MULTIPLIER;
	return h ^ (h >> 32);
}

INLINE __u64 flow_tail(ENV *e, __u32 offset, __u8 proto, _Bool ports)
{
	__u64 tail = (__u64)proto << 32;

	if (ports && (proto == PROTO_TCP || proto == PROTO_UDP || proto == PROTO_SCTP)) {
		const __u8 *first = env_bytes(e, offset, 4);

		if (first)
			tail |= load32(first);
	}
	return tail;
}

/* Hashes the Ethernet addresses of a frame without an IP packet. */
INLINE __u64 flow_frame(ENV *e, __u64 h)
{
	const __u8 *eth = env_bytes(e, 0, ETH_LENGTH);

	return eth ? flow_mix(flow_mix(h, load64(eth)), load32(eth + 8)) : h;
}

/*
 * Returns the outer flow label for the current packet with its planned destination. `mode` is an
 * enum sidestep_flow_label.
 */
INLINE __u32 flow_label(ENV *e, const struct packet *p, __u8 mode)
{
	struct address to;
	const __u8 *ip;
	__u64 h = 0;
	__u32 label;

	if (mode == SIDESTEP_FLOW_LABEL_ZERO)
		return 0;
	if (p->version == 0) {
		h = flow_frame(e, h);
	} else if (p->version == 6) {
		ip = env_bytes(e, p->l3, IPV6_LENGTH);
		if (!ip)
			return 0;
		label = ipv6_flow_label(ip);
		if (mode == SIDESTEP_FLOW_LABEL_COPY && label)
			return label;
		h = flow_mix(h, load64(ip + IPV6_SOURCE));
		h = flow_mix(h, load64(ip + IPV6_SOURCE + 8));
		to = load_address(ip + IPV6_DESTINATION);
		if (p->plan & PLAN_DESTINATION)
			to = p->inserted;
		h = flow_mix(h, to.hi);
		h = flow_mix(h, to.lo);
		h = flow_mix(h, flow_tail(e, p->l3 + IPV6_LENGTH, ip[IPV6_NEXT_HEADER], 1));
	} else {
		ip = env_bytes(e, p->l3, IPV4_LENGTH);
		if (!ip)
			return 0;
		h = flow_mix(h, load64(ip + IPV4_SOURCE));
		h = flow_mix(h, flow_tail(e, p->l3 + ipv4_header_length(ip), ip[IPV4_PROTOCOL],
					  !(load16(ip + IPV4_FRAGMENT) & IPV4_FRAGMENT_MASK)));
	}
	label = (__u32)(h >> 40) & 0xfffff;
	return label ? label : 1;
}

/* LIMIT: headers that are walked to the ports of a packet without a flow label. */
#define FLOW_HEADERS_MAX 8

/*
 * Hashes from the header of type `proto` at `at` inwards, up to a flow label or ports. `h` already
 * covers the addresses of that first header.
 */
INLINE __u64 flow_inwards(ENV *e, __u64 h, __u32 at, __u8 proto)
{
	for (int i = 0; i < FLOW_HEADERS_MAX; i++) {
		const __u8 *header;
		_Bool fragment = 0;

		if (proto == PROTO_IPV4) {
			header = env_bytes(e, at, IPV4_LENGTH);
			fragment = header && (load16(header + IPV4_FRAGMENT) & IPV4_FRAGMENT_MASK);
		}
		at = next_header(e, at, &proto);
		if (!at || fragment)
			break;
		if (proto == PROTO_ETHERNET) {
			header = env_bytes(e, at, ETH_LENGTH);
			if (!header)
				break;
			if (load16(header + ETH_TYPE) == ETHERTYPE_IPV6)
				proto = PROTO_IPV6;
			else if (load16(header + ETH_TYPE) == ETHERTYPE_IPV4)
				proto = PROTO_IPV4;
			else
				break;
			at += ETH_LENGTH;
		}
		if (proto == PROTO_IPV6) {
			header = env_bytes(e, at, IPV6_LENGTH);
			if (!header)
				break;
			for (int word = IPV6_SOURCE; word < IPV6_LENGTH; word += 8)
				h = flow_mix(h, load64(header + word));
			if (ipv6_flow_label(header))
				return flow_mix(h, ipv6_flow_label(header));
		} else if (proto == PROTO_IPV4) {
			header = env_bytes(e, at, IPV4_LENGTH);
			if (!header)
				break;
			h = flow_mix(h, load64(header + IPV4_SOURCE));
		} else if (proto == PROTO_TCP || proto == PROTO_UDP || proto == PROTO_SCTP) {
			return flow_mix(h, flow_tail(e, at, proto, 1));
		}
	}
	return flow_mix(h, (__u64)proto << 32);
}

/*
 * Hashes the packet as it will be sent, to select a next hop: source, destination and flow label. A
 * packet without a flow label uses its inner 5-tuple. `seed` is the initial value.
 */
SUBPROGRAM __u64 flow_hash(ENV *e, struct packet *p, __u32 seed)
{
	const struct sidestep_policy *policy = 0;
	struct address source;
	const __u8 *ip;
	__u64 h = seed;
	__u32 label;

	if (!p)
		return 0;
	if (p->version == 0 && (p->plan & PLAN_RESTORE))
		return flow_frame(e, h);
	if (p->version == 4 && (p->plan & (PLAN_PUSH | PLAN_RESTORE)) != PLAN_PUSH) {
		ip = env_bytes(e, p->l3, IPV4_LENGTH);
		return ip ? flow_inwards(e, flow_mix(h, load64(ip + IPV4_SOURCE)), p->l3,
					 PROTO_IPV4) :
			    0;
	}
	if ((p->plan & (PLAN_PUSH | PLAN_RESTORE)) == PLAN_PUSH)
		policy = env_policy(e, p->policy);
	if (policy && policy->kind != SIDESTEP_POLICY_INSERT) {
		source = load_address(policy->header + IPV6_SOURCE);
		label = flow_label(e, p, policy->flow_label);
	} else {
		ip = env_bytes(e, p->l3, IPV6_LENGTH);
		if (!ip)
			return 0;
		source = load_address(ip + IPV6_SOURCE);
		label = ipv6_flow_label(ip);
	}
	h = flow_mix(h, source.hi);
	h = flow_mix(h, source.lo);
	h = flow_mix(h, p->destination.hi);
	h = flow_mix(h, p->destination.lo);
	if (label)
		return flow_mix(h, label);
	return flow_inwards(e, h, p->l3, p->version == 4 ? PROTO_IPV4 : PROTO_IPV6);
}

#endif
