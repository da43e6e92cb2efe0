/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What measures the XDP program by BPF_PROG_TEST_RUN, which repeats a program on one buffer and puts nothing back in
 * between. This one puts the frame back and tail-calls the program, so that each run meets the frame as it arrived. Not
 * part of the packet path; loaded only to measure, attached nowhere.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* LIMIT: bytes from the front of the frame that are put back. */
#define MEASURE_HEAD_MAX 512

struct measure_frame {
	__u32 length;      /* of the frame */
	__u32 head_length; /* min(length, MEASURE_HEAD_MAX) */
	__u8 head[MEASURE_HEAD_MAX];
	__u64 runs;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct measure_frame);
} measure_frame SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} measure_program SEC(".maps");

SEC("xdp.frags")
int sidestep_measure(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct measure_frame *frame = bpf_map_lookup_elem(&measure_frame, &zero);
	__u32 length = (__u32)bpf_xdp_get_buff_len(ctx), head_length;

	if (!frame)
		return XDP_ABORTED;
	/*
	 * The program never changes the end of a frame that has nothing behind its IP packet, so the difference in length
	 * is what it did at the front. Called also when there is none: the empty program pays for it as well.
	 */
	if (bpf_xdp_adjust_head(ctx, (int)length - (int)frame->length) < 0)
		return XDP_ABORTED;
	head_length = frame->head_length;
	if (head_length == 0 || head_length > MEASURE_HEAD_MAX)
		return XDP_ABORTED;
	/* Linux 6.1's verifier does not learn from a comparison with 0 that the length is at least 1. */
	asm volatile("%0 += -1\n%0 &= %1\n%0 += 1" : "+r"(head_length) : "i"(MEASURE_HEAD_MAX - 1));
	if (bpf_xdp_store_bytes(ctx, 0, frame->head, head_length) < 0)
		return XDP_ABORTED;
	/*
	 * A locked instruction waits until the stores above have left the store buffer, so that the program's loads, cut
	 * otherwise than the stores, do not wait for them one by one: a cost that no received packet has. PERF: no
	 * difference on Zen 4 (138 ns for End with and without it); kept so that figures do not hang on the machine's
	 * store forwarding.
	 */
	__sync_fetch_and_add(&frame->runs, 1);
	bpf_tail_call(ctx, &measure_program, 0);
	return XDP_ABORTED;
}

char _license[] SEC("license") = "Dual BSD/GPL";
