/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * HMAC (RFC 2104) of an SRH (RFC 8754 2.1.2.1), in buffers of this CPU. The two blocks of the key
 * are already hashed. verify.h and sign.h decide which SRHs have an HMAC.
 *
 * The text is the same as in Linux:
 *
 *    0              16     17    18         22              22 + 16n
 *   | source        | Last  | Flags | HMAC   | Segment List   |
 *   | address       | Entry |       | Key ID | [0] .. [n - 1] |
 *
 * The text depends on the source and the segment list only, so all packets of a flow share it. Each
 * CPU caches the HMACs of its last texts, per key. Only texts that were signed here or found right
 * enter the cache.
 *
 * Packets are processed with softirqs disabled, so no other packet uses the buffers meanwhile.
 */
#ifndef SIDESTEP_HMAC_MAC_H
#define SIDESTEP_HMAC_MAC_H

#include "../env.h"
#include "../wire/srh.h"
#include "sha1.h"
#include "sha256.h"

#define HMAC_BLOCK 64u
#define HMAC_TEXT_SEGMENTS 22u

/* Offsets in the HMAC TLV (RFC 8754 2.1.2). The HMAC has 32 bytes, as in Linux. */
#define HMAC_TLV_LENGTH 40u
#define HMAC_TLV_KEY_ID 4u
#define HMAC_TLV_MAC 8u

/*
 * FIPS 180-4 5.1.1: appends a 1 bit, zeros, and the length in bits, including the block of the key.
 */
INLINE __u32 hmac_padding(struct sidestep_hmac_work *work, __u32 length, __u32 at)
{
	__u32 end = at + ((length + 8) | (HMAC_BLOCK - 1)) + 1;

	work->text[at + length] = 0x80;
	store64(work->text + end - 8, be64((__u64)(HMAC_BLOCK + length) * 8));
	return (end - at) / HMAC_BLOCK;
}

/*
 * Writes the padded text of the SRH at `srh`, with the source address at `source`, into `work`.
 * Returns the number of blocks; 0 if the SRH is not in place. The caller has checked `segments`.
 */
INLINE __u32 hmac_text(ENV *e, struct sidestep_hmac_work *work, __u32 source, __u32 srh,
		       __u32 segments, __u32 key_id)
{
	const __u8 *bytes = env_bytes(e, source, 16);
	__u8 *text = work->text;

	if (!bytes)
		return 0;
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < SIDESTEP_HMAC_TEXT_MAX; i += 8)
		store64(text + i, 0);
	store_address(text, load_address(bytes));
	bytes = env_bytes(e, srh, SRH_SEGMENTS);
	if (!bytes)
		return 0;
	store16(text + 16, load16(bytes + SRH_LAST_ENTRY));
	store32(text + 18, be32(key_id));
	for (__u32 i = 0; i < SIDESTEP_HMAC_SEGMENTS_MAX; i++) {
		if (i >= segments)
			break;
		bytes = env_bytes(e, srh + SRH_SEGMENTS + i * SEGMENT_LENGTH, SEGMENT_LENGTH);
		if (!bytes)
			return 0;
		store_address(text + HMAC_TEXT_SEGMENTS + i * SEGMENT_LENGTH, load_address(bytes));
	}
#ifdef __bpf__
	/* Bounds the offset of the padding for the verifier. */
	asm volatile("%0 &= 15" : "+r"(segments));
#endif
	return hmac_padding(work, HMAC_TEXT_SEGMENTS + segments * SEGMENT_LENGTH, 0);
}

/* PERF: a subprogram, because it has thousands of instructions. */
SUBPROGRAM int hmac_sha256_block(struct sidestep_hmac_work *work, __u32 number)
{
	if (!work)
		return -1;
#ifdef __bpf__
	asm volatile("%0 &= 7" : "+r"(number));
#endif
	sha256_block(work->state, work->text + number * HMAC_BLOCK, work->schedule);
	return 0;
}

SUBPROGRAM int hmac_sha1_block(struct sidestep_hmac_work *work, __u32 number)
{
	if (!work)
		return -1;
#ifdef __bpf__
	asm volatile("%0 &= 7" : "+r"(number));
#endif
	sha1_block(work->state, work->text + number * HMAC_BLOCK, work->schedule);
	return 0;
}

INLINE void hmac_block(ENV *e, struct sidestep_hmac_work *work, __u32 algorithm, __u32 number)
{
	if (env_hash(e, algorithm, work->state, work->text + number * HMAC_BLOCK))
		return;
	if (algorithm == SIDESTEP_HMAC_SHA256)
		hmac_sha256_block(work, number);
	else
		hmac_sha1_block(work, number);
}

/*
 * RFC 2104 2: H(K ^ opad, H(K ^ ipad, text)), in the form of the TLV. Bytes behind the hash are 0.
 */
SUBPROGRAM int hmac_compute(ENV *e, struct sidestep_hmac_work *work,
			    const struct sidestep_hmac_key *key, __u32 blocks)
{
	__u32 words;

	/* The kernel targets do not use `e`, so the compiler would pass an undefined register. */
	KEEP(e);
	if (!work || !key)
		return -1;
	words = key->algorithm == SIDESTEP_HMAC_SHA256 ? 8 : 5;
	for (__u32 i = 0; i < 8; i++)
		work->state[i] = key->inner[i];
	for (__u32 i = 0; i < SIDESTEP_HMAC_TEXT_MAX / HMAC_BLOCK; i++) {
		if (i >= blocks)
			break;
		hmac_block(e, work, key->algorithm, i);
	}
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < HMAC_BLOCK; i += 8)
		store64(work->text + SIDESTEP_HMAC_TEXT_MAX + i, 0);
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < 8; i++) {
		if (i < words)
			store32(work->text + SIDESTEP_HMAC_TEXT_MAX + i * 4, be32(work->state[i]));
		work->state[i] = key->outer[i];
	}
	if (words == 8)
		hmac_padding(work, 32, SIDESTEP_HMAC_TEXT_MAX);
	else
		hmac_padding(work, 20, SIDESTEP_HMAC_TEXT_MAX);
	hmac_block(e, work, key->algorithm, SIDESTEP_HMAC_TEXT_MAX / HMAC_BLOCK);
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < 4; i++) {
		__u64 low = 2 * i < words ? be32(work->state[2 * i]) : 0;
		__u64 high = 2 * i + 1 < words ? be32(work->state[2 * i + 1]) : 0;

		work->mac[i] = low | high << 32;
	}
	return 0;
}

/* Returns the cache entry for this text. A hash of the whole text selects it. */
INLINE struct sidestep_hmac_known *hmac_slot(struct sidestep_hmac_work *work, __u32 blocks)
{
	__u64 factor = 0x9e3779b97f4a7c15ull, mixed = 0, slot;

	for (__u32 i = 0; i < SIDESTEP_HMAC_TEXT_MAX / HMAC_BLOCK; i++) {
		if (i >= blocks)
			break;
#pragma clang loop unroll(full)
		for (__u32 j = 0; j < HMAC_BLOCK; j += 8) {
			mixed += load64(work->text + i * HMAC_BLOCK + j) * factor;
			factor += 0x9e3779b97f4a7c16ull;
		}
	}
	mixed ^= mixed >> 32;
	slot = mixed * 0x9e3779b97f4a7c15ull >> 32;
#ifdef __bpf__
	asm volatile("%0 &= %1" : "+r"(slot) : "i"(SIDESTEP_HMAC_KNOWN - 1));
#endif
	return &work->known[slot & (SIDESTEP_HMAC_KNOWN - 1)];
}

/*
 * Returns true if the entry holds the HMAC of this text and key. Timing only reveals that the text
 * was seen before.
 */
INLINE _Bool hmac_is_known(const struct sidestep_hmac_work *work,
			   const struct sidestep_hmac_known *known, __u64 generation, __u32 blocks)
{
	__u64 differs = known->generation ^ generation;

	for (__u32 i = 0; i < SIDESTEP_HMAC_TEXT_MAX / HMAC_BLOCK; i++) {
		if (i >= blocks || differs)
			break;
#pragma clang loop unroll(full)
		for (__u32 j = 0; j < HMAC_BLOCK; j += 8)
			differs |= load64(work->text + i * HMAC_BLOCK + j) ^
				   load64(known->text + i * HMAC_BLOCK + j);
	}
	return !differs;
}

/* Caches `work->mac` as the HMAC of the text. */
INLINE void hmac_remember(struct sidestep_hmac_work *work, struct sidestep_hmac_known *known,
			  __u64 generation)
{
	known->generation = generation;
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < SIDESTEP_HMAC_TEXT_MAX; i += 8)
		store64(known->text + i, load64(work->text + i));
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < 4; i++)
		known->mac[i] = work->mac[i];
}

#endif
