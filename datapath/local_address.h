/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * RFC 8754 4.3.2: a local address that is not a SID does not process an SRH with Segments Left
 * greater than 0. Linux does, on interfaces with seg6_enabled (ipv6_srh_rcv in net/ipv6/exthdrs.c),
 * and forwards the packet to the next segment. Every address of the node could therefore relay
 * packets.
 */
#ifndef SIDESTEP_LOCAL_ADDRESS_H
#define SIDESTEP_LOCAL_ADDRESS_H

#include "lookup.h"
#include "wire/ext.h"
#include "wire/srh.h"

/* Returns true for a punted packet whose headers local_address() has to walk. */
INLINE _Bool local_has_headers(const struct packet *p)
{
	return p->version == 6 &&
	       (p->segments_left || ext_is_walked(p->proto) || p->proto == PROTO_FRAGMENT) &&
	       !(p->port_flags & SIDESTEP_PORT_LOCAL_SRH);
}

/*
 * Returns true if Linux delivers the packet with punt `v` to this node. Other punts than
 * PUNT_local precede the lookup.
 */
INLINE _Bool local_is_destination(ENV *e, struct packet *p, verdict v)
{
	const struct sidestep_route *r;
	__u32 index;

	if (v == punt(local))
		return 1;
	if (v != punt(link_local) && v != punt(bad_source) && v != punt(forwarding_off))
		return 0;
	if (ipv6_is_link_local(p->destination))
		return 1;
	index = env_fib_lookup(e, p->view, p->destination);
	if (index)
		index = lookup_indirect(e, p, index, 0);
	r = env_route(e, index);
	return index && r && r->action == SIDESTEP_ROUTE_PUNT && r->reason == PUNT_local;
}

/*
 * Drops a punted packet that Linux would relay. The walk includes first fragments, because the
 * first one contains all headers (RFC 7112 5). A packet is dropped, too, if its headers cannot be
 * read as far as Linux reads them.
 */
SUBPROGRAM verdict local_address(ENV *e, struct packet *p, verdict v)
{
	__u32 at;
	__u8 proto;

	if (!p || !local_is_destination(e, p, v))
		return v;
	/* An SR proxy leaves the cursor behind the active SRH. */
	if (p->segments_left)
		return drop(not_a_sid);
	at = p->cursor;
	proto = p->proto;
	for (int i = 0; i < SIDESTEP_EXT_HEADERS_MAX; i++) {
		const __u8 *header;

		if (!ext_is_walked(proto) && proto != PROTO_FRAGMENT)
			return v;
		header = env_bytes(e, at, FRAGMENT_LENGTH);
		if (!header)
			break;
		if (proto == PROTO_FRAGMENT) {
			if (load16(header + FRAGMENT_OFFSET) & be16(FRAGMENT_OFFSET_MASK))
				return v;
			proto = header[EXT_NEXT_HEADER];
			at += FRAGMENT_LENGTH;
			continue;
		}
		if (proto == PROTO_ROUTING) {
			/* An SRH that a SID of this node has advanced is the active one. */
			__u8 left = at == p->srh ? p->segments_left : header[SRH_SEGMENTS_LEFT];

			/* RFC 8200 4.4: Linux answers other types by itself. */
			if (left && header[SRH_ROUTING_TYPE] != ROUTING_TYPE_SRH)
				return v;
			if (left) {
				p->srh = (__u16)at;
				return drop(not_a_sid);
			}
		}
		at = ext_next(header, at, &proto);
	}
	return drop(ext_header);
}

#endif
