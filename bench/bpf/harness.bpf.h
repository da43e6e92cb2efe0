/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Many lookups in one BPF_PROG_TEST_RUN: a loop over addresses in a map. A file that includes this
 * defines `lookup(struct state *, struct address)` before HARNESS. The cost of the loop is measured
 * with an empty lookup (nothing.bpf.c) and subtracted.
 */
#ifndef SIDESTEP_BENCH_HARNESS_H
#define SIDESTEP_BENCH_HARNESS_H

#include <linux/bpf.h>
#include "wire/bytes.h"
#include <bpf/bpf_helpers.h>

/* LIMIT: addresses. ADDRESSES in fib/subject/harness.rs. */
#define ADDRESSES (1u << 17)
/* LIMIT: addresses whose answers are stored. ANSWERS in fib/subject/harness.rs. */
#define ANSWERS (1u << 16)

/* The frame of a run. Host order. */
struct run {
	__u64 zero;    /* 0, which neither verifier nor compiler knows */
	__u32 first;   /* of the addresses */
	__u32 count;   /* of lookups */
	__u32 ingress; /* interface index that packets would come from */
	__u32 reserved;
};

struct state {
	struct xdp_md *ctx;
	__u64 zero;
	__u32 first;
	__u32 ingress;
	__u32 sum; /* of all results, so that none is in vain */
	__u32 last;
};

/* Addresses in network order. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, ADDRESSES * sizeof(struct address));
} addresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, ANSWERS * sizeof(__u32));
} answers SEC(".maps");

INLINE const struct address *address_at(__u32 index)
{
	__u32 zero = 0;
	const __u8 *first = bpf_map_lookup_elem(&addresses, &zero);

	return first ? (const struct address *)(first + (__u64)(index & (ADDRESSES - 1)) *
								sizeof(struct address)) :
		       NULL;
}

INLINE _Bool begin(struct xdp_md *ctx, struct state *state, __u32 *count)
{
	const struct run *run = (const void *)(long)ctx->data;

	if ((const void *)(run + 1) > (const void *)(long)ctx->data_end)
		return 0;
	*state = (struct state){
		.ctx = ctx, .zero = run->zero, .first = run->first, .ingress = run->ingress};
	*count = run->count;
	return 1;
}

/*
 * independent: the processor may start a lookup before the previous one has ended. dependent:
 * the address depends on the last result, without changing. written: results are stored in
 * `answers`.
 */
#define HARNESS                                                                                    \
	static long independently(__u32 i, struct state *state)                                    \
	{                                                                                          \
		const struct address *address = address_at(state->first + i);                      \
                                                                                                   \
		if (!address)                                                                      \
			return 1;                                                                  \
		state->sum += lookup(state, *address);                                             \
		return 0;                                                                          \
	}                                                                                          \
                                                                                                   \
	static long dependently(__u32 i, struct state *state)                                      \
	{                                                                                          \
		const struct address *stored = address_at(state->first + i);                       \
		struct address address;                                                            \
                                                                                                   \
		if (!stored)                                                                       \
			return 1;                                                                  \
		address.hi = stored->hi ^ (state->last & state->zero);                             \
		address.lo = stored->lo ^ (state->last & state->zero);                             \
		state->last = lookup(state, address);                                              \
		state->sum += state->last;                                                         \
		return 0;                                                                          \
	}                                                                                          \
                                                                                                   \
	static long in_writing(__u32 i, struct state *state)                                       \
	{                                                                                          \
		const struct address *address = address_at(state->first + i);                      \
		__u32 zero = 0;                                                                    \
		__u8 *first = bpf_map_lookup_elem(&answers, &zero);                                \
                                                                                                   \
		if (!address || !first)                                                            \
			return 1;                                                                  \
		store32(first + (__u64)(i & (ANSWERS - 1)) * sizeof(__u32),                        \
			lookup(state, *address));                                                  \
		return 0;                                                                          \
	}                                                                                          \
	HARNESS_PROGRAM(independent, independently)                                                \
	HARNESS_PROGRAM(dependent, dependently)                                                    \
	HARNESS_PROGRAM(written, in_writing)                                                       \
	char _license[] SEC("license") = "Dual BSD/GPL";

#define HARNESS_PROGRAM(name, each)                                                                \
	SEC("xdp") int name(struct xdp_md *ctx)                                                    \
	{                                                                                          \
		struct state state;                                                                \
		__u32 count;                                                                       \
                                                                                                   \
		if (!begin(ctx, &state, &count))                                                   \
			return 0;                                                                  \
		bpf_loop(count, each, &state, 0);                                                  \
		return (int)state.sum;                                                             \
	}

#endif
