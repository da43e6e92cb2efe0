/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Rotations of words, which BPF lacks as instructions. */
#ifndef SIDESTEP_HMAC_WORD_H
#define SIDESTEP_HMAC_WORD_H

#include "../wire/bytes.h"

/*
 * Word of the message schedule. PERF: volatile keeps the schedule in map memory; in BPF, a copy
 * would exceed the stack.
 */
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
 * The word twice in a row: the lower half of a right shift is the rotated word. PERF: BPF needs
 * five instructions per rotation otherwise, and this shares three of them.
 */
INLINE __u64 doubled(__u32 word)
{
	__u64 twice = (__u64)word << 32 | word;

#ifdef __bpf__
	/* Hides the value from the compiler, which would restore the rotations. */
	asm("" : "+r"(twice));
#endif
	return twice;
}

/* Exclusive or of the word rotated right by `a`, `b` and `c` bits. */
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
