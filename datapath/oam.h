/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The O-flag (RFC 9259 2.1.1): a packet that has it in its SRH is copied for the control plane at each SID of this node that
 * processes the SRH, where the operator has permitted it, and goes on as if it had none. Copies are reports like those of
 * packets whose senders have to be told (report.h), with a token bucket of their own: the RFC wants them limited.
 */
#ifndef SIDESTEP_OAM_H
#define SIDESTEP_OAM_H

#include "packet.h"
#include "report.h"
#include "wire/ext.h"
#include "wire/srh.h"

/* The SRH that the SID is about to process: the active one, or the first one ahead. 0: there is none that can be read. */
INLINE __u32 oam_srh(ENV *e, const struct packet *p)
{
	__u32 at = p->cursor;
	__u8 proto = p->proto;

	if (p->srh && !(p->plan & PLAN_POP))
		return p->srh;
	for (__u32 i = 0; i < SIDESTEP_EXT_HEADERS_MAX; i++) {
		const __u8 *header = env_bytes(e, at, 8);

		if (!header)
			break;
		if (proto == PROTO_ROUTING && header[SRH_ROUTING_TYPE] == ROUTING_TYPE_SRH)
			return at;
		if (!ext_is_walked(proto))
			break;
		at = ext_next(header, at, &proto);
	}
	return 0;
}

/*
 * Before a SID processes its packet (RFC 9259 2.1.1, S01.1). The copy is the packet as it arrived; what SIDs before this one
 * have planned is in the report.
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
