/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The prefix table of the packet path, in a map of the same shape and called in the same way as in maps.bpf.h. */
#include "harness.bpf.h"
#include "table/fib6.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, FIB6_VIEWS * 8);
} fib SEC(".maps");

const volatile __u32 fib_lines = FIB6_VIEWS * 8 / FIB6_LINE;

SUBPROGRAM __u32 fib_lookup(__u32 view, __u64 high, __u64 low)
{
	const __u8 *memory;
	__u32 first = 0;

	memory = bpf_map_lookup_elem(&fib, &first);
	return memory ? fib6_lookup(memory, fib_lines, view, high, low) : 0;
}

INLINE __u32 lookup(struct state *state, struct address address)
{
	return fib_lookup(1, be64(address.hi), be64(address.lo));
}

HARNESS
