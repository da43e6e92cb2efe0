/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Lookup in the longest-prefix-match table that crates/fib builds: a search tree over the edges of
 * the prefixes, with one cache line of 64 bytes per level. Readers take no lock while a writer
 * publishes. See docs/explanation/prefix-table.md.
 *
 *   inner line   children (index of a line, 4 bytes)   7 separators, shifted right by one
 *                0                                     8                                 64
 *   leaf line    6 values                     5 edges
 *                0                            24                                64
 *
 * Separators and edges are numbers in host order: the upper 64 bits of an address, or the lower
 * ones in a tree below. An IPv4 address is the first 32 bits. A value is a route index or a tree:
 * bit 31 set, height in bits 30-27, line in the rest.
 *
 * While a line can be reached, one store changes the word `children`, a single value, or the
 * reference of a view. Any other change makes a new line, which such a store publishes.
 */
#ifndef SIDESTEP_TABLE_FIB6_H
#define SIDESTEP_TABLE_FIB6_H

#include "../wire/bytes.h"

#define FIB6_LINE 64
#define FIB6_SEPARATORS 7
#define FIB6_EDGES 5
#define FIB6_EDGES_OFFSET 24
#define FIB6_TREE 0x80000000u
#define FIB6_HEIGHT_SHIFT 27
#define FIB6_HEIGHT_MASK 15u
#define FIB6_LINE_MASK ((1u << FIB6_HEIGHT_SHIFT) - 1)
/* LIMIT: inner lines above a leaf. */
#define FIB6_HEIGHT_MAX 8
/* LIMIT: views. The memory starts with one 8-byte word for each. */
#define FIB6_VIEWS 4096u
/* The view without prefixes (EMPTY_VIEW of the loader). */
#define FIB6_VIEW_EMPTY (FIB6_VIEWS - 1)

/*
 * Returns the value of the interval that holds `number`. `lines` is the size of the memory and a
 * power of two; references are masked with it, so that no content points outside.
 */
INLINE __u32 fib6_walk(const __u8 *memory, __u32 lines, __u32 tree, __u64 number)
{
	__u32 height = (tree >> FIB6_HEIGHT_SHIFT) & FIB6_HEIGHT_MASK;
	__u32 index = tree & FIB6_LINE_MASK;
	__u64 beyond = (number >> 1) + 1, count;
	const __u8 *line;

	for (__u32 i = 0; i < FIB6_HEIGHT_MAX; i++) {
		if (i >= height)
			break;
		line = memory + (__u64)(index & (lines - 1)) * FIB6_LINE;
		/*
		 * PERF: counts sign bits. Branches would be mispredicted and multiply the
		 * verifier's paths.
		 */
		count = 0;
#pragma clang loop unroll(full)
		for (int k = 1; k <= FIB6_SEPARATORS; k++)
			count += (load64(line + 8 * k) - beyond) >> 63;
		index = load32(line) + (__u32)count;
	}
	line = memory + (__u64)(index & (lines - 1)) * FIB6_LINE;
	count = 0;
#pragma clang loop unroll(full)
	for (int k = 0; k < FIB6_EDGES; k++) {
		__u64 edge = load64(line + FIB6_EDGES_OFFSET + 8 * k);

		/* The borrow of number - edge, as an unsigned comparison: 0 if edge <= number. */
		count += ((~number & edge) | ((~number | edge) & (number - edge))) >> 63;
	}
	count = FIB6_EDGES - count;
#ifdef __bpf__
	/* The compiler may count in negative numbers; the mask gives the verifier a bound. */
	asm volatile("%0 &= 7" : "+r"(count));
#endif
	return load32(line + 4 * count);
}

/*
 * Returns the route index of an address in a view; 0 if there is none. The address is in host
 * order, IPv4 in the first 32 bits.
 */
INLINE __u32 fib6_lookup(const __u8 *memory, __u32 lines, __u32 view, __u64 high, __u64 low)
{
	__u32 value = load32(memory + (view & (FIB6_VIEWS - 1)) * 8);

	if (value & FIB6_TREE)
		value = fib6_walk(memory, lines, value, high);
	if (value & FIB6_TREE)
		value = fib6_walk(memory, lines, value, low);
	return value & FIB6_TREE ? 0 : value;
}

#endif
