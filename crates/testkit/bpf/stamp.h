/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Stamp in the last 16 bytes of a trial's packets, where pushed or removed headers do not affect
 * it:
 *
 *	 0                   1                   2                   3
 *	+-------------------------------+-------------------------------+
 *	|             magic             |             trial             |
 *	+-------------------------------+-------------------------------+
 *	|                      sequence number                          |
 *	+                               +-------------------------------+
 *	|                               |                               |
 *	+-------------------------------+  time it was made, ns         +
 *	|                                                               |
 *	+---------------------------------------------------------------+
 *
 * All fields are big-endian. 48 bits of sequence number last for three months at 30 Mpps, and 48
 * bits of CLOCK_MONOTONIC for three days. With 64 bits of each, UDP over IPv6 would not fit in 64
 * bytes. The same as `Stamp` in src/traffic/stamp.rs.
 */
#ifndef SIDESTEP_LAB_STAMP_H
#define SIDESTEP_LAB_STAMP_H

#include <linux/types.h>
#include <bpf/bpf_endian.h>

#define STAMP_MAGIC 0x5353
#define STAMP_48 ((1ULL << 48) - 1)

struct stamp {
	__be64 front; /* magic, trial, upper 32 bits of the sequence number */
	__be64 back;  /* lower 16 bits of the sequence number, time */
};

static __always_inline struct stamp stamp_of(__u16 trial, __u64 sequence, __u64 time)
{
	struct stamp stamp = {
		.front = bpf_cpu_to_be64((__u64)STAMP_MAGIC << 48 | (__u64)trial << 32 |
					 ((sequence >> 16) & 0xffffffff)),
		.back = bpf_cpu_to_be64(sequence << 48 | (time & STAMP_48)),
	};

	return stamp;
}

static __always_inline __u16 stamp_magic(const struct stamp *stamp)
{
	return bpf_be64_to_cpu(stamp->front) >> 48;
}

static __always_inline __u16 stamp_trial(const struct stamp *stamp)
{
	return bpf_be64_to_cpu(stamp->front) >> 32;
}

static __always_inline __u64 stamp_sequence(const struct stamp *stamp)
{
	return (bpf_be64_to_cpu(stamp->front) & 0xffffffff) << 16 |
	       bpf_be64_to_cpu(stamp->back) >> 48;
}

static __always_inline __u64 stamp_time(const struct stamp *stamp)
{
	return bpf_be64_to_cpu(stamp->back) & STAMP_48;
}

#endif
