/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reports for ICMP errors. The control plane gets the packet as it arrived (report.h) and sends the
 * error, where Linux would send none or a different one. The verdict does not depend on the report.
 */
#ifndef SIDESTEP_ICMP_H
#define SIDESTEP_ICMP_H

#include "packet.h"
#include "report.h"
#include "wire/ipv6.h"
#include "wire/srh.h"

/*
 * Drop reasons that are reported. Not included: reasons for which the RFCs ask for a silent drop,
 * and no_neighbor, where neighbor resolution is still pending.
 */
#define ICMP_REPORTED                                                                              \
	(1ull << DROP_srh_length | 1ull << DROP_srh_segments_left | 1ull << DROP_srh_tlv |         \
	 1ull << DROP_no_srh | 1ull << DROP_segments_left_zero |                                   \
	 1ull << DROP_segments_left_not_zero | 1ull << DROP_upper_layer | 1ull << DROP_hop_limit | \
	 1ull << DROP_too_big | 1ull << DROP_no_route | 1ull << DROP_hop_by_hop_order |            \
	 1ull << DROP_unknown_option | 1ull << DROP_reassembly | 1ull << DROP_not_a_sid |          \
	 1ull << DROP_hmac_wrong | 1ull << DROP_hmac_key | 1ull << DROP_hmac_segments |            \
	 1ull << DROP_too_many_headers | 1ull << DROP_too_many_options |                           \
	 1ull << DROP_chain_too_long)

INLINE _Bool icmp_is_reported(verdict v)
{
	/*
	 * Linux drops such a packet at a SID silently (get_srh in net/ipv6/seg6_local.c), but RFC
	 * 8200 4.4 requires an ICMP error.
	 */
	if (v == punt(routing_header))
		return 1;
	return VERDICT_KIND(v) == VERDICT_DROP && VERDICT_ARGUMENT(v) < 64 &&
	       (ICMP_REPORTED >> VERDICT_ARGUMENT(v) & 1);
}

/* Returns the offset of the field in error within the packet; for too_big the MTU. */
INLINE __u32 icmp_value(const struct packet *p, __u32 reason)
{
	switch (reason) {
	case DROP_srh_length:
		/* RFC 8754 2: the SRH exceeds the packet. */
		if (p->cursor == p->end)
			return p->srh + SRH_HDR_EXT_LEN - p->l3;
		return p->srh + SRH_SEGMENTS_LEFT - p->l3;
	case DROP_srh_segments_left:
	case DROP_segments_left_not_zero:
	case DROP_not_a_sid:
		/* RFC 8754 4.3.1.1 S10, 4.3.2; RFC 8986 4.1 S09, 4.4 S03 */
		return p->srh + SRH_SEGMENTS_LEFT - p->l3;
	case DROP_srh_tlv:
		/* RFC 8754 2.1 */
		return p->srh + SRH_HDR_EXT_LEN - p->l3;
	case PUNT_routing_header:
		/* RFC 8200 4.4 */
		return p->cursor + SRH_ROUTING_TYPE - p->l3;
	case DROP_too_big:
		return p->max_length;
	case DROP_hop_by_hop_order:
		/* RFC 8200 4: the Next Header field with the value 0. */
		return p->link - p->l3;
	default:
		/*
		 * RFC 8986 4.1.1: the upper-layer header. RFC 8754 2.1.2.2: the HMAC TLV. RFC 8883
		 * 3: the header or option beyond the limit. Or the unknown option, or the fragment.
		 */
		return p->cursor - p->l3;
	}
}

/* Reports the packet with verdict `v`. */
SUBPROGRAM int icmp_report(ENV *e, const struct packet *p, verdict v)
{
	struct sidestep_report *report;
	__u32 reason = VERDICT_ARGUMENT(v), at;
	_Bool frame;

	if (!p)
		return 0;
	/*
	 * A frame that an ether device cannot send or segment is reported, too. Other frames are
	 * not, such as those beside a bridge.
	 */
	frame = p->frame && p->sidestep_only && v == drop(too_big);
	if (!frame && (!p->version || p->frame || (p->plan & (PLAN_FRAME | PLAN_ENCAP_FRAME))))
		return 0;
	at = frame ? 0 : p->l3;
	report = env_report(e, SIDESTEP_REPORT_ERROR);
	if (!report)
		return 0;
	report->ifindex = env_ifindex(e);
	report->kind = SIDESTEP_REPORT_ERROR;
	report->reason = reason;
	report->value = icmp_value(p, reason);
	report->proto = p->proto;
	report->view = p->plan & PLAN_STRIP ? p->view : 0;
	report->frame = frame;
	report->length = p->end - at;
	store_address(report->destination, p->destination);
	report->bytes = env_copy_head(e, at, report->packet, report->length, report->length,
				      SIDESTEP_REPORT_BYTES);
	env_report_end(e, report);
	return 0;
}

#endif
