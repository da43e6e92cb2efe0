/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The packet path for TC, at ingress (tcx, or a clsact filter). */
#define SIDESTEP_TARGET_TC
#include "step.h"

#include <linux/pkt_cls.h>

SEC("tc")
int sidestep_tc(struct __sk_buff *skb)
{
	struct outcome outcome;

	trace_begin(skb);
	outcome = step(skb);
	trace_end(skb, outcome);

	if (outcome.kind == OUTCOME_FORWARD)
		return (int)bpf_redirect(outcome.ifindex, 0);
	/* UNSPEC: the next program or the stack processes the packet. */
	return outcome_ends_frame(outcome) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

SEC("tc")
int sidestep_tc_empty(struct __sk_buff *skb)
{
	return TC_ACT_SHOT;
}

char _license[] SEC("license") = "Dual BSD/GPL";
