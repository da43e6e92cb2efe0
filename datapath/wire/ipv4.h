/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * IPv4 header (RFC 791 3.1).
 *
 *   0                   1                   2                   3
 *  +-------+-------+---------------+-------------------------------+
 *  |Version|  IHL  |Type of Service|          Total Length         |
 *  +-------+-------+---------------+-----+-------------------------+
 *  |         Identification        |Flags|     Fragment Offset     |
 *  +---------------+---------------+-----+-------------------------+
 *  |  Time to Live |    Protocol   |        Header Checksum        |
 *  +---------------+---------------+-------------------------------+
 *  |                        Source Address                         |
 *  |                      Destination Address                      |
 *  +---------------------------------------------------------------+
 */
#ifndef SIDESTEP_WIRE_IPV4_H
#define SIDESTEP_WIRE_IPV4_H

#include "bytes.h"

#define IPV4_LENGTH 20 /* without options */
#define IPV4_LENGTH_MAX 60
#define IPV4_TOS 1
#define IPV4_TOTAL_LENGTH 2
#define IPV4_IDENTIFICATION 4
#define IPV4_FRAGMENT 6
#define IPV4_TTL 8
#define IPV4_PROTOCOL 9
#define IPV4_CHECKSUM 10
#define IPV4_SOURCE 12
#define IPV4_DESTINATION 16

/* More Fragments and Fragment Offset, in network order. Any bit of them marks a fragment. */
#define IPV4_DONT_FRAGMENT BE16_CONST(0x4000)
#define IPV4_FRAGMENT_MASK BE16_CONST(0x3fff)

/* Length of the header at `ip`, with its options. */
INLINE __u32 ipv4_header_length(const __u8 *ip)
{
	return (ip[0] & 15) * 4u;
}

/* One's complement sum of the 20 bytes at `ip`, not folded (RFC 1071). */
INLINE __u64 ipv4_sum(const __u8 *ip)
{
	__u64 sum = 0;

	for (int i = 0; i < IPV4_LENGTH; i += 4)
		sum += load32(ip + i);
	return sum;
}

/* Folds the sum of a header; 0xffff if its checksum is right (RFC 1071). */
INLINE __u16 ipv4_sum_fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u16)sum;
}

/*
 * Addresses that are never forwarded: 224/4 and 255.255.255.255. In network order. 240/4 is
 * reserved, but routed like any other prefix, as in Linux (ipv4_is_lbcast).
 */
INLINE _Bool ipv4_is_multicast_or_broadcast(__u32 a)
{
	return (a & 0xf0) == 0xe0 || a == 0xffffffff;
}

INLINE _Bool ipv4_is_zero_or_loopback(__u32 a)
{
	return (a & 0xff) == 0 || (a & 0xff) == 127;
}

#endif
