/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The mark of a frame that XDP has deferred, as TC finds it. */
#ifndef SIDESTEP_DEFERRED_H
#define SIDESTEP_DEFERRED_H

#include "abi.h"

/* Returns the mark in front of the frame, or 0 if XDP has not deferred it. */
INLINE __u64 *deferred_mark(struct __sk_buff *skb)
{
	__u64 *mark = (__u64 *)(long)skb->data_meta;

	if ((void *)(mark + 1) > (void *)(long)skb->data || *mark != SIDESTEP_DEFERRED)
		return 0;
	return mark;
}

#endif
