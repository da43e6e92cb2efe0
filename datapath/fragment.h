/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Packets that exceed the egress MTU and that this node fragments (RFC 2473 7, RFC 1812 5.2.6). The
 * packet path finishes the packet and hands it to the control plane (report.h), which cuts it and
 * sends the fragments (crates/control/src/fragment).
 */
#ifndef SIDESTEP_FRAGMENT_H
#define SIDESTEP_FRAGMENT_H

#include "commit.h"
#include "report.h"

/* RFC 8200 5 */
#define IPV6_MTU_MIN 1280

/*
 * Decides a packet whose `length` exceeds the egress MTU. CONTINUE: the control plane sends it in
 * fragments. Punts go to Linux, which fragments plain IPv4 and sends ICMP errors.
 */
SUBPROGRAM verdict too_big(ENV *e, const struct packet *p, __u32 length)
{
	const struct sidestep_policy *policy = 0;
	_Bool fits = length + ETH_LENGTH <= SIDESTEP_REPORT_BYTES;
	const __u8 *ip;

	if (!p || plan_has_frame(p))
		return punt(packet_too_big);
	/* Only the source of a header may fragment behind it (RFC 8200 4.5). */
	if ((p->plan & (PLAN_PUSH | PLAN_RESTORE)) == PLAN_PUSH)
		policy = env_policy(e, p->policy);
	if (p->version == 6) {
		__u32 inner = p->end - p->l3;

		if (!policy || policy->kind != SIDESTEP_POLICY_ENCAPS)
			return punt(packet_too_big);
		if (p->plan & PLAN_POP)
			inner -= p->srh_length;
		/* RFC 2473 7.1(b): the source cannot send smaller packets. */
		return inner <= IPV6_MTU_MIN && fits && !env_segment_size(e) ? VERDICT_CONTINUE :
									       punt(packet_too_big);
	}
	ip = env_bytes(e, p->l3, IPV4_LENGTH);
	if (!ip || (load16(ip + IPV4_FRAGMENT) & IPV4_DONT_FRAGMENT))
		return punt(packet_too_big);
	/*
	 * Linux fragments what it forwards itself, but behind the next hop of End.DX4 it resolves
	 * the inner destination instead (ip_neigh_for_gw), so the fragments are lost.
	 */
	if (!(p->plan & PLAN_PUSH) && !p->sidestep_only && !((p->plan & PLAN_STRIP) && !p->view))
		return punt(packet_too_big);
	/* Linux does not answer this one (seg6_input precedes ip_forward), so it is dropped here. */
	if ((p->plan & PLAN_PUSH && !policy) || !fits || env_segment_size(e) ||
	    !(p->port_flags & SIDESTEP_PORT_FRAGMENT))
		return drop(too_big);
	return VERDICT_CONTINUE;
}

/* Hands the finished frame to the control plane. */
SUBPROGRAM verdict fragment_report(ENV *e, const struct packet *p, __u32 egress, __u32 mtu)
{
	struct sidestep_report *report;

	if (!p)
		return drop(not_fragmented);
	report = env_report(e, SIDESTEP_REPORT_FRAGMENT);
	if (!report)
		return drop(not_fragmented);
	report->ifindex = env_ifindex(e);
	report->kind = SIDESTEP_REPORT_FRAGMENT;
	report->reason = PUNT_fragmented;
	report->value = mtu;
	report->proto = 0;
	report->view = 0;
	report->egress = egress;
	report->length = p->frame_length;
	store_address(report->destination, p->destination);
	report->bytes = env_copy_head(e, 0, report->packet, report->length, report->length,
				      SIDESTEP_REPORT_BYTES);
	env_report_end(e, report);
	return punt(fragmented);
}

#endif
