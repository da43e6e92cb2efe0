/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Verifies the HMAC of an SRH that a SID has processed (RFC 8754 2.1.2.1), as Linux does
 * (net/ipv6/seg6_hmac.c, seg6_hmac_validate_skb).
 *
 * An SRH has an HMAC if its flag is set and the SRH ends with the TLV. The HMAC then has to be
 * right, except on a port with seg6_require_hmac -1. A port with seg6_require_hmac 1 drops an SRH
 * without an HMAC. Packets without an SRH pass.
 *
 * A SID may require an HMAC itself, which Linux does not have. RFC 8754 2.1.2.1 permits such a
 * policy "based on the active segment". The port's setting does not matter then, and a packet
 * without an SRH is dropped.
 *
 * The packet is still unmodified at that time, because behaviors only plan.
 */
#ifndef SIDESTEP_HMAC_VERIFY_H
#define SIDESTEP_HMAC_VERIFY_H

#include "../packet.h"
#include "mac.h"
#include "state.h"

/*
 * Returns the record of an HMAC Key ID: a key, a punt for a key that only the kernel has, or NULL.
 */
INLINE const struct sidestep_route *hmac_key_route(ENV *e, __u32 view, __u32 id)
{
	struct address address = {be32(id), 0};
	__u32 index = view ? env_fib_lookup(e, view, address) : 0;

	return index ? env_route(e, index) : 0;
}

/* Compares in constant time, so that timing does not reveal how many bytes are right. */
INLINE _Bool hmac_equal(const __u8 *found, const __u64 mac[4])
{
	__u64 differs = 0;

#pragma clang loop unroll(full)
	for (__u32 i = 0; i < 4; i++)
		differs |= load64(found + 8 * i) ^ mac[i];
	return !differs;
}

/* Checks that the TLV at `tlv` holds the HMAC of the text in `work`, which has `blocks` blocks. */
INLINE verdict hmac_compare(ENV *e, struct sidestep_hmac_work *work,
			    const struct sidestep_hmac_key *key, __u32 blocks, __u32 tlv)
{
	struct sidestep_hmac_known *known = hmac_slot(work, blocks);
	_Bool is_known = hmac_is_known(work, known, key->generation, blocks);
	const __u8 *found;

	if (!is_known && hmac_compute(e, work, key, blocks) < 0)
		return punt(hmac);
	found = env_bytes(e, tlv + HMAC_TLV_MAC, 32);
	if (!found)
		return punt(hmac);
	if (!hmac_equal(found, is_known ? known->mac : work->mac))
		return drop(hmac_wrong);
	if (!is_known)
		hmac_remember(work, known, key->generation);
	return VERDICT_CONTINUE;
}

/* Verifies an SRH with `segments` segments, whose HMAC TLV is at `tlv`. */
INLINE verdict hmac_verify_tlv(ENV *e, const struct packet *p, __u32 tlv, __u32 key_id,
			       __u32 segments)
{
	const struct sidestep_route *route = hmac_key_route(e, p->hmac.keys, key_id);
	struct sidestep_hmac_work *work = env_hmac_work(e);
	const struct sidestep_hmac_key *key;
	__u32 blocks;

	if (!route)
		return drop(hmac_key);
	if (segments > SIDESTEP_HMAC_SEGMENTS_MAX)
		return drop(hmac_segments);
	key = route->action == SIDESTEP_ROUTE_HMAC_KEY ? env_hmac_key(e, route->policy) : 0;
	if (!key || !work)
		return punt(hmac);
	blocks = hmac_text(e, work, p->hmac.source, p->hmac.srh, segments, key_id);
	return blocks ? hmac_compare(e, work, key, blocks, tlv) : punt(hmac);
}

/*
 * Verifies the SRH at p->hmac.srh, unless an earlier local SID has. `required`: the SID requires an
 * HMAC.
 */
SUBPROGRAM verdict hmac_verify(ENV *e, struct packet *p, __u32 required)
{
	__u32 segments, needed, tlv = 0, key_id = 0;
	const __u8 *bytes;
	verdict v;

	if (!p)
		return punt(hmac);
	if (!p->hmac.srh)
		return p->hmac.authentic ? VERDICT_CONTINUE : drop(hmac_missing);
	bytes = env_bytes(e, p->hmac.srh, 8);
	if (!bytes)
		return punt(hmac);
	segments = bytes[SRH_LAST_ENTRY] + 1u;
	needed = SRH_SEGMENTS + segments * SEGMENT_LENGTH + HMAC_TLV_LENGTH;
	if ((bytes[SRH_FLAGS] & SRH_FLAG_HMAC) && needed <= p->hmac.length) {
		tlv = p->hmac.srh + p->hmac.length - HMAC_TLV_LENGTH;
		bytes = env_bytes(e, tlv, 8);
		if (!bytes)
			return punt(hmac);
		key_id = be32(load32(bytes + HMAC_TLV_KEY_ID));
		if (bytes[0] != SRH_TLV_HMAC || bytes[1] != HMAC_TLV_LENGTH - 2)
			tlv = 0;
	}
	if (tlv)
		v = hmac_verify_tlv(e, p, tlv, key_id, segments);
	else
		v = required || (p->port_flags & SIDESTEP_PORT_REQUIRE_HMAC) ? drop(hmac_missing) :
									       VERDICT_CONTINUE;
	if (tlv)
		env_trace(e, SIDESTEP_TRACE_HMAC, key_id, VERDICT_ARGUMENT(v), p->destination);
	p->hmac.authentic = tlv && v == VERDICT_CONTINUE;
	p->hmac.srh = 0;
	if (unlikely(tlv && VERDICT_KIND(v) == VERDICT_DROP)) {
		/*
		 * RFC 8754 2.1.2.2: a Parameter Problem that points to the TLV, to the source of
		 * the packet with this SRH. A behavior may have made the inner one the current.
		 */
		p->l3 = p->hmac.source - IPV6_SOURCE;
		p->version = 6;
		p->plan = 0;
		p->cursor = tlv;
	}
	return v;
}

/* Authenticates a packet at a SID. This is the only place where an HMAC decides about a packet. */
INLINE verdict hmac_authenticate(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	__u32 required = r->flags & SIDESTEP_ROUTE_REQUIRE_HMAC;

	if (likely(!required && (!p->hmac.srh || (p->port_flags & SIDESTEP_PORT_IGNORE_HMAC))))
		return VERDICT_CONTINUE;
	return hmac_verify(e, p, required);
}

#endif
