/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Frames between stations of a bridge that the kernel has learned. The bridge remains the switch: it
 * gets all frames with an unknown or new station, to many receivers, or between ports that must not
 * exchange any. A station that only sends frames past the bridge is marked as used, so that the
 * daemon refreshes it there.
 */
#ifndef SIDESTEP_BRIDGE_H
#define SIDESTEP_BRIDGE_H

#include "packet.h"
#include "read/ip.h"
#include "wire/eth.h"
#include "wire/ipv6.h"

/*
 * Returns true for frames that a bridge may answer in place of a station
 * (net/bridge/br_arp_nd_proxy.c): ARP, and ICMPv6 with its neighbor discovery.
 */
INLINE _Bool bridge_may_answer(ENV *e, __u32 offset, __u16 type)
{
	const __u8 *inner;

	offset += ETH_LENGTH;
	if (unlikely(ethertype_is_tag(type))) {
		inner = env_bytes(e, offset, VLAN_TAG_LENGTH);
		if (!inner)
			return 1;
		type = load16(inner + VLAN_TAG_LENGTH - 2);
		offset += VLAN_TAG_LENGTH;
	}
	if (type == ETHERTYPE_ARP)
		return 1;
	if (type != ETHERTYPE_IPV6)
		return 0;
	inner = env_bytes(e, offset, IPV6_LENGTH);
	return !inner || inner[IPV6_NEXT_HEADER] == PROTO_ICMPV6;
}

/*
 * Returns the port toward the destination of the frame at `offset`, which a port of a bridge has
 * received. 0: the frame is for the bridge.
 */
SUBPROGRAM __u32 bridge_port(ENV *e, __u32 offset, __u32 ifindex)
{
	const struct sidestep_port *from = env_port(e, ifindex), *to;
	struct sidestep_station_key source = {}, destination = {};
	const __u8 *eth = env_bytes(e, offset, ETH_LENGTH);
	struct sidestep_station *sender;
	const struct sidestep_station *receiver;

	if (!from || !eth || from->ifindex != ifindex || !from->bridge)
		return 0;
	if (bridge_may_answer(e, offset, load16(eth + ETH_TYPE)))
		return 0;
	eth = env_bytes(e, offset, ETH_LENGTH);
	if (!eth)
		return 0;
	source.bridge = destination.bridge = from->bridge;
	store32(destination.mac, load32(eth));
	store16(destination.mac + 4, load16(eth + 4));
	store32(source.mac, load32(eth + ETH_SOURCE));
	store16(source.mac + 4, load16(eth + ETH_SOURCE + 4));
	sender = env_station(e, &source);
	if (!sender || sender->port != ifindex)
		return 0;
	receiver = env_station(e, &destination);
	if (!receiver || receiver->port == ifindex)
		return 0;
	to = env_port(e, receiver->port);
	if (!to || to->ifindex != receiver->port || to->bridge != from->bridge ||
	    (from->flags & to->flags & SIDESTEP_PORT_ISOLATED))
		return 0;
	/* All CPUs read the record, so it is written only after the daemon has cleared it. */
	if (unlikely(!*(volatile __u32 *)&sender->used))
		*(volatile __u32 *)&sender->used = 1;
	return to->ifindex;
}

/*
 * Returns the port toward the destination of a decapsulated frame, which the adjacency would send
 * into an ether device. NULL: the frame is for the bridge, or for another ether device.
 */
INLINE const struct sidestep_port *bridge_port_behind(ENV *e, const struct packet *p, __u32 index)
{
	const struct sidestep_adjacency *device = env_adjacency(e, index);
	const struct sidestep_port *to;
	__u32 ifindex;

	ifindex = device ? bridge_port(e, p->l3 - ETH_LENGTH, device->ifindex) : 0;
	to = ifindex ? env_port(e, ifindex) : 0;
	return to && !(to->flags & SIDESTEP_PORT_ETHER) ? to : 0;
}

/* Plans to send the received frame to a station behind `to`, as it is. */
INLINE verdict bridge_forward(ENV *e, struct packet *p, const struct sidestep_port *to)
{
	const __u8 *eth = env_bytes(e, 0, ETH_LENGTH);

	if (!eth)
		return punt(not_ip);
	frame_read(e, p, load16(eth + ETH_TYPE));
	p->plan = PLAN_FRAME;
	return forward(to->egress);
}

#endif
