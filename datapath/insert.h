/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The place of an inserted SRH (H.Insert, End.B6). */
#ifndef SIDESTEP_INSERT_H
#define SIDESTEP_INSERT_H

#include "env.h"
#include "wire/ext.h"
#include "wire/ipv6.h"

/* LIMIT: bytes of headers that an insertion moves, IPv6 header included. */
#define INSERT_MOVED_MAX 256u

/*
 * Returns the bytes between the IPv6 header at `ip` and the SRH, IPv6 header included; 0 if they
 * cannot be read. RFC 8200 4.1 and 4.3: a Hop-by-Hop header stays directly behind the IPv6 header.
 */
INLINE __u32 insert_offset(ENV *e, __u32 ip)
{
	const __u8 *header = env_bytes(e, ip, IPV6_LENGTH);

	if (!header)
		return 0;
	if (likely(header[IPV6_NEXT_HEADER] != PROTO_HOP_BY_HOP))
		return IPV6_LENGTH;
	header = env_bytes(e, ip + IPV6_LENGTH, 8);
	return header ? IPV6_LENGTH + ext_length(header, PROTO_HOP_BY_HOP) : 0;
}

#endif
