/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Rotations of words, which BPF does not have. */
#ifndef SIDESTEP_HMAC_WORD_H
#define SIDESTEP_HMAC_WORD_H

#include "../wire/bytes.h"

/* Of the message schedule. PERF: in BPF it stays where it is; the compiler would copy it to a stack that is too small. */
#ifdef __bpf__
typedef volatile __u32 schedule_word;
#else
typedef __u32 schedule_word;
#endif

#ifdef __bpf__
#define settle(x, y) asm volatile("" : "+r"(x), "+r"(y))
#else
#define settle(x, y) ((void)0)
#endif

/*
 * The word twice in a row: shifted right its lower half is the word rotated. PERF: BPF takes five instructions for each
 * rotation otherwise, three of them here for all together.
 */
INLINE __u64 doubled(__u32 word)
{
	__u64 twice = (__u64)word << 32 | word;

#ifdef __bpf__
	/* Seen through, it would become rotations again. */
	asm("" : "+r"(twice));
#endif
	return twice;
}

/* Rotated right by each of these numbers of bits; their exclusive or. */
INLINE __u32 rotated(__u32 word, int a, int b, int c)
{
	__u64 twice = doubled(word);

	return (__u32)(twice >> a ^ twice >> b ^ twice >> c);
}

INLINE __u32 rotated_twice(__u32 word, int a, int b)
{
	__u64 twice = doubled(word);

	return (__u32)(twice >> a ^ twice >> b);
}

INLINE __u32 rotated_left(__u32 word, int bits)
{
	return word << bits | word >> (32 - bits);
}

#endif
