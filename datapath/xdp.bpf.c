/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The packet path for XDP. */
#define SIDESTEP_TARGET_XDP
#include "step.h"

SEC("xdp.frags")
int sidestep_xdp(struct xdp_md *ctx)
{
	struct outcome outcome;

	trace_begin(ctx);
	outcome = step(ctx);
	if (outcome.kind == OUTCOME_DEFER)
		return XDP_PASS;
	trace_end(ctx, outcome);

	if (outcome.kind == OUTCOME_FORWARD)
		return (int)bpf_redirect(outcome.ifindex, 0);
	return outcome_ends_frame(outcome) ? XDP_DROP : XDP_PASS;
}

/* The empty program whose cost measurements subtract. */
SEC("xdp.frags")
int sidestep_xdp_empty(struct xdp_md *ctx)
{
	return XDP_DROP;
}

char _license[] SEC("license") = "Dual BSD/GPL";
