/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Signs an inserted SRH. Its text contains the packet's own source and destination. The HMAC of an
 * encapsulation does not depend on the packet, so the compiler signs that policy.
 */
#ifndef SIDESTEP_HMAC_SIGN_H
#define SIDESTEP_HMAC_SIGN_H

#include "../wire/ext.h"
#include "../wire/ipv6.h"
#include "../insert.h"
#include "mac.h"

/*
 * Signs the SRH that was inserted behind the IPv6 header at `ip`. It ends with an HMAC TLV. Returns
 * -1 on failure. The compiler has checked the number of segments.
 */
SUBPROGRAM int hmac_sign(ENV *e, __u32 ip, __u32 index)
{
	const struct sidestep_hmac_key *key = env_hmac_key(e, index);
	struct sidestep_hmac_work *work = env_hmac_work(e);
	__u32 srh = ip + insert_offset(e, ip), segments, blocks, length;
	const __u8 *fixed = env_bytes(e, srh, SRH_SEGMENTS);
	struct sidestep_hmac_known *known;
	__u8 *mac;

	if (!key || !work || !fixed || srh == ip)
		return -1;
	length = ext_length(fixed, PROTO_ROUTING);
	segments = fixed[SRH_LAST_ENTRY] + 1u;
	if (segments > SIDESTEP_HMAC_SEGMENTS_MAX)
		return -1;
	blocks = hmac_text(e, work, ip + IPV6_SOURCE, srh, segments, key->id);
	if (!blocks)
		return -1;
	known = hmac_slot(work, blocks);
	if (!hmac_is_known(work, known, key->generation, blocks)) {
		if (hmac_compute(e, work, key, blocks) < 0)
			return -1;
		hmac_remember(work, known, key->generation);
	}
	mac = env_bytes(e, srh + length - HMAC_TLV_LENGTH + HMAC_TLV_MAC, 32);
	if (!mac)
		return -1;
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < 4; i++)
		store64(mac + 8 * i, known->mac[i]);
	return 0;
}

#endif
