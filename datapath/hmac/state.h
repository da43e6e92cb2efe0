/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The HMAC state of a packet: which SRH has to be verified, and whether the last one was. The
 * reader notes an SRH here; hmac/verify.h verifies it after the behavior has planned.
 */
#ifndef SIDESTEP_HMAC_STATE_H
#define SIDESTEP_HMAC_STATE_H

#include "../packet.h"
#include "../wire/ipv6.h"
#include "../wire/srh.h"

/*
 * Notes the SRH at `offset` for verification, if it carries an HMAC or its port requires one
 * (RFC 8754 2.1.2.1). Offsets that were read in place are at most OFFSET_MAX, so 16 bits hold them.
 */
INLINE void hmac_note(struct packet *p, __u32 offset, __u32 length, __u8 flags)
{
	_Bool needed = (flags & SRH_FLAG_HMAC) || (p->port_flags & SIDESTEP_PORT_REQUIRE_HMAC);

	p->hmac.srh = unlikely(needed) ? (__u16)offset : 0;
	p->hmac.length = (__u16)length;
	p->hmac.source = (__u16)(p->l3 + IPV6_SOURCE);
	p->hmac.authentic = 0;
}

/* Forgets the noted SRH and the result of the last verification. */
INLINE void hmac_reset(struct packet *p)
{
	p->hmac.srh = 0;
	p->hmac.authentic = 0;
}

/*
 * Prepares for a SID that requires an HMAC. The result for the SRH of an outer packet does not
 * count if the current packet has no SRH.
 */
INLINE void hmac_begin(struct packet *p)
{
	if (!p->srh_seen)
		hmac_reset(p);
}

#endif
