/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Outer headers that dynamic proxies (End.AD) have learned. All CPUs read them while one CPU
 * writes.
 *
 * A record keeps the last SIDESTEP_LEARNED_SLOTS versions. The writer fills the next slot and then
 * publishes its version. A reader copies the slot of the version that it saw, and then checks the
 * version again: the copy is valid if the writer has not reached that slot meanwhile. Readers never
 * wait, and never get a mix of two versions.
 *
 * A proxy has one version for all packets, in its own record, or a header set for each flow
 * (flows.h).
 */
#ifndef SIDESTEP_TABLE_LEARNED_H
#define SIDESTEP_TABLE_LEARNED_H

#include "../packet.h"
#include "../wire/ipv6.h"
#include "../wire/srh.h"

#define LEARNED_WORDS (SIDESTEP_LEARNED_MAX / 8)
/* Pairs of words behind the IPv6 header; the last pair may be half used. */
#define LEARNED_PAIRS ((SIDESTEP_LEARNED_MAX - IPV6_LENGTH + 8) / 16)
#define LEARNED_SEGMENTS ((SIDESTEP_LEARNED_MAX - IPV6_LENGTH - SRH_SEGMENTS) / SEGMENT_LENGTH)

INLINE __u64 learned_version(const struct sidestep_learned *learned)
{
	return *(const volatile __u64 *)&learned->version;
}

INLINE struct sidestep_headers *learned_headers(struct sidestep_learned *learned, __u64 version)
{
	return &learned->headers[version & (SIDESTEP_LEARNED_SLOTS - 1)];
}

/* Returns true if the headers of `version` were not overwritten before this call. */
INLINE _Bool learned_untouched(const struct sidestep_learned *learned, __u64 version)
{
	env_barrier();
	return learned_version(learned) - version < SIDESTEP_LEARNED_SLOTS - 1;
}

/*
 * First word of the IPv6 header without the fields that differ between packets: traffic class, flow
 * label, Payload Length.
 */
INLINE __u64 learned_first(const struct packet *p, __u64 word)
{
	return (word & 0x00ff000000000000ull) | (__u64)(__u8)(p->hop_limit - p->hops) << 56 | 0x60;
}

/* First word of the active SRH. */
INLINE __u64 learned_srh(const struct packet *p, __u64 word)
{
	return (word & ~(0xffull << (8 * SRH_SEGMENTS_LEFT))) | (__u64)p->segments_left
									<< (8 * SRH_SEGMENTS_LEFT);
}

/*
 * Returns word `i` of the current packet's outer headers after the plan. learn_headers()
 * (behavior/end_ad.h) has checked that they can be read in place.
 */
INLINE __u64 learned_word(ENV *e, const struct packet *p, __u32 i)
{
	const __u8 *bytes = env_bytes(e, p->l3 + i * 8, 8);
	__u64 word;

	if (!bytes)
		return 0;
	word = load64(bytes);
	if (i == 0)
		return learned_first(p, word);
	if (i == IPV6_DESTINATION / 8)
		return p->destination.hi;
	if (i == IPV6_DESTINATION / 8 + 1)
		return p->destination.lo;
	if ((p->plan & PLAN_LAST_SEGMENT) &&
	    p->l3 + i * 8 - p->srh - SRH_SEGMENTS < SEGMENT_LENGTH) {
		bytes = env_bytes(
			e, p->l3 + IPV6_DESTINATION + (p->l3 + i * 8 - p->srh - SRH_SEGMENTS), 8);
		return bytes ? load64(bytes) : 0;
	}
	return p->l3 + i * 8 == p->srh ? learned_srh(p, word) : word;
}

/* Bytes of the outer headers, which end at the cursor. */
INLINE __u32 learned_length(const struct packet *p)
{
	return p->cursor - p->l3;
}

/*
 * learned_matches() for an SRH directly behind the IPv6 header, as most packets have it; false for
 * others. PERF: compares whole segments with one bounds check each, without a call.
 */
INLINE _Bool learned_matches_srh(ENV *e, const struct packet *p,
				 const struct sidestep_headers *headers)
{
	const __u8 *bytes = env_bytes(e, p->l3, IPV6_LENGTH + SRH_SEGMENTS);
	const __u64 *words = (const __u64 *)headers->bytes;
	__u32 length = learned_length(p);
	__u64 differs;

	if (!bytes || headers->length != length || p->srh != p->l3 + IPV6_LENGTH ||
	    (p->plan & PLAN_LAST_SEGMENT))
		return 0;
	differs = words[0] ^ learned_first(p, load64(bytes));
	differs |= words[1] ^ load64(bytes + 8);
	differs |= words[2] ^ load64(bytes + 16);
	differs |= words[3] ^ p->destination.hi;
	differs |= words[4] ^ p->destination.lo;
	differs |= words[5] ^ learned_srh(p, load64(bytes + IPV6_LENGTH));
	if (differs)
		return 0;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < LEARNED_SEGMENTS; i++) {
		__u32 at = IPV6_LENGTH + SRH_SEGMENTS + i * SEGMENT_LENGTH;

		if (at + SEGMENT_LENGTH > length) {
			if (at == length)
				break;
			/* TLVs may end with half a segment. */
			bytes = env_bytes(e, p->l3 + at, 8);
			return bytes && words[at / 8] == load64(bytes);
		}
		bytes = env_bytes(e, p->l3 + at, SEGMENT_LENGTH);
		if (!bytes ||
		    ((words[at / 8] ^ load64(bytes)) | (words[at / 8 + 1] ^ load64(bytes + 8))))
			return 0;
	}
	return 1;
}

/*
 * Returns true if the packet has the headers of that version. A concurrent write may cause a wrong
 * result.
 */
SUBPROGRAM __u32 learned_matches(ENV *e, struct packet *p, __u32 index, __u64 version)
{
	struct sidestep_learned *learned = env_learned(e, index);
	const struct sidestep_headers *headers;
	const __u64 *words;
	__u32 length;

	if (!p || !learned)
		return 0;
	headers = learned_headers(learned, version);
	words = (const __u64 *)headers->bytes;
	length = learned_length(p);
	if (headers->length != length)
		return 0;
	if (likely(learned_matches_srh(e, p, headers)))
		return 1;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < LEARNED_WORDS; i++) {
		if (i * 8 >= length)
			break;
		if (words[i] != learned_word(e, p, i))
			return 0;
	}
	return 1;
}

/*
 * Writes the packet's headers as the version after `seen`, and returns that version. Returns 0 if
 * another CPU writes at the same time, or has written since.
 */
SUBPROGRAM __u64 learned_write(ENV *e, struct packet *p, __u32 index, __u64 seen, __u32 hash)
{
	struct sidestep_learned *learned = env_learned(e, index);
	struct sidestep_headers *headers;
	__u64 version, *words;
	__u32 length;

	if (!p || !learned || env_swap(&learned->busy, 1))
		return 0;
	if (learned_version(learned) != seen) {
		env_swap(&learned->busy, 0);
		return 0;
	}
	version = seen + 1;
	headers = learned_headers(learned, version);
	words = (__u64 *)headers->bytes;
	length = learned_length(p);
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < LEARNED_WORDS; i++) {
		if (i * 8 >= length)
			break;
		words[i] = learned_word(e, p, i);
	}
	headers->length = length;
	headers->hash = hash;
	learned->time = env_now(e);
	env_swap(&learned->version, version);
	env_swap(&learned->busy, 0);
	return version;
}

/*
 * Returns true if headers from `time` are old enough to be replaced (.age). The difference is
 * signed: another CPU may have learned after this one read the clock.
 */
INLINE _Bool learned_has_age(ENV *e, const struct sidestep_learned *proxy, __u64 time)
{
	return (__s64)(env_now(e) - time) >= (__s64)(proxy->age * 1000000000ull);
}

#endif
