/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * IPv6 extension headers (RFC 8200 4) that share one layout: Hop-by-Hop Options, Routing,
 * Destination Options. The Fragment header has no Hdr Ext Len; it is always 8 bytes long.
 *
 *   0               1               2                               8
 *  +---------------+---------------+-------------------------------+
 *  |  Next Header  |  Hdr Ext Len  |        type-specific ...      |
 *  +---------------+---------------+-------------------------------+
 *
 * Hdr Ext Len counts 8-byte units after the first 8 bytes.
 */
#ifndef SIDESTEP_WIRE_EXT_H
#define SIDESTEP_WIRE_EXT_H

#include "ipv6.h"

#define EXT_NEXT_HEADER 0
#define EXT_LENGTH 1

/* RFC 8200 4.2: options are type, length, data. Pad1 (type 0) is a single byte; PadN is type 1. */
#define OPTION_PAD1 0
#define OPTION_PADN 1
/* RFC 8200 4.2: an unknown option is skipped if these bits of its type are 0. */
#define OPTION_ACTION 0xc0u

/* Returns true for the extension headers that share the layout above. */
INLINE _Bool ext_is_walked(__u8 proto)
{
	return proto == PROTO_ROUTING || proto == PROTO_DESTINATION_OPTIONS ||
	       proto == PROTO_HOP_BY_HOP;
}

/*
 * Returns true if a walk passes the header at `header`, which has 8 readable bytes. RFC 8200 4.5: a
 * Fragment header with offset 0 and M 0 belongs to a whole packet. Headers behind any other
 * Fragment header can be processed after reassembly only.
 */
INLINE _Bool ext_is_passed(const __u8 *header, __u8 proto)
{
	return proto == PROTO_FRAGMENT ? !(be16(load16(header + FRAGMENT_OFFSET)) &
					   (FRAGMENT_OFFSET_MASK | FRAGMENT_MORE)) :
					 ext_is_walked(proto);
}

/* Length in bytes of the extension header at `header`, which has at least 2 readable bytes. */
INLINE __u32 ext_length(const __u8 *header, __u8 proto)
{
	return proto == PROTO_FRAGMENT ? FRAGMENT_LENGTH : (header[EXT_LENGTH] + 1u) * 8;
}

/*
 * Passes the extension header at `header`, which lies at offset `at`. Stores its Next Header in
 * `proto` and returns the offset of that next header.
 */
INLINE __u32 ext_next(const __u8 *header, __u32 at, __u8 *proto)
{
	__u32 length = ext_length(header, *proto);

	*proto = header[EXT_NEXT_HEADER];
	return at + length;
}

#endif
