/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reads the outer or inner IP header of a packet and makes it the current one. IP headers are
 * checked only here. Packets that the kernel has to process (RFC 8200, RFC 1812) are punted after
 * the header is the current one, so that step.h can look up whose route they have. next_header()
 * passes headers without checks.
 */
#ifndef SIDESTEP_READ_IP_H
#define SIDESTEP_READ_IP_H

#include "../packet.h"
#include "../wire/eth.h"
#include "../wire/ext.h"
#include "../wire/ipv4.h"
#include "../wire/ipv6.h"

/*
 * Reads the IPv6 header at `offset`. `end` is the end of the frame or outer packet. `inner` selects
 * the verdicts about an inner header: Linux checks the addresses of a received packet, but not all
 * of a decapsulated one.
 */
INLINE verdict ipv6_read(ENV *e, struct packet *p, __u32 offset, __u32 end, _Bool inner)
{
	const __u8 *ip = env_bytes(e, offset, IPV6_LENGTH);
	struct address source;
	__u32 length;

	if (!ip && offset + IPV6_LENGTH <= end)
		return punt(ext_chain);
	if (!ip || ipv6_version(ip) != 6)
		return inner ? drop(inner_header) : drop(ipv6_header);
	length = IPV6_LENGTH + be16(load16(ip + IPV6_PAYLOAD_LENGTH));
	if (offset + length > end)
		return inner ? drop(inner_header) : drop(ipv6_length);
	p->version = 6;
	p->l3 = offset;
	p->end = offset + length;
	p->proto = ip[IPV6_NEXT_HEADER];
	p->options = p->proto == PROTO_HOP_BY_HOP;
	p->link = offset + IPV6_NEXT_HEADER;
	p->cursor = offset + IPV6_LENGTH;
	p->hop_limit = ip[IPV6_HOP_LIMIT];
	p->ecn = ipv6_traffic_class(ip) & ECN_MASK;
	p->destination = load_address(ip + IPV6_DESTINATION);

	/*
	 * RFC 2675: Payload Length 0 with Hop-by-Hop options may be a jumbogram. A frame that Linux
	 * will segment may be one, too.
	 */
	if (length == IPV6_LENGTH &&
	    (ip[IPV6_NEXT_HEADER] == PROTO_HOP_BY_HOP || env_segment_size(e)))
		return punt(jumbogram);
	if (unlikely(ipv6_is_multicast(p->destination)))
		return inner ? drop(bad_address) : punt(multicast);
	source = load_address(ip + IPV6_SOURCE);
	if (unlikely(ipv6_is_link_local(p->destination) || ipv6_is_link_local(source)))
		return inner ? drop(bad_address) : punt(link_local);
	if (unlikely(ipv6_is_multicast(source) || ipv6_is_unspecified_or_loopback(source) ||
		     ipv6_is_unspecified_or_loopback(p->destination)))
		return inner ? drop(bad_address) : punt(bad_source);
	return VERDICT_CONTINUE;
}

/* Returns the sum of the IPv4 header at `offset` with its options, not folded; 0 if unreadable. */
SUBPROGRAM __u64 ipv4_options_sum(ENV *e, __u32 offset)
{
	const __u8 *ip = env_bytes(e, offset, IPV4_LENGTH);
	__u32 length;
	__u64 sum;

	if (!ip)
		return 0;
	length = ipv4_header_length(ip);
	sum = ipv4_sum(ip);
	for (__u32 at = IPV4_LENGTH; at < IPV4_LENGTH_MAX; at += 4) {
		const __u8 *word = env_bytes(e, offset + at, 4);

		if (at >= length)
			break;
		if (!word)
			return 0;
		sum += load32(word);
	}
	return sum;
}

/* Reads the IPv4 header at `offset`, as ipv6_read(). Options are passed (RFC 1812 5.2.4). */
INLINE verdict ipv4_read(ENV *e, struct packet *p, __u32 offset, __u32 end, _Bool inner)
{
	const __u8 *ip = env_bytes(e, offset, IPV4_LENGTH);
	__u32 length, header, source, destination;
	__u64 sum;

	if (!ip && offset + IPV4_LENGTH <= end)
		return punt(ext_chain);
	if (!ip || (ip[0] >> 4) != 4 || (ip[0] & 15) < 5)
		return inner ? drop(inner_header) : drop(ipv4_header);
	length = be16(load16(ip + IPV4_TOTAL_LENGTH));
	header = ipv4_header_length(ip);
	source = load32(ip + IPV4_SOURCE);
	destination = load32(ip + IPV4_DESTINATION);
	p->version = 4;
	p->l3 = offset;
	p->end = offset + length;
	p->proto = ip[IPV4_PROTOCOL];
	p->cursor = offset + header;
	p->options = header != IPV4_LENGTH;
	p->hop_limit = ip[IPV4_TTL];
	p->ecn = ip[IPV4_TOS] & ECN_MASK;
	p->destination.hi = destination;
	p->destination.lo = 0;

	/* IPv4 BIG TCP in Linux: a frame above 64 KiB that will be segmented (iph_totlen). */
	if (length == 0 && env_segment_size(e))
		return punt(jumbogram);
	if (length < header || offset + length > end)
		return inner ? drop(inner_header) : drop(ipv4_header);
	sum = likely(header == IPV4_LENGTH) ? ipv4_sum(ip) : ipv4_options_sum(e, offset);
	if (ipv4_sum_fold(sum) != 0xffff)
		return inner ? drop(inner_header) : drop(ipv4_checksum);
	if (unlikely(ipv4_is_multicast_or_broadcast(destination)))
		return inner ? drop(bad_address) : punt(multicast);
	if (unlikely(ipv4_is_multicast_or_broadcast(source) || ipv4_is_zero_or_loopback(source) ||
		     ipv4_is_zero_or_loopback(destination)))
		return inner ? drop(bad_address) : punt(bad_source);
	return VERDICT_CONTINUE;
}

/* Returns true for an IPv4 packet with options. */
INLINE _Bool ipv4_has_options(const struct packet *p)
{
	return p->version == 4 && p->cursor != p->l3 + IPV4_LENGTH;
}

/* Makes the received frame the current packet. Its IP header, if any, only identifies the flow. */
INLINE void frame_read(ENV *e, struct packet *p, __u16 type)
{
	const __u8 *ip = env_bytes(e, ETH_LENGTH, IPV4_LENGTH);

	if (ip && type == ETHERTYPE_IPV4 && ip[0] >> 4 == 4)
		p->version = 4;
	ip = env_bytes(e, ETH_LENGTH, IPV6_LENGTH);
	if (ip && type == ETHERTYPE_IPV6 && ipv6_version(ip) == 6)
		p->version = 6;
	p->frame = 1;
	p->l3 = ETH_LENGTH;
	p->end = p->frame_length;
	p->proto = PROTO_ETHERNET;
}

/*
 * Passes the header of type `proto` at `at`. Returns the offset of the next header and stores its
 * type; returns 0 if the header is unknown or cannot be read.
 */
INLINE __u32 next_header(ENV *e, __u32 at, __u8 *proto)
{
	const __u8 *header;

	if (*proto == PROTO_IPV6) {
		header = env_bytes(e, at, IPV6_LENGTH);
		if (!header)
			return 0;
		*proto = header[IPV6_NEXT_HEADER];
		return at + IPV6_LENGTH;
	}
	if (*proto == PROTO_IPV4) {
		header = env_bytes(e, at, IPV4_LENGTH);
		if (!header)
			return 0;
		*proto = header[IPV4_PROTOCOL];
		return at + ipv4_header_length(header);
	}
	if (ext_is_walked(*proto)) {
		header = env_bytes(e, at, 2);
		if (!header)
			return 0;
		return ext_next(header, at, proto);
	}
	return 0;
}

#endif
