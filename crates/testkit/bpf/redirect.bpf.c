/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The least that an XDP path can do: write a constant header, with or without room made for it, and
 * redirect. It does not read the packet, look up or count, so it is the baseline of every path.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define ETHERNET 14
/* An IPv6 header and an SRH of one segment. */
#define PUSH 64

/* The same layout as `Config` in src/traffic/redirect.rs. */
struct config {
	__u8 header[80]; /* Ethernet header, then what is pushed behind it; 2 bytes of padding */
	__u32 push;      /* bytes to push: 0 or PUSH */
	__u32 ifindex;   /* egress, in the namespace of the ingress */
};

/* Read-only, so that the verifier knows each value. */
const volatile struct config config;

#define COPY(type, packet, offset)                                                                 \
	(*(type *)((packet) + (offset)) = *(const volatile type *)(config.header + (offset)))

SEC("xdp.frags")
int redirect(struct xdp_md *ctx)
{
	__u8 *packet, *end;

	if (config.push && bpf_xdp_adjust_head(ctx, -PUSH))
		return XDP_ABORTED;
	packet = (__u8 *)(long)ctx->data;
	end = (__u8 *)(long)ctx->data_end;
	if (packet + ETHERNET + (config.push ? PUSH : 0) > end)
		return XDP_ABORTED;
	COPY(__u64, packet, 0);
	COPY(__u32, packet, 8);
	/* The EtherType is the received one unless something is pushed. */
	if (config.push) {
		COPY(__u16, packet, 12);
#pragma unroll
		for (int at = ETHERNET; at < ETHERNET + PUSH; at += 8)
			COPY(__u64, packet, at);
	}
	return bpf_redirect(config.ifindex, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
