/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The program at TC of a port with XDP. It leaves the frames that XDP has deferred to the packet
 * path, and all others to the kernel.
 *
 * The kernel copies a cloned skb before a program that writes to packets, and clears the metadata
 * of the copy (bpf_unclone_prologue, pskb_expand_head). A capture makes clones. This program writes
 * nothing, so it finds the mark.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include "wire/bytes.h"

#include "deferred.h"

#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} gate_next SEC(".maps");

SEC("tc")
int sidestep_gate(struct __sk_buff *skb)
{
	if (!deferred_mark(skb))
		return TC_ACT_UNSPEC;
	bpf_tail_call_static(skb, &gate_next, 0);
	/* There is no packet path, and the kernel would forward the frame by its own routes. */
	return TC_ACT_SHOT;
}

char _license[] SEC("license") = "Dual BSD/GPL";
