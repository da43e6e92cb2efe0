/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Segmentation offload (TC only): a frame larger than the MTU that leaves in pieces. Whether they fit depends on all the
 * headers that each piece repeats.
 */
#ifndef SIDESTEP_SEGMENT_H
#define SIDESTEP_SEGMENT_H

#include "packet.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"
#include "wire/srh.h"

/* LIMIT: headers walked to find the innermost TCP or UDP header; outer and inner ones together. */
#define SEGMENT_HEADERS_MAX 8

/* The next header behind the one of type `proto` at `at`: offset and type; 0 if there is none that is understood. */
INLINE __u32 segment_next(ENV *e, __u32 at, __u8 *proto)
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
		return at + (header[0] & 15) * 4u;
	}
	if (*proto == PROTO_ROUTING || *proto == PROTO_DESTINATION_OPTIONS || *proto == PROTO_HOP_BY_HOP) {
		header = env_bytes(e, at, 2);
		if (!header)
			return 0;
		*proto = header[0];
		return at + (header[1] + 1u) * 8;
	}
	return 0;
}

/* Bytes from the IP header at `l3` to the end of the innermost TCP or UDP header; 0 if there is none. */
SUBPROGRAM __u32 segment_headers(ENV *e, __u32 l3, __u32 version)
{
	__u8 proto = version == 4 ? PROTO_IPV4 : PROTO_IPV6;
	__u32 at = l3;

	for (int i = 0; i < SEGMENT_HEADERS_MAX; i++) {
		const __u8 *header;

		if (proto == PROTO_UDP)
			return at + 8 - l3;
		if (proto == PROTO_TCP) {
			header = env_bytes(e, at, 13);
			/* RFC 9293 3.1: Data Offset, in 4-byte words. */
			return header ? at + (header[12] >> 4) * 4u - l3 : 0;
		}
		at = segment_next(e, at, &proto);
		if (!at)
			return 0;
	}
	return 0;
}

/*
 * Layer-3 length of the largest packet that leaves for a frame whose layer 3 will be `length` bytes, `growth` of them
 * added here. Where it cannot be told, `length`.
 */
INLINE __u32 wire_length(ENV *e, const struct packet *p, __u32 length, int growth)
{
	__u32 size = env_segment_size(e), headers, largest;

	if (!size)
		return length;
	headers = segment_headers(e, p->l3, p->version);
	if (!headers)
		return length;
	largest = (__u32)((int)headers + growth) + size;
	return largest < length ? largest : length;
}

#endif
