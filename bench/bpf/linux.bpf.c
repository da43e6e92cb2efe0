/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel's routing table, asked as an XDP program asks it: no rules, no neighbor, the main table. */
#include "harness.bpf.h"

#define AF_INET6 10

/* Returns the egress interface index, or 0 if there is no route. */
INLINE __u32 lookup(struct state *state, struct address address)
{
	struct bpf_fib_lookup asked = {.family = AF_INET6, .ifindex = state->ingress};

	__builtin_memcpy(asked.ipv6_dst, &address, sizeof(address));
	if (bpf_fib_lookup(state->ctx, &asked, sizeof(asked),
			   BPF_FIB_LOOKUP_DIRECT | BPF_FIB_LOOKUP_SKIP_NEIGH))
		return 0;
	return asked.ifindex;
}

HARNESS
