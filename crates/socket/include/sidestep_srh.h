/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A Segment Routing Header (RFC 8754) on one socket: header-only, for Linux.
 *
 *     struct in6_addr segments[2];
 *     inet_pton(AF_INET6, "fc00:1::e", &segments[0]);
 *     inet_pton(AF_INET6, "fc00:2::e", &segments[1]);
 *     int socket = socket(AF_INET6, SOCK_STREAM, 0);
 *     if (sidestep_srh_set(socket, segments, 2, NULL) != 0)
 *             err(1, "segments");
 *     connect(socket, ...);
 *
 * Packets of the socket to D then visit the segments in the given order, and finally reach D.
 * Received packets are not affected. The socket is an IPv6 one, and is not sending to an
 * IPv4-mapped address. No privilege is needed.
 *
 * `sidestep exec` and the Rust crate `sidestep-socket` use this file.
 */
#ifndef SIDESTEP_SRH_H
#define SIDESTEP_SRH_H

#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

/* IANA: IPv6 Routing Types; Segment Routing Header TLVs. */
#define SIDESTEP_SRH_TYPE 4
#define SIDESTEP_SRH_TLV_HMAC 5
/* Linux adds the HMAC if this flag is set (SR6_FLAG1_HMAC). */
#define SIDESTEP_SRH_FLAG_HMAC 0x08
/* Bytes of the fixed part (RFC 8754 2), of a segment, and of an HMAC TLV with 32 bytes (2.1.2). */
#define SIDESTEP_SRH_FIXED 8
#define SIDESTEP_SRH_SEGMENT 16
#define SIDESTEP_SRH_HMAC 40
/*
 * LIMIT: Linux accepts 255 * 8 bytes of a routing header (net/ipv6/ipv6_sockglue.c). The
 * destination is an additional segment.
 */
#define SIDESTEP_SRH_MAX 2040
#define SIDESTEP_SRH_SEGMENTS_MAX 126
/*
 * LIMIT: Linux signs less than 256 bytes (SEG6_HMAC_RING_SIZE). The destination is an additional
 * segment.
 */
#define SIDESTEP_SRH_SIGNED_MAX 13

/* A header in the format of IPV6_RTHDR. */
struct sidestep_srh {
	size_t length;
	unsigned char bytes[SIDESTEP_SRH_MAX];
};

/*
 * Builds the header with `count` segments, in order of travel, and with an HMAC by the key
 * `*hmac_key_id` unless that is NULL. Returns 0 or an errno value: EINVAL for no segment or an
 * address that is not a unicast address, E2BIG for too many segments.
 *
 * The destination is not included. Linux writes it to Segment List[0] when it sends a packet,
 * and computes the HMAC (ipv6_push_rthdr4 in net/ipv6/exthdrs.c).
 */
static inline int sidestep_srh_build(struct sidestep_srh *srh, const struct in6_addr *segments,
				     size_t count, const uint32_t *hmac_key_id)
{
	unsigned char *byte = srh->bytes;
	size_t at, length = SIDESTEP_SRH_FIXED + SIDESTEP_SRH_SEGMENT * (count + 1);

	srh->length = 0;
	if (count == 0)
		return EINVAL;
	if (count > (hmac_key_id ? SIDESTEP_SRH_SIGNED_MAX : SIDESTEP_SRH_SEGMENTS_MAX))
		return E2BIG;
	for (at = 0; at < count; at++) {
		if (IN6_IS_ADDR_UNSPECIFIED(&segments[at]) ||
		    IN6_IS_ADDR_MULTICAST(&segments[at]) || IN6_IS_ADDR_V4MAPPED(&segments[at]))
			return EINVAL;
	}
	memset(byte, 0, sizeof(srh->bytes));
	for (at = 0; at < count; at++)
		memcpy(byte + SIDESTEP_SRH_FIXED + SIDESTEP_SRH_SEGMENT * (count - at),
		       &segments[at], SIDESTEP_SRH_SEGMENT);
	if (hmac_key_id) {
		unsigned char *tlv = byte + length;

		tlv[0] = SIDESTEP_SRH_TLV_HMAC;
		tlv[1] = SIDESTEP_SRH_HMAC - 2;
		tlv[4] = (unsigned char)(*hmac_key_id >> 24);
		tlv[5] = (unsigned char)(*hmac_key_id >> 16);
		tlv[6] = (unsigned char)(*hmac_key_id >> 8);
		tlv[7] = (unsigned char)*hmac_key_id;
		length += SIDESTEP_SRH_HMAC;
	}
	byte[1] = (unsigned char)(length / 8 - 1); /* Hdr Ext Len */
	byte[2] = SIDESTEP_SRH_TYPE;
	byte[3] = (unsigned char)count; /* Segments Left */
	byte[4] = (unsigned char)count; /* Last Entry */
	byte[5] = hmac_key_id ? SIDESTEP_SRH_FLAG_HMAC : 0;
	srh->length = length;
	return 0;
}

/* Sets the header of a socket. Returns 0, or -1 with errno as setsockopt(2) does. */
static inline int sidestep_srh_apply(int fd, const struct sidestep_srh *srh)
{
	return setsockopt(fd, IPPROTO_IPV6, IPV6_RTHDR, srh->bytes, (socklen_t)srh->length);
}

/*
 * Makes a socket send through these segments, in order of travel. Unless `hmac_key_id` is NULL,
 * Linux signs the packets with the key of that ID that `ip sr hmac set` set in this network
 * namespace. Without such a key the HMAC is zero. Returns 0, or -1 with errno: EINVAL and E2BIG
 * of sidestep_srh_build, ENOPROTOOPT for a socket that is not IPv6, and those of setsockopt(2).
 */
static inline int sidestep_srh_set(int fd, const struct in6_addr *segments, size_t count,
				   const uint32_t *hmac_key_id)
{
	struct sidestep_srh srh;
	int wrong = sidestep_srh_build(&srh, segments, count, hmac_key_id);

	if (wrong) {
		errno = wrong;
		return -1;
	}
	return sidestep_srh_apply(fd, &srh);
}

/* Removes the routing header of a socket. Returns 0, or -1 with errno. */
static inline int sidestep_srh_clear(int fd)
{
	return setsockopt(fd, IPPROTO_IPV6, IPV6_RTHDR, NULL, 0);
}

/*
 * Reads the routing header of a socket, of any type; `length` is 0 if it has none. Returns 0, or
 * -1 with errno.
 */
static inline int sidestep_srh_get(int fd, struct sidestep_srh *srh)
{
	socklen_t length = sizeof(srh->bytes);

	srh->length = 0;
	if (getsockopt(fd, IPPROTO_IPV6, IPV6_RTHDR, srh->bytes, &length) != 0)
		return -1;
	srh->length = length;
	return 0;
}

#endif
