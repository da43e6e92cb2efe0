/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The packet path for TC, at ingress (tcx, or a clsact filter). */
#define SIDESTEP_TARGET_TC
#include "step.h"

#include <linux/if_packet.h>
#include <linux/pkt_cls.h>

/*
 * Returns true if the receiver of the frame can be its peer's stack as the frame is. A redirect to
 * the peer does not pass eth_type_trans, which sets both fields from the Ethernet header.
 */
INLINE _Bool is_ready_for_peer(struct __sk_buff *skb)
{
	const __u8 *eth = env_bytes(skb, 0, ETH_LENGTH);

	return eth && load16(eth + ETH_TYPE) == skb->protocol && skb->pkt_type == PACKET_HOST;
}

/*
 * bpf_redirect_peer continues in the peer's receive path. bpf_redirect transmits, so the frame waits
 * in the backlog of this CPU.
 */
INLINE int transmit_frame(struct __sk_buff *skb, struct outcome outcome)
{
	/*
	 * PERF: TCP sends clones, and the receiver's TCP joins only skbs that are no clones
	 * (skb_try_coalesce). As ip6_forward does, skb_cow copies the headers of a clone. Failure
	 * leaves the frame as it is.
	 */
	if (skb->gso_size)
		bpf_skb_change_head(skb, 0, 0);
	if (outcome.marked)
		skb->mark = SIDESTEP_SEGMENT_MARK;
	if (!outcome.to_peer || outcome.marked || !is_ready_for_peer(skb))
		return (int)bpf_redirect(outcome.ifindex, 0);
	/* As __dev_forward_skb: these fields do not leave the namespace. */
	skb->mark = 0;
	skb->priority = 0;
	return (int)bpf_redirect_peer(outcome.ifindex, 0);
}

SEC("tc")
int sidestep_tc(struct __sk_buff *skb)
{
	struct outcome outcome;

	if (env_behind_xdp)
		env_remove_mark(skb);
	trace_begin(skb);
	outcome = step(skb);
	trace_end(skb, outcome);

	if (outcome.kind == OUTCOME_FORWARD)
		return transmit_frame(skb, outcome);
	/* UNSPEC: the next program or the stack processes the packet. */
	return outcome_ends_frame(outcome) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

SEC("tc")
int sidestep_tc_empty(struct __sk_buff *skb)
{
	return TC_ACT_SHOT;
}

char _license[] SEC("license") = "Dual BSD/GPL";
