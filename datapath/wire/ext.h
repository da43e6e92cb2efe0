/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * IPv6 extension headers (RFC 8200 4) that share one layout: Hop-by-Hop Options, Routing,
 * Destination Options.
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

/*
 * Returns true for the extension headers that a walk passes. A Fragment header ends a walk: what
 * follows it can be processed after reassembly only.
 */
INLINE _Bool ext_is_walked(__u8 proto)
{
	return proto == PROTO_ROUTING || proto == PROTO_DESTINATION_OPTIONS ||
	       proto == PROTO_HOP_BY_HOP;
}

/* Length in bytes of the extension header at `header`, which has at least 2 readable bytes. */
INLINE __u32 ext_length(const __u8 *header)
{
	return (header[EXT_LENGTH] + 1u) * 8;
}

/*
 * Passes the extension header at `header`, which lies at offset `at`. Stores its Next Header in
 * `proto` and returns the offset of that next header.
 */
INLINE __u32 ext_next(const __u8 *header, __u32 at, __u8 *proto)
{
	*proto = header[EXT_NEXT_HEADER];
	return at + ext_length(header);
}

#endif
