/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads VLAN tags, and makes the key of a VLAN table of them. */
#ifndef SIDESTEP_READ_VLAN_H
#define SIDESTEP_READ_VLAN_H

#include "../packet.h"
#include "../wire/eth.h"

/* IEEE 802.1Q 9.6: VLAN ID in the tag control information. 0 means a priority tag. */
#define VLAN_ID_MASK 0x0fffu

/*
 * Reads the VLAN ID of the tag at `offset`, the place of the type field. Stores 0 if there is no
 * tag or no VLAN ID.
 */
INLINE verdict vlan_id(ENV *e, const struct packet *p, __u32 offset, __u32 *id)
{
	const __u8 *tag = env_bytes(e, offset, 2);

	*id = 0;
	if (!tag)
		return punt(ext_chain);
	if (!ethertype_is_tag(load16(tag)))
		return VERDICT_CONTINUE;
	/* The tag control information and the next type. */
	if (offset + 2 + VLAN_TAG_LENGTH > p->end)
		return drop(inner_header);
	tag = env_bytes(e, offset + 2, VLAN_TAG_LENGTH);
	if (!tag)
		return punt(ext_chain);
	*id = be16(load16(tag)) & VLAN_ID_MASK;
	return VERDICT_CONTINUE;
}

/*
 * Key of a VLAN table for the IDs of the two outermost tags, 0 for none: an address with 16 bits for
 * each, in network order.
 */
INLINE struct address vlan_key(__u32 outer, __u32 inner)
{
	struct address key = {};

	if (outer)
		key.hi = be16(outer | SIDESTEP_VLAN_KEY_PRESENT);
	if (inner)
		key.hi |= (__u64)be16(inner | SIDESTEP_VLAN_KEY_PRESENT) << 16;
	return key;
}

#endif
