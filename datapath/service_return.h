/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The return path of SR proxies: packets and frames that a service sends back to its port (IFACE-IN
 * of draft-ietf-spring-srv6-service-programming-00 6.1.1, inbound policy).
 *
 * The record of a service port names the route of such packets, so they need no lookup:
 * SIDESTEP_ROUTE_HEADEND (End.AS), RETURN_AM (End.AM) or RETURN_AD (End.AD). The kernel knows
 * nothing of proxies: it would forward the packet by its destination, past the rest of the segment
 * list. Routes of the return path are therefore Sidestep-only.
 */
#ifndef SIDESTEP_SERVICE_RETURN_H
#define SIDESTEP_SERVICE_RETURN_H

#include "behavior/end_ad.h"
#include "behavior/end_am.h"
#include "lookup.h"
#include "read/ip.h"

/*
 * Returns true for a frame that a service of type L2 returns: one that is not addressed to the port
 * itself. Broadcasts count, such as the ARP request of a customer, unlike in 6.1.1.1. Addresses
 * that no bridge forwards (IEEE 802.1Q 8.6.3) do not.
 */
INLINE _Bool return_has_frame(const struct sidestep_port *port, const __u8 *eth)
{
	return port->return_l2 && !(port->flags & SIDESTEP_PORT_ETHER_VLANS) &&
	       !eth_mac_equal(eth, port->mac) && !eth_is_reserved(eth);
}

/*
 * Drops a returned packet that only the kernel could parse. `v` is the verdict of the reader; it
 * remains if the packet is for this node or a multicast group.
 */
SUBPROGRAM verdict return_unparsable(ENV *e, struct packet *p, const struct sidestep_port *port,
				     verdict v)
{
	const struct sidestep_route *route;
	struct address destination = {};
	const __u8 *eth, *ip;
	__u32 index, local;

	if (!p || !port || (v != punt(jumbogram) && v != punt(ext_chain)))
		return v;
	eth = env_bytes(e, 0, ETH_LENGTH);
	if (!eth)
		return v;
	if (load16(eth + ETH_TYPE) == ETHERTYPE_IPV6) {
		index = port->return6;
		local = port->local_addrs6;
		ip = env_bytes(e, ETH_LENGTH, IPV6_LENGTH);
		if (ip)
			destination = load_address(ip + IPV6_DESTINATION);
		if (ip && (ipv6_is_multicast(destination) || ipv6_is_link_local(destination)))
			return v;
	} else {
		index = port->return4;
		local = port->local_addrs4;
		ip = env_bytes(e, ETH_LENGTH, IPV4_LENGTH);
		if (ip)
			destination.hi = load32(ip + IPV4_DESTINATION);
		if (ip && ipv4_is_multicast_or_broadcast(destination.hi))
			return v;
	}
	route = index ? env_route(e, index) : 0;
	if (!route || (ip && env_fib_lookup(e, local, destination)))
		return v;
	p->visited[0] = route->counter;
	p->visits = 1;
	env_trace(e, SIDESTEP_TRACE_RETURN, 0, index, destination);
	return drop(kernel_only);
}

/*
 * Returns the index of the port's route for a packet that a service returns. 0: the packet is for
 * this node, or the port has no service.
 */
INLINE __u32 return_route(ENV *e, struct packet *p, const struct sidestep_port *port)
{
	__u32 index = p->version == 6 ? port->return6 : port->return4;

	if (p->frame)
		index = port->return_l2;
	else if (likely(!index) ||
		 env_fib_lookup(e, p->version == 6 ? port->local_addrs6 : port->local_addrs4,
				p->destination))
		return 0;
	p->sidestep_only = 1;
	p->last = LAST_SIDESTEP_ONLY;
	/* The route to the source does not use this port: an SR path led here. */
	p->check_source = 0;
	/* At an ether device, the lookup of its route is reported. */
	if (!(port->flags & (SIDESTEP_PORT_ETHER | SIDESTEP_PORT_ETHER_VLANS)))
		env_trace(e, SIDESTEP_TRACE_RETURN, 0, index, p->destination);
	return index;
}

/*
 * Returns true if the source of a packet that End.AM's service returns without an SRH is not the
 * service: the route to the source leads elsewhere. Either the service removed the SRH, or it
 * receives packets that no proxy sent. Sidestep cannot distinguish the two cases, so it only counts
 * them. A source with an indirect route or without a route may be the service.
 */
SUBPROGRAM __u32 source_is_not_service(ENV *e, struct packet *p)
{
	const __u8 *ip;
	const struct sidestep_adjacency *adjacency;
	const struct sidestep_route *route;
	const struct sidestep_port *port;
	__u32 index;

	if (!p)
		return 0;
	ip = env_bytes(e, p->l3, IPV6_LENGTH);
	if (!ip)
		return 0;
	index = env_fib_lookup(e, p->view6, load_address(ip + IPV6_SOURCE));
	route = env_route(e, index);
	if (!index || !route || route_is_indirect(route))
		return 0;
	if (route->action == SIDESTEP_ROUTE_PUNT)
		return route->reason == PUNT_local;
	if (route->action != SIDESTEP_ROUTE_FORWARD)
		return 1;
	adjacency = env_adjacency(e, route->adjacency);
	port = adjacency ? env_port(e, adjacency->ifindex) : 0;
	return adjacency && !(port && port->ifindex == adjacency->ifindex &&
			      (port->flags & SIDESTEP_PORT_SERVICE));
}

INLINE _Bool route_is_return(const struct sidestep_route *r)
{
	return r->action == SIDESTEP_ROUTE_RETURN_AM || r->action == SIDESTEP_ROUTE_RETURN_AD;
}

/* Applies a return route, which plans what the proxy undoes. Returns lookup() or the verdict. */
INLINE verdict service_return(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	verdict v;

	if (r->action == SIDESTEP_ROUTE_RETURN_AD)
		return restore(e, p, r);
	v = demasquerade(e, p, r);
	if (v == lookup() && !p->srh_seen)
		p->srh_missing = source_is_not_service(e, p) != 0;
	return v;
}

#endif
