/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Ethernet II, with 802.1Q and 802.1ad tags.
 *
 *   0                   6                   12      14
 *  +-------------------+-------------------+-------+
 *  |  destination MAC  |    source MAC     | type  |
 *  +-------------------+-------------------+-------+
 *
 * A tag has its own type (0x8100, 0x88a8) in the type field. 16 bits of tag control information
 * (priority 3, DEI 1, VLAN ID 12) and the next type follow.
 */
#ifndef SIDESTEP_WIRE_ETH_H
#define SIDESTEP_WIRE_ETH_H

#include "bytes.h"

#define ETH_LENGTH 14
#define ETH_SOURCE 6
#define ETH_TYPE 12
#define VLAN_TAG_LENGTH 4

/* IEEE 802 EtherTypes, network order. */
#define ETHERTYPE_IPV4 BE16_CONST(0x0800)
#define ETHERTYPE_IPV6 BE16_CONST(0x86dd)
#define ETHERTYPE_ARP BE16_CONST(0x0806)
#define ETHERTYPE_VLAN BE16_CONST(0x8100)
#define ETHERTYPE_QINQ BE16_CONST(0x88a8)

/* IEEE 802.3 3.2.3: group addresses have 1 as the first bit on the wire. */
INLINE _Bool eth_is_group(const __u8 *mac)
{
	return mac[0] & 1;
}

/*
 * IEEE 802.1Q 8.6.3, table 8-1: 01-80-C2-00-00-00 to -0F, which bridges do not forward (STP, LACP,
 * LLDP).
 */
INLINE _Bool eth_is_reserved(const __u8 *mac)
{
	return load32(mac) == 0x00c28001u && !mac[4] && mac[5] < 16;
}

/* IEEE 802.3 31B.3.2: the address of MAC Control frames, such as pause frames. */
INLINE _Bool eth_is_pause(const __u8 *mac)
{
	return load32(mac) == 0x00c28001u && load16(mac + 4) == BE16_CONST(0x0001);
}

INLINE _Bool eth_mac_equal(const __u8 *a, const __u8 *b)
{
	return load32(a) == load32(b) && load16(a + 4) == load16(b + 4);
}

INLINE _Bool ethertype_is_tag(__u16 type)
{
	return type == ETHERTYPE_VLAN || type == ETHERTYPE_QINQ;
}

/* An Ethernet header in registers: the first 8 bytes, the next 4 and the type. */
struct eth_header {
	__u64 head;
	__u32 middle;
	__u16 type; /* network order */
};

INLINE struct eth_header eth_load(const __u8 *p)
{
	struct eth_header eth = {load64(p), load32(p + 8), load16(p + ETH_TYPE)};
	return eth;
}

INLINE void eth_store(__u8 *p, struct eth_header eth)
{
	store64(p, eth.head);
	store32(p + 8, eth.middle);
	store16(p + ETH_TYPE, eth.type);
}

#endif
