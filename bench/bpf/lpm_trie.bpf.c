/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* BPF_MAP_TYPE_LPM_TRIE: the kernel's own prefix table for programs. */
#include "harness.bpf.h"

struct lpm_key {
	__u32 length; /* bits */
	__u8 address[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct lpm_key);
	__type(value, __u32);
} routes SEC(".maps");

INLINE __u32 lookup(struct state *state, struct address address)
{
	struct lpm_key key = {.length = 128};
	const __u32 *found;

	__builtin_memcpy(key.address, &address, sizeof(address));
	found = bpf_map_lookup_elem(&routes, &key);
	return found ? *found : 0;
}

HARNESS
