/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Decides about each packet that the pipeline punts ("Decide before you punt", ARCHITECTURE.md).
 * The kernel gets it as it arrived, or as the behaviors made it. XDP may leave it to TC. All others
 * are dropped.
 */
#ifndef SIDESTEP_PUNT_H
#define SIDESTEP_PUNT_H

#include "commit.h"
#include "icmp.h"
#include "local_address.h"

/*
 * Returns true if the kernel can continue with the packet as the plan makes it: the last route is
 * the kernel's, in the tables that the port's rules select, and leaves the packet to the kernel. A
 * packet for this node is delivered from any table.
 */
INLINE _Bool kernel_continues(const struct packet *p, __u32 reason)
{
	/* The Ethernet addresses of a frame that is encapsulated are not those of this node. */
	if ((p->plan & PLAN_FRAME) || p->frame)
		return 0;
	if (reason == PUNT_local)
		return 1;
	if ((p->last & LAST_SIDESTEP_ONLY) || (p->view != p->view6 && p->view != p->view4))
		return 0;
	return p->last & LAST_PUNTS ? reason != PUNT_route_type :
				      reason == PUNT_neighbor || reason == PUNT_egress;
}

/*
 * Carries out the plan and hands the packet to the kernel, which forwards or delivers it. The
 * kernel decrements the hop limit of the outer header once more where it forwards.
 */
INLINE verdict hand_over(ENV *e, struct packet *p, __u32 reason)
{
	_Bool push = (p->plan & PLAN_PUSH) != 0;
	__u8 *ip;

	if (push) {
		verdict v = egress_check(e, p);

		if (v != VERDICT_CONTINUE)
			return v;
		if ((int)(p->end - p->l3) + planned_growth(e, p) > (int)IPV6_PACKET_MAX)
			return punt(packet_too_big);
	} else if (reason != PUNT_local && p->hops) {
		p->hops--;
	}
	switch (rewrite_and_sign(e, p, 0)) {
	case REWRITE_DONE:
		ip = push ? env_bytes(e, ETH_LENGTH, IPV6_LENGTH) : 0;
		if (ip && ip[IPV6_HOP_LIMIT] < 255)
			ip[IPV6_HOP_LIMIT]++;
		return punt(rewritten);
	case REWRITE_REFUSED:
		return punt(headroom);
	default:
		return drop(rewrite);
	}
}

/*
 * Decides a punt of a packet that the kernel must not process as it arrived: a Sidestep-only route
 * was applied, or a headend, which decrements the hop limit and is told about errors. The kernel
 * continues with the result, or the packet is dropped.
 */
INLINE verdict resolve_taken(ENV *e, struct packet *p, __u32 reason)
{
	switch (reason) {
	case PUNT_fragmented:
		return punt(fragmented);
	case PUNT_neighbor:
		return drop(no_neighbor);
	case PUNT_egress:
		return drop(no_egress);
	case PUNT_frame_segments:
		return drop(segmentation);
	case PUNT_hop_limit_exceeded:
		return drop(hop_limit);
	case PUNT_packet_too_big:
		return drop(too_big);
	case PUNT_route_miss:
	case PUNT_route_type:
		return drop(no_route);
	case PUNT_headroom:
		return drop(no_headroom);
	case PUNT_fragment:
		return drop(reassembly);
	case PUNT_routing_header:
		/*
		 * RFC 8200 4.4 requires an ICMP error, also for a packet that the kernel does not
		 * get.
		 */
		icmp_report(e, p, punt(routing_header));
		return drop(kernel_only);
	default:
		return drop(kernel_only);
	}
}

/*
 * Returns true for a punt that TC would not make: it has room for every header, and every egress. A
 * route that punts does so in TC, too. The packet must still be as it arrived.
 */
INLINE _Bool is_deferrable(const struct packet *p, verdict v)
{
	return (v == punt(headroom) || v == punt(egress)) && !(p->last & LAST_PUNTS) &&
	       !(p->taken & TAKEN_WRITTEN);
}

/* Decides a punt. The kernel gets a packet only if it handles the packet as Sidestep would. */
INLINE verdict resolve_punt(ENV *e, struct packet *p, verdict v)
{
	/* Linux' seg6local would lose the ECN of the outer header (RFC 6040 4.2). */
	_Bool inner = (p->plan & PLAN_STRIP) && p->view;

	/* Headers that lead to this node are checked like received ones. */
	if (unlikely(v == punt(local) && (p->plan & PLAN_PUSH))) {
		v = commit(e, p);
		if (v == VERDICT_CONTINUE)
			v = punt(local);
	}
	if (unlikely(local_has_headers(p)))
		v = local_address(e, p, v);
	if (VERDICT_KIND(v) != VERDICT_PUNT || !(p->sidestep_only | p->taken | inner))
		return v;
	if (kernel_continues(p, VERDICT_ARGUMENT(v)))
		v = hand_over(e, p, VERDICT_ARGUMENT(v));
	if (VERDICT_KIND(v) != VERDICT_PUNT || v == punt(rewritten) ||
	    !(p->sidestep_only | p->taken))
		return v;
	v = resolve_taken(e, p, VERDICT_ARGUMENT(v));
	/* The kernel has no route to resolve it. */
	if (v == drop(no_neighbor) && p->view)
		env_request_resolution(e, p->view, p->destination);
	return v;
}

#endif
