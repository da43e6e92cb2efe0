/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sink that counts packets by kind: two bytes identify the kind; packets are counted and dropped.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* The same layout as `Config` in src/traffic/tally.rs. */
struct config {
	__u32 offsets[2];
};

/* Read-only, so that the verifier knows each value. */
const volatile struct config config;

/* The last entry counts frames that are too short. */
#define KINDS 65536

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, KINDS + 1);
	__type(key, __u32);
	__type(value, __u64);
} kinds SEC(".maps");

SEC("xdp")
int tally(struct xdp_md *ctx)
{
	__u8 *packet = (__u8 *)(long)ctx->data;
	__u8 *end = (__u8 *)(long)ctx->data_end;
	__u32 key = KINDS;
	__u64 *count;

	if (packet + config.offsets[0] + 1 <= end && packet + config.offsets[1] + 1 <= end)
		key = packet[config.offsets[0]] << 8 | packet[config.offsets[1]];
	count = bpf_map_lookup_elem(&kinds, &key);
	if (count)
		++*count;
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
