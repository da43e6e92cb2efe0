/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * SHA-1 and SHA-256 of one block with the SHA instructions of x86-64 (Intel SDM 2, SHA1RNDS4 to
 * SHA256RNDS2), for the native target. The results equal those of sha1.h and sha256.h. The caller
 * checks that the CPU has the instructions; BPF has none.
 */
#ifndef SIDESTEP_HMAC_SHA_X86_H
#define SIDESTEP_HMAC_SHA_X86_H

#include <immintrin.h>

#include "sha256.h"

#define SHA_X86 __attribute__((target("sha,sse4.1,ssse3"))) static inline

SHA_X86 __m128i sha_x86_words(__u32 high, __u32 b, __u32 c, __u32 low)
{
	return _mm_set_epi32((int)high, (int)b, (int)c, (int)low);
}

SHA_X86 void sha256_block_x86(__u32 state[8], const __u8 *block)
{
	const __m128i order = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
	__m128i abef = sha_x86_words(state[0], state[1], state[4], state[5]);
	__m128i cdgh = sha_x86_words(state[2], state[3], state[6], state[7]);
	const __m128i abef_before = abef, cdgh_before = cdgh;
	__m128i w[4];

	for (int i = 0; i < 4; i++)
		w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)block + i), order);
	for (int i = 0; i < 16; i++) {
		/*
		 * Sixteen words in four registers. The next four words replace the oldest four, in
		 * w[i % 4].
		 */
		__m128i oldest = w[i % 4], third = w[(i + 2) % 4], newest = w[(i + 3) % 4];
		__m128i sum = _mm_add_epi32(oldest,
					    _mm_loadu_si128((const __m128i *)sha256_constants + i));

		cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
		abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
		oldest = _mm_add_epi32(_mm_sha256msg1_epu32(oldest, w[(i + 1) % 4]),
				       _mm_alignr_epi8(newest, third, 4));
		w[i % 4] = _mm_sha256msg2_epu32(oldest, newest);
	}
	abef = _mm_add_epi32(abef, abef_before);
	cdgh = _mm_add_epi32(cdgh, cdgh_before);
	state[0] = (__u32)_mm_extract_epi32(abef, 3);
	state[1] = (__u32)_mm_extract_epi32(abef, 2);
	state[2] = (__u32)_mm_extract_epi32(cdgh, 3);
	state[3] = (__u32)_mm_extract_epi32(cdgh, 2);
	state[4] = (__u32)_mm_extract_epi32(abef, 1);
	state[5] = (__u32)_mm_extract_epi32(abef, 0);
	state[6] = (__u32)_mm_extract_epi32(cdgh, 1);
	state[7] = (__u32)_mm_extract_epi32(cdgh, 0);
}

/* Twenty rounds with one function, four at a time. `e` is the sum of E and the next four words. */
#define SHA1_X86_ROUNDS(function, first)                                                           \
	for (int i = (first); i < (first) + 5; i++) {                                              \
		__m128i before = abcd, oldest = w[i % 4], third = w[(i + 2) % 4],                  \
			newest = w[(i + 3) % 4];                                                   \
                                                                                                   \
		abcd = _mm_sha1rnds4_epu32(abcd, e, function);                                     \
		e = _mm_sha1nexte_epu32(before, w[(i + 1) % 4]);                                   \
		oldest = _mm_xor_si128(_mm_sha1msg1_epu32(oldest, w[(i + 1) % 4]), third);         \
		w[i % 4] = _mm_sha1msg2_epu32(oldest, newest);                                     \
		rotated = before;                                                                  \
	}

SHA_X86 void sha1_block_x86(__u32 state[8], const __u8 *block)
{
	const __m128i order = _mm_set_epi64x(0x0001020304050607, 0x08090a0b0c0d0e0f);
	__m128i abcd = sha_x86_words(state[0], state[1], state[2], state[3]);
	const __m128i abcd_before = abcd, e_before = sha_x86_words(state[4], 0, 0, 0);
	__m128i w[4], e, rotated;

	for (int i = 0; i < 4; i++)
		w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)block + i), order);
	e = _mm_add_epi32(e_before, w[0]);
	SHA1_X86_ROUNDS(0, 0);
	SHA1_X86_ROUNDS(1, 5);
	SHA1_X86_ROUNDS(2, 10);
	SHA1_X86_ROUNDS(3, 15);
	/* The last E is the rotated A of four rounds before. */
	e = _mm_sha1nexte_epu32(rotated, e_before);
	abcd = _mm_add_epi32(abcd, abcd_before);
	state[0] = (__u32)_mm_extract_epi32(abcd, 3);
	state[1] = (__u32)_mm_extract_epi32(abcd, 2);
	state[2] = (__u32)_mm_extract_epi32(abcd, 1);
	state[3] = (__u32)_mm_extract_epi32(abcd, 0);
	state[4] = (__u32)_mm_extract_epi32(e, 3);
}

#endif
