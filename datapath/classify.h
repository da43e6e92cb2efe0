/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The first decision about a frame: does Sidestep process it, and what is its packet? */
#ifndef SIDESTEP_CLASSIFY_H
#define SIDESTEP_CLASSIFY_H

#include "bad_address.h"
#include "read/vlan.h"
#include "segment.h"
#include "service_return.h"
#include "tag.h"

/*
 * RFC 8754 5.1: returns true for a packet from outside the SR domain whose destination or source is
 * a SID of the domain. The check comes first, so that the kernel does not get such a packet for
 * another reason.
 */
SUBPROGRAM int sid_block_filter(ENV *e, __u32 domain)
{
	const __u8 *ip = env_bytes(e, ETH_LENGTH, IPV6_LENGTH);
	struct address source, destination;

	if (!ip)
		return 0;
	source = load_address(ip + IPV6_SOURCE);
	destination = load_address(ip + IPV6_DESTINATION);
	return env_fib_lookup(e, domain, destination) || env_fib_lookup(e, domain, source);
}

/*
 * Makes the headers readable in place; negative on failure. PERF: a pull copies payload to the
 * linear part of the skb. The receiver's TCP cannot join such skbs (skb_try_coalesce).
 */
INLINE int make_linear(ENV *e)
{
	__u32 headers = 0;
	const __u8 *eth;
	__u16 type;

	if (likely(env_is_linear(e)))
		return 0;
	eth = env_bytes(e, 0, ETH_LENGTH);
	type = eth ? load16(eth + ETH_TYPE) : 0;
	if (type == ETHERTYPE_IPV6 || type == ETHERTYPE_IPV4)
		headers = segment_headers(e, ETH_LENGTH, type == ETHERTYPE_IPV6 ? 6 : 4);
	if (headers && ETH_LENGTH + headers <= (__u32)(env_end(e) - env_data(e)))
		return 0;
	return env_pull(e);
}

/*
 * Returns the index of the route if the frame takes the path of an ether device: that of the port,
 * or that of its VLANs. The latter become the destination of the lookup. 0: the frame does not.
 */
SUBPROGRAM __u32 ether_route(ENV *e, struct packet *p, const struct sidestep_port *port)
{
	const struct sidestep_route *r;
	__u32 outer = 0, inner = 0, at = ETH_TYPE, index;

	if (!p || !port)
		return 0;
	if (port->flags & SIDESTEP_PORT_ETHER)
		return port->return_l2;
	p->end = p->frame_length;
	if (env_tagged(e)) {
		outer = env_vlan(e) & VLAN_ID_MASK;
	} else {
		if (vlan_id(e, p, at, &outer) != VERDICT_CONTINUE)
			return 0;
		at += VLAN_TAG_LENGTH;
	}
	if (outer && vlan_id(e, p, at, &inner) != VERDICT_CONTINUE)
		return 0;
	r = env_route(e, port->return_l2);
	p->destination = vlan_key(outer, inner);
	index = r ? env_fib_lookup(e, r->view6, p->destination) : 0;
	if (!index)
		p->destination = vlan_key(0, 0);
	return index;
}

/*
 * Makes the whole frame the current packet, for a port whose frames all take a segment list
 * (RFC 8986 5.3). VLAN tags are part of it. IEEE 802.3 31B.1: pause frames end at the link.
 */
INLINE verdict classify_frame(ENV *e, struct packet *p, __u32 index)
{
	const struct sidestep_route *r = env_route(e, index);
	_Bool segments = env_segment_size(e) && r && r->adjacency;
	const __u8 *eth;

	if (env_tagged(e) && !segments) {
		if (env_tag_into_frame(e) < 0)
			return drop(rewrite);
		p->frame_length = env_length(e);
	}
	if (make_linear(e) < 0)
		return drop(rewrite);
	eth = env_bytes(e, 0, ETH_LENGTH);
	if (!eth)
		return punt(not_ip);
	if (eth_is_pause(eth))
		return drop(link_control);
	frame_read(e, p, load16(eth + ETH_TYPE));
	if (likely(!segments))
		return unlikely(r && r->tag) ? tag_plan(e, p, r->tag) : VERDICT_CONTINUE;
	/*
	 * Linux cannot segment a frame within IPv6. An ether device segments frames before it sends
	 * them to its port.
	 */
	p->plan = PLAN_FRAME;
	p->sidestep_only = 1;
	return forward(r->adjacency);
}

/* Accepts IP packets that are addressed to the port, and makes the outer header the current one. */
INLINE verdict classify(ENV *e, struct packet *p, const struct sidestep_port *port)
{
	const __u8 *eth;
	__u16 type;
	verdict v;

	if (unlikely(port->flags & (SIDESTEP_PORT_ETHER | SIDESTEP_PORT_ETHER_VLANS))) {
		__u32 index = ether_route(e, p, port);

		/* The stack's own frames do not belong to a wire between two interfaces. */
		if ((port->flags & SIDESTEP_PORT_ETHER_WIRE) && !env_take_mark(e))
			return drop(not_attached);
		if (index)
			return classify_frame(e, p, index);
	}
	if (unlikely(port->flags & SIDESTEP_PORT_BRIDGED))
		return punt(bridge);
	if (env_tagged(e))
		return punt(vlan);
	if (make_linear(e) < 0)
		return punt(unsupported);
	eth = env_bytes(e, 0, ETH_LENGTH);
	if (!eth)
		return punt(not_ip);
	if (unlikely(port->domain) && load16(eth + ETH_TYPE) == ETHERTYPE_IPV6 &&
	    sid_block_filter(e, port->domain))
		return drop(sid_block);
	if (unlikely(return_has_frame(port, eth))) {
		frame_read(e, p, load16(eth + ETH_TYPE));
		return VERDICT_CONTINUE;
	}
	if (unlikely(!eth_mac_equal(eth, port->mac)))
		return eth_is_group(eth) ? punt(multicast) : punt(other_host);
	type = load16(eth + ETH_TYPE);
	if (type == ETHERTYPE_IPV6) {
		v = ipv6_read(e, p, ETH_LENGTH, p->frame_length, 0);
		p->view = port->view6;
		if (v == VERDICT_CONTINUE) {
			if (!(port->flags & SIDESTEP_PORT_FORWARD6))
				return punt(forwarding_off);
			if ((port->flags & SIDESTEP_PORT_RULES6_PUNT) && !port->return6)
				return punt(rule);
		}
	} else if (type == ETHERTYPE_IPV4) {
		v = ipv4_read(e, p, ETH_LENGTH, p->frame_length, 0);
		p->view = port->view4;
		if (v == VERDICT_CONTINUE) {
			if (!(port->flags & SIDESTEP_PORT_FORWARD4))
				return punt(forwarding_off);
			if ((port->flags & SIDESTEP_PORT_RULES4_PUNT) && !port->return4)
				return punt(rule);
		}
	} else {
		return ethertype_is_tag(type) ? punt(vlan) : punt(not_ip);
	}
	if (unlikely(port->return6 | port->return4) && VERDICT_KIND(v) == VERDICT_PUNT)
		return return_unparsable(e, p, port, v);
	return v;
}

#endif
