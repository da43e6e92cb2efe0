/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * End.DX2V (RFC 8986 4.10): decapsulates an Ethernet frame and looks up its VLANs in the SID's VLAN
 * table. The entries are interfaces; the frame is sent unmodified.
 */
#ifndef SIDESTEP_BEHAVIOR_END_DX2V_H
#define SIDESTEP_BEHAVIOR_END_DX2V_H

#include "decap.h"

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
 * RFC 8986 4.10: the "exposed VLANs" are the IDs of the two outermost tags. They form the key of
 * the next lookup: an address with 16 bits for each, in network order. An entry with both IDs is
 * therefore a longer match than one with the outer ID alone. The table has a default route that
 * drops all other frames.
 */
INLINE verdict end_dx2v(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	verdict v = decap(e, p, DECAP_ETHERNET);
	__u32 outer, inner = 0;

	if (v != VERDICT_CONTINUE)
		return v;
	v = vlan_id(e, p, p->l3 - 2, &outer);
	if (v == VERDICT_CONTINUE && outer)
		v = vlan_id(e, p, p->l3 - 2 + VLAN_TAG_LENGTH, &inner);
	if (v != VERDICT_CONTINUE)
		return v;
	p->destination.hi = outer ? be16(outer | SIDESTEP_VLAN_KEY_PRESENT) : 0;
	p->destination.lo = 0;
	if (inner)
		p->destination.hi |= (__u64)be16(inner | SIDESTEP_VLAN_KEY_PRESENT) << 16;
	p->view = r->view6;
	return lookup();
}

#endif
