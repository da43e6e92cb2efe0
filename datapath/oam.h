/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The O-flag (RFC 9259 2.1.1). If the port permits it, each local SID copies a packet with this
 * flag in its SRH to the control plane, and then processes it normally. The copies are reports
 * (report.h) with token buckets of their own, because the RFC requires a rate limit.
 */
#ifndef SIDESTEP_OAM_H
#define SIDESTEP_OAM_H

#include "packet.h"
#include "report.h"
#include "wire/ext.h"
#include "wire/srh.h"

/*
 * Returns the SRH that the SID will process: the active one, or the next one in the packet. 0:
 * none.
 */
INLINE __u32 oam_srh(ENV *e, const struct packet *p)
{
	__u32 at = p->cursor;
	__u8 proto = p->proto;

	if (p->srh)
		return p->srh;
	for (__u32 i = 0; i < SIDESTEP_EXT_HEADERS_MAX; i++) {
		const __u8 *header = env_bytes(e, at, 8);

		if (!header)
			break;
		if (proto == PROTO_ROUTING && header[SRH_ROUTING_TYPE] == ROUTING_TYPE_SRH)
			return at;
		if (!ext_is_passed(header, proto))
			break;
		at = ext_next(header, at, &proto);
	}
	return 0;
}

/*
 * Runs before the SID processes the packet (RFC 9259 2.1.1, S01.1). The copy is the packet as it
 * arrived; the report contains Segments Left and the destination as earlier SIDs have planned them.
 */
SUBPROGRAM int oam_copy(ENV *e, const struct packet *p)
{
	struct sidestep_report *report;
	const __u8 *bytes;
	__u32 srh;

	if (!p)
		return 0;
	srh = oam_srh(e, p);
	if (!srh)
		return 0;
	bytes = env_bytes(e, srh, 8);
	if (!bytes || !(bytes[SRH_FLAGS] & SRH_FLAG_OAM))
		return 0;
	report = env_report(e, SIDESTEP_REPORT_COPY);
	if (!report)
		return 0;
	bytes = env_bytes(e, srh, 8);
	report->ifindex = env_ifindex(e);
	report->kind = SIDESTEP_REPORT_COPY;
	report->reason = 0;
	report->value = srh == p->srh ? p->segments_left : bytes ? bytes[SRH_SEGMENTS_LEFT] : 0;
	report->proto = PROTO_ROUTING;
	report->view = 0;
	report->length = p->end - p->l3;
	store_address(report->destination, p->destination);
	report->bytes = env_copy_head(e, p->l3, report->packet, report->length, SIDESTEP_COPY_BYTES,
				      SIDESTEP_REPORT_BYTES);
	env_report_end(e, report);
	return 0;
}

#endif
