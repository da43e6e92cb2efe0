/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The HMAC (RFC 2104) of an SRH (RFC 8754 2.1.2.1): with a key whose own two blocks are hashed already, and in memory of
 * this CPU. Which SRHs have one, and what follows from it, is said in verify.h and sign.h.
 *
 * The text, as Linux has it too:
 *
 *    0              16     17    18         22              22 + 16n
 *   | source        | Last  | Flags | HMAC   | Segment List   |
 *   | address       | Entry |       | Key ID | [0] .. [n - 1] |
 *
 * The same text comes again and again: whoever sends by a segment list sends it with each packet, and nothing of the packet
 * is in it but what steers it. So its HMAC is remembered, for this key alone; and only those that were asked for by somebody
 * who knows the key: signed here, or found right.
 *
 * The memory is nobody else's meanwhile: packets are processed with softirqs disabled, and nothing that interrupts this has
 * packets to process.
 */
#ifndef SIDESTEP_HMAC_MAC_H
#define SIDESTEP_HMAC_MAC_H

#include "../env.h"
#include "../wire/srh.h"
#include "sha1.h"
#include "sha256.h"

#define HMAC_BLOCK 64u
#define HMAC_TEXT_SEGMENTS 22u

/* Bytes of the HMAC TLV (RFC 8754 2.1.2), and where its fields are: 32 bytes of HMAC, as Linux has it. */
#define HMAC_TLV_LENGTH 40u
#define HMAC_TLV_KEY_ID 4u
#define HMAC_TLV_MAC 8u

/* FIPS 180-4 5.1.1: a 1, zeros, and the length in bits, that of the key's block included, at the end of a block. */
INLINE __u32 hmac_padding(struct sidestep_hmac_work *work, __u32 length, __u32 at)
{
	__u32 end = at + ((length + 8) | (HMAC_BLOCK - 1)) + 1;

	work->text[at + length] = 0x80;
	store64(work->text + end - 8, be64((__u64)(HMAC_BLOCK + length) * 8));
	return (end - at) / HMAC_BLOCK;
}

/*
 * The text of the SRH at `srh`, which has its source address at `source`, padded, into `work`. How many blocks it is; 0: it
 * cannot be read in place. The caller has seen that `segments` is within the limit.
 */
INLINE __u32 hmac_text(ENV *e, struct sidestep_hmac_work *work, __u32 source, __u32 srh, __u32 segments, __u32 key_id)
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
	/* For the verifier: where the padding goes lies within the text. */
	asm volatile("%0 &= 15" : "+r"(segments));
#endif
	return hmac_padding(work, HMAC_TEXT_SEGMENTS + segments * SEGMENT_LENGTH, 0);
}

/* PERF: on its own, so that there is one copy of its thousands of instructions. */
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

/* RFC 2104 2: H(K ^ opad, H(K ^ ipad, text)), in the form of the TLV: what is longer than the hash is 0. */
SUBPROGRAM int hmac_compute(ENV *e, struct sidestep_hmac_work *work, const struct sidestep_hmac_key *key, __u32 blocks)
{
	__u32 words;

	/* The kernel targets ask nothing of it, and the compiler would pass whatever the register holds. */
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

/* Where the HMAC of this text is remembered, if it is. The source and the last segment alone would do for most. */
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

/* Whether that is the text, and the key. Who finds out by the time learns that somebody has sent it before. */
INLINE _Bool hmac_is_known(const struct sidestep_hmac_work *work, const struct sidestep_hmac_known *known,
			   __u64 generation, __u32 blocks)
{
	__u64 differs = known->generation ^ generation;

	for (__u32 i = 0; i < SIDESTEP_HMAC_TEXT_MAX / HMAC_BLOCK; i++) {
		if (i >= blocks || differs)
			break;
#pragma clang loop unroll(full)
		for (__u32 j = 0; j < HMAC_BLOCK; j += 8)
			differs |= load64(work->text + i * HMAC_BLOCK + j) ^ load64(known->text + i * HMAC_BLOCK + j);
	}
	return !differs;
}

/* Remembers `work->mac` as the HMAC of the text. */
INLINE void hmac_remember(struct sidestep_hmac_work *work, struct sidestep_hmac_known *known, __u64 generation)
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
