/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What `sidestep trace` shares with the packet path: which packets are wanted, and what is told of one. Only the traced
 * programs know it (trace.bpf.h); their maps are pinned nowhere and end with the trace.
 */
#ifndef SIDESTEP_SAMPLE_H
#define SIDESTEP_SAMPLE_H

#include "abi.h"

/* LIMIT: bytes of a sampled frame that are told, from its first on, as it arrived. */
#define SIDESTEP_SAMPLE_BYTES 2048
/* LIMIT: bytes of a sampled frame that are told, from its first on, as it left: more than any header ends at. */
#define SIDESTEP_SAMPLE_HEAD 512
/* LIMIT: steps of a sampled frame that are told. */
#define SIDESTEP_SAMPLE_STEPS 64
/* LIMIT: bytes of the ring of samples that wait for their reader. */
#define SIDESTEP_SAMPLE_RING (1u << 20)

/* filter.flags */
#define SIDESTEP_FILTER_SOURCE 0x01u /* .source */
#define SIDESTEP_FILTER_DESTINATION 0x02u /* .destination */
#define SIDESTEP_FILTER_LOOKED_UP 0x04u /* .looked_up */
#define SIDESTEP_FILTER_VERDICT 0x08u /* .verdict */
#define SIDESTEP_FILTER_REASON 0x10u /* .reason */

/* An address as it lies in memory, IPv4 in the first four bytes; bits outside the mask are 0 in both. */
struct sidestep_filter_prefix {
	__u64 address[2];
	__u64 mask[2];
	__u32 ethertype; /* network order: the header that such addresses are in */
	__u32 reserved; /* 0 */
};

/* Which packets are told, all of it at once, and how many. */
struct sidestep_filter {
	struct sidestep_filter_prefix source; /* of the IP header that arrived */
	struct sidestep_filter_prefix destination; /* of the IP header that arrived */
	struct sidestep_filter_prefix looked_up; /* an address that was looked up; .ethertype is not looked at */
	__u32 flags; /* SIDESTEP_FILTER_* */
	__u32 ifindex; /* ingress; 0: any */
	__u32 verdict; /* enum outcome_kind */
	__u32 reason; /* enum sidestep_reason */
	__u32 bytes; /* of a frame as it arrived that are wanted, at most SIDESTEP_SAMPLE_BYTES */
	__u32 reserved; /* 0 */
	/* A token bucket: one sample each .interval, and after a silence of .credit some at once. */
	__u64 interval; /* nanoseconds, not 0 */
	__u64 credit; /* nanoseconds */
	/* Written by the packet path. */
	__u64 next; /* no sample before this time of the kernel's monotonic clock */
	__u64 lost; /* samples that the ring had no room for */
};

/* One packet, and what was done with it. */
struct sidestep_sample {
	__u64 time; /* nanoseconds of the kernel's monotonic clock */
	__u32 ifindex; /* ingress */
	__u32 outcome; /* enum outcome_kind */
	__u32 egress; /* of a forwarded frame */
	__u32 reason; /* of any other */
	__u32 length; /* of the frame as it arrived */
	__u32 left_length; /* of the frame as it left, or as the kernel got it if it was changed; 0: it was not */
	__u32 steps; /* of .step */
	__u32 arrived_bytes; /* of .arrived */
	struct sidestep_trace step[SIDESTEP_SAMPLE_STEPS];
	__u8 arrived[SIDESTEP_SAMPLE_BYTES]; /* .arrived_bytes of them */
	__u8 left[SIDESTEP_SAMPLE_HEAD]; /* min(left_length, SIDESTEP_SAMPLE_HEAD) of them */
};
SIDESTEP_ASSERT_SIZE(struct sidestep_filter_prefix, 40);
SIDESTEP_ASSERT_SIZE(struct sidestep_filter, 3 * 40 + 16 + 8 + 32);
SIDESTEP_ASSERT_SIZE(struct sidestep_sample,
		     40 + 28 * SIDESTEP_SAMPLE_STEPS + SIDESTEP_SAMPLE_BYTES + SIDESTEP_SAMPLE_HEAD);

#endif
