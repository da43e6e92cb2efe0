/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* env.h for XDP: struct xdp_md. */
#ifndef SIDESTEP_ENV_XDP_H
#define SIDESTEP_ENV_XDP_H

#include <linux/bpf.h>

typedef struct xdp_md ENV;

#include "maps.bpf.h"

/* Flags that an adjacency needs for this target. */
#define ENV_EGRESS_FLAGS (SIDESTEP_ADJACENCY_VALID | SIDESTEP_ADJACENCY_XDP)
/* The opposite shift restores removed bytes. */
#define ENV_SHIFT_REVERSIBLE 1

INLINE __u8 *env_data(ENV *e)
{
	return (__u8 *)(long)e->data;
}

INLINE __u8 *env_end(ENV *e)
{
	return (__u8 *)(long)e->data_end;
}

/* bpf_xdp_get_buff_len includes the fragments of a multi-buffer frame (Linux 5.18). */
INLINE __u32 env_length(ENV *e)
{
	return (__u32)bpf_xdp_get_buff_len(e);
}

INLINE __u32 env_ifindex(ENV *e)
{
	return e->ingress_ifindex;
}

INLINE _Bool env_is_linear(ENV *e)
{
	return 1;
}

INLINE int env_pull(ENV *e)
{
	return 0;
}

INLINE int env_shift(ENV *e, int delta, enum env_shift how)
{
	return bpf_xdp_adjust_head(e, delta);
}

/* The frame is not one that XDP deferred. */
#define ENV_DEFERRED 0

/*
 * Marks the frame for the program at TC of the same port. XDP has 216 bytes of headroom and not
 * every egress. Metadata reaches the skb only if the driver supports it.
 */
INLINE _Bool env_defer(ENV *e)
{
	__u64 *mark;

	if (bpf_xdp_adjust_meta(e, -(int)sizeof(*mark)) < 0)
		return 0;
	mark = (__u64 *)(long)e->data_meta;
	if ((void *)(mark + 1) > (void *)(long)e->data)
		return 0;
	*mark = SIDESTEP_DEFERRED;
	return 1;
}

INLINE int env_trim(ENV *e, __u32 length)
{
	return bpf_xdp_adjust_tail(e, (int)length - (int)env_length(e));
}

/* XDP has no segmentation offload. */
INLINE __u32 env_segment_size(ENV *e)
{
	return 0;
}

/* Copies bytes, also from a fragmented frame, for env_copy_head. `length` is not 0. */
INLINE int env_copy(ENV *e, __u32 offset, void *to, __u32 length)
{
	return (int)bpf_xdp_load_bytes(e, offset, to, length);
}

#endif
