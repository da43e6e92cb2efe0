/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * End.DX2V (RFC 8986 4.10): decapsulates an Ethernet frame and looks up its VLANs in the SID's VLAN
 * table. The entries are interfaces; the frame is sent unmodified.
 */
#ifndef SIDESTEP_BEHAVIOR_END_DX2V_H
#define SIDESTEP_BEHAVIOR_END_DX2V_H

#include "../read/vlan.h"
#include "decap.h"

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
	p->destination = vlan_key(outer, inner);
	p->view = r->view6;
	return lookup();
}

#endif
