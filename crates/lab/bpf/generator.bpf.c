/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Traffic out of nothing: run by BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES, it writes the template into the
 * page that the kernel hands it and redirects it to one interface. Not attached to anything.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* LIMIT: bytes of the frame that are written anew each time; see `Template` in src/traffic/generator.rs. */
#define HEADER_MAX 256

/* The same layout as `Config` in src/traffic/generator.rs. */
struct config {
	__u8 header[HEADER_MAX];
	__u32 ifindex;  /* where the frames go, in the namespace of the running thread */
	__u32 header_length; /* bytes of `header` in use: 14..HEADER_MAX */
	__u32 flows;  /* how many values the varying word takes; 1: none varies */
	__u32 flow_offset; /* of the varying big-endian 16-bit word */
	__u32 checksum_offset; /* of the Internet checksum that covers it; 0: none */
	__u32 flow_base; /* value of the first flow; flow_base + flows <= 65536 */
	__u32 checksum_base; /* checksum of the first flow */
	__u32 reserved;  /* 0 */
};

/* Read-only, so that the verifier knows each value. */
const volatile struct config config;

/* Of one CPU: each generator loads its own copy of the program and runs it from one thread. */
struct {
	__u64 made; /* frames; where `made` of src/traffic/generator.rs reads it */
	__u32 next_flow;
} state;

/* Bytes from the template; the caller has checked that the packet is that long. */
#define COPY(type, packet, offset) (*(type *)((packet) + (offset)) = *(const volatile type *)(config.header + (offset)))

static __always_inline void put_header(__u8 *packet)
{
	__u32 at = 0;

	/* PERF: 16 ns a packet less than bpf_xdp_store_bytes() (160 -> 144, generator to sink). The verifier knows the
	 * length, and cuts the unused rounds off. */
#pragma unroll
	for (int i = 0; i < HEADER_MAX / 8; i++) {
		if (at + 8 > config.header_length)
			break;
		COPY(__u64, packet, at);
		at += 8;
	}
	if (config.header_length & 4) {
		COPY(__u32, packet, at);
		at += 4;
	}
	if (config.header_length & 2) {
		COPY(__u16, packet, at);
		at += 2;
	}
	if (config.header_length & 1)
		COPY(__u8, packet, at);
}

static __always_inline void put_be16(__u8 *packet, __u32 offset, __u32 value)
{
	*(__u16 *)(packet + offset) = bpf_htons((__u16)value);
}

SEC("xdp")
int generator(struct xdp_md *ctx)
{
	__u8 *packet = (__u8 *)(long)ctx->data;
	__u8 *end = (__u8 *)(long)ctx->data_end;

	if (packet + config.header_length > end)
		return XDP_ABORTED;
	/*
	 * The whole header, each time: the pages are recycled, and what comes back is what the path under test left
	 * there.
	 */
	put_header(packet);
	if (config.flows > 1) {
		__u32 flow = state.next_flow;

		state.next_flow = flow + 1 < config.flows ? flow + 1 : 0;
		put_be16(packet, config.flow_offset, config.flow_base + flow);
		if (config.checksum_offset) {
			/* RFC 1624: HC' = ~(~HC + ~m + m'), and m' - m is the flow's number. */
			__u32 sum = (~config.checksum_base & 0xffff) + flow;

			sum = (sum & 0xffff) + (sum >> 16);
			put_be16(packet, config.checksum_offset, ~sum & 0xffff);
		}
	}
	state.made++;
	return bpf_redirect(config.ifindex, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
