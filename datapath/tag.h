/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Changes of the outermost VLAN tag of a frame, to or from an attached interface. */
#ifndef SIDESTEP_TAG_H
#define SIDESTEP_TAG_H

#include "packet.h"
#include "wire/eth.h"

/*
 * Plans a change of the outermost tag of the frame at `.l3` - 14, SIDESTEP_TAG_*. A frame without the
 * tag to remove or change does not belong to the attached VLAN.
 */
INLINE verdict tag_plan(ENV *e, struct packet *p, __u16 tag)
{
	const __u8 *type = env_bytes(e, p->l3 - 2, 2);

	if ((tag & SIDESTEP_TAG_CHANGE) != SIDESTEP_TAG_PUSH &&
	    (!type || !ethertype_is_tag(load16(type)) || p->l3 + VLAN_TAG_LENGTH > p->end))
		return drop(not_attached);
	p->tag = tag;
	return VERDICT_CONTINUE;
}

/* Bytes that the planned change of the tag adds; negative if it removes any. */
INLINE int tag_growth(const struct packet *p)
{
	switch (p->tag & SIDESTEP_TAG_CHANGE) {
	case SIDESTEP_TAG_POP:
		return -VLAN_TAG_LENGTH;
	case SIDESTEP_TAG_PUSH:
		return VLAN_TAG_LENGTH;
	default:
		return 0;
	}
}

/* Returns true if the frame at `.l3` - 14 has a tag after the plan, as far as it is known. */
INLINE _Bool frame_keeps_tag(ENV *e, const struct packet *p)
{
	const __u8 *type = env_bytes(e, p->l3 - 2, 2);

	if (p->tag)
		return (p->tag & SIDESTEP_TAG_CHANGE) != SIDESTEP_TAG_POP;
	return type && ethertype_is_tag(load16(type));
}

/*
 * Adds or removes the outermost tag of a decapsulated frame: moves its addresses. A new tag takes
 * bytes of the outer headers, which are removed next.
 */
INLINE int tag_move(ENV *e, struct packet *p, _Bool push)
{
	__u32 at = p->l3 - ETH_LENGTH, to = push ? at - VLAN_TAG_LENGTH : at + VLAN_TAG_LENGTH;
	struct eth_header eth;
	__u16 behind;

	if (env_read_eth(e, at, push, &eth, &behind) < 0)
		return -1;
	p->l3 = to + ETH_LENGTH;
	return env_write_eth(e, to, push, eth, p->tag & SIDESTEP_TAG_ID, behind);
}

/* Carries out the planned change. Negative if the frame is no longer whole. */
SUBPROGRAM int tag_change(ENV *e, struct packet *p)
{
	_Bool push;
	__u8 *tag;

	if (!p)
		return -1;
	push = (p->tag & SIDESTEP_TAG_CHANGE) == SIDESTEP_TAG_PUSH;
	if ((p->tag & SIDESTEP_TAG_CHANGE) == SIDESTEP_TAG_SET) {
		tag = env_bytes(e, p->l3, VLAN_TAG_LENGTH);
		if (!tag)
			return -1;
		store16(tag, (__u16)((load16(tag) & ~be16(SIDESTEP_TAG_ID)) |
				     be16(p->tag & SIDESTEP_TAG_ID)));
		return 0;
	}
	if (p->plan & PLAN_FRAME)
		return tag_move(e, p, push);
	if (env_tag_resize(e, push, p->tag & SIDESTEP_TAG_ID) < 0)
		return -1;
	/* As of every frame with a tag, the addresses make the flow label. */
	p->version = 0;
	p->end = (__u32)((int)p->end + tag_growth(p));
	p->frame_length = p->end;
	return 0;
}

#endif
