/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Segmentation offload (TC only): a frame larger than the MTU may be sent in segments. Each segment
 * repeats all headers, so their size decides whether it fits.
 */
#ifndef SIDESTEP_SEGMENT_H
#define SIDESTEP_SEGMENT_H

#include "packet.h"
#include "read/ip.h"

/* LIMIT: outer and inner headers that are walked to the innermost TCP or UDP header. */
#define SEGMENT_HEADERS_MAX 8

/*
 * Returns the bytes from the IP header at `l3` to the end of the innermost TCP or UDP header; 0 if
 * there is none.
 */
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
			/* RFC 9293 3.1: Data Offset counts 4-byte words. */
			return header ? at + (header[12] >> 4) * 4u - l3 : 0;
		}
		at = next_header(e, at, &proto);
		if (!at)
			return 0;
	}
	return 0;
}

/*
 * Returns the layer 3 length of the largest packet on the wire for a frame of `length` bytes, which
 * include the `growth` of the plan. Returns `length` if the headers cannot be read.
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
