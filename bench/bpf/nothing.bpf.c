/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The empty loop, whose cost is subtracted from the others. */
#include "harness.bpf.h"

INLINE __u32 lookup(struct state *state, struct address address)
{
	return (__u32)(address.hi ^ address.lo);
}

HARNESS
