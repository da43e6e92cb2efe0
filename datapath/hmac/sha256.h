/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* SHA-256 (FIPS 180-4 6.2.2) of one block of 64 bytes. The caller adds padding and length. */
#ifndef SIDESTEP_HMAC_SHA256_H
#define SIDESTEP_HMAC_SHA256_H

#include "word.h"

/* 4.2.2: constants of the rounds. */
static const __u32 sha256_constants[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
	0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
	0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
	0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
	0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
	0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
	0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
	0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
	0xc67178f2,
};

/* 4.1.2: functions. */
#define SHA256_SUM0(x) rotated(x, 2, 13, 22)
#define SHA256_SUM1(x) rotated(x, 6, 11, 25)
#define SHA256_SIGMA0(x) (rotated_twice(x, 7, 18) ^ (x) >> 3)
#define SHA256_SIGMA1(x) (rotated_twice(x, 17, 19) ^ (x) >> 10)
#define SHA256_CHOOSE(x, y, z) ((z) ^ ((x) & ((y) ^ (z))))
#define SHA256_MAJORITY(x, y, z) (((x) & (y)) | ((z) & ((x) | (y))))

/* 6.2.2, step 3. The names a to h rotate instead of the values. */
#define SHA256_ROUND(a, b, c, d, e, f, g, h, t)                                                    \
	do {                                                                                       \
		h += SHA256_SUM1(e) + SHA256_CHOOSE(e, f, g) + sha256_constants[t] + w[(t) % 16];  \
		d += h;                                                                            \
		h += SHA256_SUM0(a) + SHA256_MAJORITY(a, b, c);                                    \
		settle(d, h);                                                                      \
	} while (0)

#define SHA256_EIGHT_ROUNDS(t)                                                                     \
	do {                                                                                       \
		SHA256_ROUND(a, b, c, d, e, f, g, h, t);                                           \
		SHA256_ROUND(h, a, b, c, d, e, f, g, (t) + 1);                                     \
		SHA256_ROUND(g, h, a, b, c, d, e, f, (t) + 2);                                     \
		SHA256_ROUND(f, g, h, a, b, c, d, e, (t) + 3);                                     \
		SHA256_ROUND(e, f, g, h, a, b, c, d, (t) + 4);                                     \
		SHA256_ROUND(d, e, f, g, h, a, b, c, (t) + 5);                                     \
		SHA256_ROUND(c, d, e, f, g, h, a, b, (t) + 6);                                     \
		SHA256_ROUND(b, c, d, e, f, g, h, a, (t) + 7);                                     \
	} while (0)

/* 6.2.2, step 1 for sixteen words. Each new word replaces the oldest one. */
INLINE void sha256_schedule(schedule_word w[16])
{
#pragma clang loop unroll(full)
	for (int t = 0; t < 16; t++)
		w[t] += SHA256_SIGMA1(w[(t + 14) % 16]) + w[(t + 9) % 16] +
			SHA256_SIGMA0(w[(t + 1) % 16]);
}

/* Adds a block to the hash state. */
INLINE void sha256_block(__u32 state[8], const __u8 *block, schedule_word w[16])
{
	__u32 a = state[0], b = state[1], c = state[2], d = state[3];
	__u32 e = state[4], f = state[5], g = state[6], h = state[7];

#pragma clang loop unroll(full)
	for (int t = 0; t < 16; t++)
		w[t] = be32(load32(block + 4 * t));
	SHA256_EIGHT_ROUNDS(0);
	SHA256_EIGHT_ROUNDS(8);
	sha256_schedule(w);
	SHA256_EIGHT_ROUNDS(16);
	SHA256_EIGHT_ROUNDS(24);
	sha256_schedule(w);
	SHA256_EIGHT_ROUNDS(32);
	SHA256_EIGHT_ROUNDS(40);
	sha256_schedule(w);
	SHA256_EIGHT_ROUNDS(48);
	SHA256_EIGHT_ROUNDS(56);
	state[0] += a;
	state[1] += b;
	state[2] += c;
	state[3] += d;
	state[4] += e;
	state[5] += f;
	state[6] += g;
	state[7] += h;
}

#endif
