/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * SHA-1 (FIPS 180-4 6.1.2) of one block of 64 bytes. The caller adds padding and length. SHA-1 is
 * still sound within an HMAC (RFC 6194 3.3), and some configurations use it.
 */
#ifndef SIDESTEP_HMAC_SHA1_H
#define SIDESTEP_HMAC_SHA1_H

#include "word.h"

/* 4.1.1: functions of rounds 0 to 19, 20 to 39 and 60 to 79, and 40 to 59. */
#define SHA1_CHOOSE(x, y, z) ((z) ^ ((x) & ((y) ^ (z))))
#define SHA1_PARITY(x, y, z) ((x) ^ (y) ^ (z))
#define SHA1_MAJORITY(x, y, z) (((x) & (y)) | ((z) & ((x) | (y))))

/* 6.1.3: a new word replaces the oldest one. */
#define SHA1_WORD(t)                                                                               \
	((t) < 16 ? w[(t) % 16] :                                                                  \
		    (w[(t) % 16] = rotated_left(w[((t) + 13) % 16] ^ w[((t) + 8) % 16] ^           \
							w[((t) + 2) % 16] ^ w[(t) % 16],           \
						1)))

/* 6.1.2, step 3. The names a to e rotate instead of the values. */
#define SHA1_ROUND(f, constant, a, b, c, d, e, t)                                                  \
	do {                                                                                       \
		e += rotated_left(a, 5) + f(b, c, d) + (constant) + SHA1_WORD(t);                  \
		b = rotated_left(b, 30);                                                           \
	} while (0)

#define SHA1_FIVE_ROUNDS(f, constant, t)                                                           \
	do {                                                                                       \
		SHA1_ROUND(f, constant, a, b, c, d, e, t);                                         \
		SHA1_ROUND(f, constant, e, a, b, c, d, (t) + 1);                                   \
		SHA1_ROUND(f, constant, d, e, a, b, c, (t) + 2);                                   \
		SHA1_ROUND(f, constant, c, d, e, a, b, (t) + 3);                                   \
		SHA1_ROUND(f, constant, b, c, d, e, a, (t) + 4);                                   \
	} while (0)

#define SHA1_TWENTY_ROUNDS(f, constant, t)                                                         \
	do {                                                                                       \
		SHA1_FIVE_ROUNDS(f, constant, t);                                                  \
		SHA1_FIVE_ROUNDS(f, constant, (t) + 5);                                            \
		SHA1_FIVE_ROUNDS(f, constant, (t) + 10);                                           \
		SHA1_FIVE_ROUNDS(f, constant, (t) + 15);                                           \
	} while (0)

/* Adds a block to the hash state. SHA-1 does not use the last three words of the state. */
INLINE void sha1_block(__u32 state[8], const __u8 *block, schedule_word w[16])
{
	__u32 a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];

#pragma clang loop unroll(full)
	for (int t = 0; t < 16; t++)
		w[t] = be32(load32(block + 4 * t));
	SHA1_TWENTY_ROUNDS(SHA1_CHOOSE, 0x5a827999u, 0);
	SHA1_TWENTY_ROUNDS(SHA1_PARITY, 0x6ed9eba1u, 20);
	SHA1_TWENTY_ROUNDS(SHA1_MAJORITY, 0x8f1bbcdcu, 40);
	SHA1_TWENTY_ROUNDS(SHA1_PARITY, 0xca62c1d6u, 60);
	state[0] += a;
	state[1] += b;
	state[2] += c;
	state[3] += d;
	state[4] += e;
}

#endif
