/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The flow of a packet as a number: the outer flow label of an encapsulation (RFC 6437, RFC 6438).
 *
 * h = 0; for each little-endian 64-bit word w of the input: h = (h ^ w) * K mod 2^64, h ^= h >> 32. The input is source
 * and destination, then one word of ports (TCP, UDP, SCTP, not a fragment) and protocol. The label is the 20 bits from
 * bit 40 of h; 0 would mean "no label", so 1 stands for it.
 */
#ifndef SIDESTEP_FLOW_H
#define SIDESTEP_FLOW_H

#include "packet.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"

/* 2^64 divided by the golden ratio, odd: multiplication by it spreads low bits upwards (Knuth, 6.4). */
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

/*
 * The flow label for a packet around the current header. `mode`: enum sidestep_flow_label. `destination`: the one that
 * the header will have, if not the one that it has.
 */
INLINE __u32 flow_label(ENV *e, const struct packet *p, __u8 mode, const struct address *destination)
{
	struct address to;
	const __u8 *ip;
	__u64 h = 0;
	__u32 label;

	if (mode == SIDESTEP_FLOW_LABEL_ZERO)
		return 0;
	if (p->version == 6) {
		ip = env_bytes(e, p->l3, IPV6_LENGTH);
		if (!ip)
			return 0;
		label = ipv6_flow_label(ip);
		if (mode == SIDESTEP_FLOW_LABEL_COPY && label)
			return label;
		h = flow_mix(h, load64(ip + IPV6_SOURCE));
		h = flow_mix(h, load64(ip + IPV6_SOURCE + 8));
		to = destination ? *destination : load_address(ip + IPV6_DESTINATION);
		h = flow_mix(h, to.hi);
		h = flow_mix(h, to.lo);
		h = flow_mix(h, flow_tail(e, p->l3 + IPV6_LENGTH, ip[IPV6_NEXT_HEADER], 1));
	} else {
		ip = env_bytes(e, p->l3, IPV4_LENGTH);
		if (!ip)
			return 0;
		h = flow_mix(h, load64(ip + IPV4_SOURCE));
		h = flow_mix(h, flow_tail(e, p->l3 + IPV4_LENGTH, ip[IPV4_PROTOCOL],
					  !(load16(ip + IPV4_FRAGMENT) & IPV4_FRAGMENT_MASK)));
	}
	label = (__u32)(h >> 40) & 0xfffff;
	return label ? label : 1;
}

#endif
