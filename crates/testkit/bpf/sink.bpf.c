/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The end of a measured path: count and drop, in XDP for what a redirect brings and in TC for what the stack sends.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

/* The same layout as `Counts` in src/traffic/sink.rs. */
struct counts {
	__u64 packets;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counts);
} counts SEC(".maps");

static __always_inline void count(__u64 bytes)
{
	__u32 key = 0;
	struct counts *here = bpf_map_lookup_elem(&counts, &key);

	if (!here)
		return;
	here->packets++;
	here->bytes += bytes;
}

SEC("xdp.frags")
int sink(struct xdp_md *ctx)
{
	count(bpf_xdp_get_buff_len(ctx));
	return XDP_DROP;
}

SEC("tc")
int sink_skb(struct __sk_buff *skb)
{
	count(skb->len);
	return TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
