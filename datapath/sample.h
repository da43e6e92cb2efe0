/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Shared by `sidestep trace` and the traced programs (trace.bpf.h): the filter for packets, and the
 * sample of one packet. Their maps are not pinned and end with the trace.
 */
#ifndef SIDESTEP_SAMPLE_H
#define SIDESTEP_SAMPLE_H

#include "abi.h"

/* LIMIT: bytes of a sampled frame, as it arrived and as it was sent, from its start. */
#define SIDESTEP_SAMPLE_BYTES 2048
/* Bytes of a sampled frame if only its headers are requested. All headers fit. */
#define SIDESTEP_SAMPLE_HEAD 512
/* LIMIT: steps of a sampled frame. */
#define SIDESTEP_SAMPLE_STEPS 64
/* LIMIT: bytes of the ring of samples. */
#define SIDESTEP_SAMPLE_RING (1u << 21)

/* filter.flags */
#define SIDESTEP_FILTER_SOURCE 0x01u      /* .source */
#define SIDESTEP_FILTER_DESTINATION 0x02u /* .destination */
#define SIDESTEP_FILTER_LOOKED_UP 0x04u   /* .looked_up */
#define SIDESTEP_FILTER_VERDICT 0x08u     /* .verdict */
#define SIDESTEP_FILTER_REASON 0x10u      /* .reason */

/*
 * An address prefix as it lies in memory, IPv4 in the first four bytes. Bits outside the mask are 0
 * in both.
 */
struct sidestep_filter_prefix {
	__u64 address[2];
	__u64 mask[2];
	__u32 ethertype; /* network order: type of the packets with such addresses */
	__u32 reserved;  /* 0 */
};

/* Filter and rate limit. A packet has to match all parts of the filter. */
struct sidestep_filter {
	struct sidestep_filter_prefix source;      /* of the IP header as it arrived */
	struct sidestep_filter_prefix destination; /* of the IP header as it arrived */
	struct sidestep_filter_prefix looked_up;   /* key of any lookup; .ethertype is not used */
	__u32 flags;                               /* SIDESTEP_FILTER_* */
	__u32 ifindex;                             /* ingress; 0: any */
	__u32 verdict;                             /* enum outcome_kind */
	__u32 reason;                              /* enum sidestep_reason */
	__u32 bytes;    /* bytes of a frame to copy, at most SIDESTEP_SAMPLE_BYTES */
	__u32 reserved; /* 0 */
	/* Token bucket: one sample per .interval, and a burst that .credit bounds. */
	__u64 interval; /* nanoseconds, not 0 */
	__u64 credit;   /* nanoseconds */
	/* The packet path writes the following fields. */
	__u64 next; /* earliest time of the next sample, in nanoseconds (monotonic clock) */
	__u64 lost; /* samples without room in the ring */
};

/* One packet and its steps. */
struct sidestep_sample {
	__u64 time;          /* nanoseconds (monotonic clock) */
	__u32 ifindex;       /* ingress */
	__u32 outcome;       /* enum outcome_kind */
	__u32 egress;        /* of a forwarded frame */
	__u32 reason;        /* of a packet that was not forwarded */
	__u32 length;        /* of the frame as it arrived */
	__u32 left_length;   /* of the frame as sent, or as punted if it was modified; else 0 */
	__u32 steps;         /* valid entries of .step */
	__u32 arrived_bytes; /* valid bytes of .arrived */
	__u32 left_bytes;    /* valid bytes of .left */
	__u32 reserved;      /* 0 */
	struct sidestep_trace step[SIDESTEP_SAMPLE_STEPS];
	__u8 arrived[SIDESTEP_SAMPLE_BYTES];
	__u8 left[SIDESTEP_SAMPLE_BYTES];
};
SIDESTEP_ASSERT_SIZE(struct sidestep_filter_prefix, 40);
SIDESTEP_ASSERT_SIZE(struct sidestep_filter, 3 * 40 + 16 + 8 + 32);
SIDESTEP_ASSERT_SIZE(struct sidestep_sample,
		     48 + 28 * SIDESTEP_SAMPLE_STEPS + 2 * SIDESTEP_SAMPLE_BYTES);

#endif
