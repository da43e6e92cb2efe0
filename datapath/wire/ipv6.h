/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * IPv6 header (RFC 8200 3).
 *
 *   0                   1                   2                   3
 *   0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
 *  +-------+---------------+---------------------------------------+
 *  |Version| Traffic Class |           Flow Label                  |
 *  +-------+-------+-------+-------+---------------+---------------+
 *  |         Payload Length        |  Next Header  |   Hop Limit   |
 *  +-------------------------------+---------------+---------------+
 *  |                    Source Address (16 bytes)                  |
 *  |                 Destination Address (16 bytes)                |
 *  +---------------------------------------------------------------+
 */
#ifndef SIDESTEP_WIRE_IPV6_H
#define SIDESTEP_WIRE_IPV6_H

#include "bytes.h"

#define IPV6_LENGTH 40
#define IPV6_PAYLOAD_LENGTH 4
#define IPV6_NEXT_HEADER 6
#define IPV6_HOP_LIMIT 7
#define IPV6_SOURCE 8
#define IPV6_DESTINATION 24

/* IANA "Assigned Internet Protocol Numbers". */
#define PROTO_HOP_BY_HOP 0
#define PROTO_ICMP 1
#define PROTO_IPV4 4
#define PROTO_TCP 6
#define PROTO_UDP 17
#define PROTO_IPV6 41
#define PROTO_ROUTING 43
#define PROTO_FRAGMENT 44
#define PROTO_ESP 50
#define PROTO_AUTHENTICATION 51
#define PROTO_ICMPV6 58
#define PROTO_DESTINATION_OPTIONS 60
#define PROTO_SCTP 132
#define PROTO_ETHERNET 143

/* Fragment header (RFC 8200 4.5). */
#define FRAGMENT_LENGTH 8
#define FRAGMENT_OFFSET 2
#define FRAGMENT_OFFSET_MASK 0xfff8u
#define FRAGMENT_MORE 0x0001u /* flag M */
#define FRAGMENT_IDENTIFICATION 4

/* ECN field (RFC 3168 5): the last two bits of the traffic class. */
#define ECN_MASK 3
#define ECN_NOT_ECT 0
#define ECN_ECT1 1
#define ECN_ECT0 2
#define ECN_CE 3

INLINE __u8 ipv6_version(const __u8 *ip)
{
	return ip[0] >> 4;
}

INLINE __u8 ipv6_traffic_class(const __u8 *ip)
{
	return (__u8)((ip[0] << 4) | (ip[1] >> 4));
}

/* Flow label, 20 bits, host order. */
INLINE __u32 ipv6_flow_label(const __u8 *ip)
{
	return be32(load32(ip)) & 0xfffff;
}

/* First four bytes of a header, in network order. */
INLINE __u32 ipv6_first_word(__u8 traffic_class, __u32 flow_label)
{
	return be32(6u << 28 | (__u32)traffic_class << 20 | flow_label);
}

/* ff00::/8 */
INLINE _Bool ipv6_is_multicast(struct address a)
{
	return (a.hi & 0xff) == 0xff;
}

/* fe80::/10 */
INLINE _Bool ipv6_is_link_local(struct address a)
{
	return (a.hi & 0xc0ff) == 0x80fe;
}

/* ::/128 and ::1/128 (RFC 4291 2.5.2, 2.5.3) */
INLINE _Bool ipv6_is_unspecified_or_loopback(struct address a)
{
	return a.hi == 0 && (a.lo & 0xfeffffffffffffffull) == 0;
}

#endif
