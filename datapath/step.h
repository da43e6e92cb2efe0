/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The pipeline: classify -> lookup -> behavior -> (again, a bounded number of times) -> rewrite -> verdict.
 */
#ifndef SIDESTEP_STEP_H
#define SIDESTEP_STEP_H

#include "behavior/end.h"
#include "behavior/end_ad.h"
#include "behavior/end_am.h"
#include "behavior/end_as.h"
#include "behavior/end_b6.h"
#include "behavior/end_dt4.h"
#include "behavior/end_dt46.h"
#include "behavior/end_dt6.h"
#include "behavior/end_dx2.h"
#include "behavior/end_dx2v.h"
#include "behavior/end_dx4.h"
#include "behavior/end_dx6.h"
#include "behavior/end_t.h"
#include "behavior/end_x.h"
#include "behavior/headend.h"
#include "commit.h"
#include "flow.h"
#include "hmac/verify.h"
#include "icmp.h"
#include "lookup.h"
#include "oam.h"
#include "segment.h"

/*
 * RFC 8754 5.1: packets from outside the domain, to its SIDs or from them. Whatever else is wrong with the packet: the kernel
 * does not get it either.
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
 * What a service sends back and only the kernel could read: it would send that on by its destination, past the rest of the
 * segment list, so it ends here. What is for this node or for a group is the kernel's. `v`: what reading it came to.
 */
SUBPROGRAM verdict return_unparsable(ENV *e, struct packet *p, const struct sidestep_port *port, verdict v)
{
	const struct sidestep_route *route;
	struct address destination = {};
	const __u8 *eth, *ip;
	__u32 back, own;

	if (!p || !port || (v != punt(ipv4_options) && v != punt(jumbogram) && v != punt(ext_chain)))
		return v;
	eth = env_bytes(e, 0, ETH_LENGTH);
	if (!eth)
		return v;
	if (load16(eth + ETH_TYPE) == ETHERTYPE_IPV6) {
		back = port->return6;
		own = port->local_addrs6;
		ip = env_bytes(e, ETH_LENGTH, IPV6_LENGTH);
		if (ip)
			destination = load_address(ip + IPV6_DESTINATION);
		if (ip && (ipv6_is_multicast(destination) || ipv6_is_link_local(destination)))
			return v;
	} else {
		back = port->return4;
		own = port->local_addrs4;
		ip = env_bytes(e, ETH_LENGTH, IPV4_LENGTH);
		if (ip)
			destination.hi = load32(ip + IPV4_DESTINATION);
		if (ip && ipv4_is_multicast_or_reserved(destination.hi))
			return v;
	}
	route = back ? env_route(e, back) : 0;
	if (!route || (ip && env_fib_lookup(e, own, destination)))
		return v;
	p->visited[0] = route->counter;
	p->visits = 1;
	env_trace(e, SIDESTEP_TRACE_RETURN, 0, back, destination);
	return drop(kernel_only);
}

/* Is it IP, and for us? Makes the outer header the current one. */
INLINE verdict classify(ENV *e, struct packet *p, const struct sidestep_port *port)
{
	const __u8 *eth;
	__u16 type;
	verdict v;

	if (env_tagged(e))
		return punt(vlan);
	if (env_linear(e) < 0)
		return punt(unsupported);
	eth = env_bytes(e, 0, ETH_LENGTH);
	if (!eth)
		return punt(not_ip);
	if (unlikely(port->domain) && load16(eth + ETH_TYPE) == ETHERTYPE_IPV6 && sid_block_filter(e, port->domain))
		return drop(sid_block);
	if (unlikely(port->return_l2) && service_sent_frame(eth, port)) {
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

/* RFC 3704, as net.ipv4.conf.IF.rp_filter has it. What fails here, the kernel judges again. */
SUBPROGRAM verdict reverse_path(ENV *e, struct packet *p)
{
	const struct sidestep_adjacency *adjacency;
	const struct sidestep_route *route;
	const __u8 *ip;
	__u32 index;

	if (!p)
		return punt(unsupported);
	ip = env_bytes(e, p->l3, IPV4_LENGTH);
	if (!ip)
		return punt(reverse_path);
	index = env_fib_lookup(e, p->view4, reverse_key(ip).destination);
	route = env_route(e, index);
	if (route && unlikely(route_is_indirect(route)))
		route = env_route(e, lookup_indirect(e, p, index, 1));
	if (!route || (route->action != SIDESTEP_ROUTE_FORWARD && route->action != SIDESTEP_ROUTE_GROUP &&
		       route->action != SIDESTEP_ROUTE_HEADEND))
		return punt(reverse_path);
	if (!(p->port_flags & SIDESTEP_PORT_RPF_STRICT))
		return VERDICT_CONTINUE;
	adjacency = env_adjacency(e, route->adjacency);
	return adjacency && adjacency->ifindex == env_ifindex(e) ? VERDICT_CONTINUE : punt(reverse_path);
}

/* Before the packet leaves, or becomes one whose source is this node. */
INLINE verdict check_source(ENV *e, struct packet *p)
{
	if (!p->check_source || likely(!(p->port_flags & (SIDESTEP_PORT_RPF_LOOSE | SIDESTEP_PORT_RPF_STRICT))))
		return VERDICT_CONTINUE;
	return reverse_path(e, p);
}

SUBPROGRAM verdict endpoint(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	if (!p || !r)
		return punt(unsupported);
	/* RFC 8754 4.3.1: only where SRv6 is enabled, and only for what arrived with that destination. */
	if (p->version != 6 || (p->plan & PLAN_PUSH))
		return punt(local_segment);
	if (!(p->port_flags & SIDESTEP_PORT_SEG6))
		return punt(seg6_disabled);
	if (unlikely(p->port_flags & SIDESTEP_PORT_O_FLAG))
		oam_copy(e, p);
	switch (r->action) {
	case SIDESTEP_ROUTE_END:
		return end(e, p, r);
	case SIDESTEP_ROUTE_END_X:
		return end_x(e, p, r);
	case SIDESTEP_ROUTE_END_T:
		return end_t(e, p, r);
	case SIDESTEP_ROUTE_END_DX2:
		return end_dx2(e, p, r);
	case SIDESTEP_ROUTE_END_DX2V:
		return end_dx2v(e, p, r);
	case SIDESTEP_ROUTE_END_DX4:
		return end_dx4(e, p, r);
	case SIDESTEP_ROUTE_END_DX6:
		return end_dx6(e, p, r);
	case SIDESTEP_ROUTE_END_DT4:
		return end_dt4(e, p, r);
	case SIDESTEP_ROUTE_END_DT6:
		return end_dt6(e, p, r);
	case SIDESTEP_ROUTE_END_DT46:
		return end_dt46(e, p, r);
	case SIDESTEP_ROUTE_END_AM:
		return end_am(e, p, r);
	case SIDESTEP_ROUTE_END_AD:
		return end_ad(e, p, r);
	case SIDESTEP_ROUTE_END_AS:
		return end_as(e, p, r);
	case SIDESTEP_ROUTE_END_B6_ENCAPS:
		return end_b6_encaps(e, p, r);
	case SIDESTEP_ROUTE_END_B6_INSERT:
		return end_b6_insert(e, p, r);
	default:
		return punt(unsupported);
	}
}

/* The route of a group that the packet's flow goes by; 0: none. */
INLINE __u32 group_select(ENV *e, struct packet *p, __u32 index)
{
	const struct sidestep_group *group = env_group(e, index);
	__u32 slot, route;

	if (!group)
		return 0;
	/* The hash's upper half as a fraction of the slots. */
	slot = (__u32)((flow_hash(e, p, group->seed) >> 32) * group->slots >> 32);
	route = group->routes[slot & (SIDESTEP_GROUP_SLOTS - 1)];
	env_trace(e, SIDESTEP_TRACE_CHOICE, index, route, p->destination);
	return route;
}

/* The route of a group that the packet's DSCP goes by (RFC 9256 8.6); 0: none. A frame that carries no IP packet has DSCP 0. */
SUBPROGRAM __u32 group_select_dscp(ENV *e, struct packet *p, __u32 index)
{
	const struct sidestep_group *group = env_group(e, index);
	const __u8 *ip;
	__u32 dscp = 0;
	__u32 route;

	if (!p || !group)
		return 0;
	ip = p->version ? env_bytes(e, p->l3, IPV4_LENGTH) : 0;
	if (ip)
		dscp = (p->version == 6 ? ipv6_traffic_class(ip) : ip[IPV4_TOS]) >> 2;
	dscp &= SIDESTEP_DSCPS - 1;
	route = group->routes[dscp];
	env_trace(e, SIDESTEP_TRACE_DSCP, dscp, route, p->destination);
	return route;
}

/* The adjacency of an endpoint behavior whose next hop has several ways. */
INLINE verdict forward_by_group(ENV *e, struct packet *p, __u32 group)
{
	const struct sidestep_route *route = env_route(e, group_select(e, p, group));

	return route ? forward(route->adjacency) : punt(unsupported);
}

/* The route of a packet that a service sends back: the port's, without a lookup. 0: it is not one, or it is for us. */
INLINE __u32 return_route(ENV *e, struct packet *p, const struct sidestep_port *port)
{
	__u32 back = p->version == 6 ? port->return6 : port->return4;

	if (p->frame)
		back = port->return_l2;
	else if (likely(!back) || env_fib_lookup(e, p->version == 6 ? port->local_addrs6 : port->local_addrs4, p->destination))
		return 0;
	/* The kernel knows nothing of proxies: it would send the packet past the rest of its segment list. */
	p->sidestep_only = 1;
	p->last_sidestep_only = 1;
	/* Its source is behind the segments that it came by. */
	p->check_source = 0;
	env_trace(e, SIDESTEP_TRACE_RETURN, 0, back, p->destination);
	return back;
}

/*
 * What comes next, at a route of ours, is for headers that are only planned. The kernel would not get the packet any more,
 * so they are put on, and what is next works on them. Continue, or the packet cannot go on.
 */
INLINE verdict commit_push(ENV *e, struct packet *p)
{
	verdict v;

	if (likely(!(p->plan & PLAN_PUSH)) || !p->sidestep_only)
		return VERDICT_CONTINUE;
	v = check_source(e, p);
	return v == VERDICT_CONTINUE ? commit(e, p) : v;
}

/* Lookups and behaviors until something other than a lookup is asked for. `index`: the first route; 0: look it up. */
INLINE verdict route_packet(ENV *e, struct packet *p, __u32 index)
{
	for (__u32 i = 0; i <= SIDESTEP_STEPS_MAX; i++) {
		const struct sidestep_route *r;
		verdict v;

		p->visited[i] = 0;
		if (likely(!index)) {
			index = env_fib_lookup(e, p->view, p->destination);
			env_trace(e, SIDESTEP_TRACE_LOOKUP, p->view, index, p->destination);
		}
		if (!index)
			return punt(route_miss);
		r = env_route(e, index);
		if (r && unlikely(r->action >= SIDESTEP_ROUTE_GROUP && r->action <= SIDESTEP_ROUTE_NEXT)) {
			if (route_is_indirect(r)) {
				index = lookup_indirect(e, p, index, 0);
				if (!index)
					return punt(route_miss);
				r = env_route(e, index);
			}
			if (r && r->action == SIDESTEP_ROUTE_GROUP && (r->flags & SIDESTEP_ROUTE_BY_DSCP)) {
				index = group_select_dscp(e, p, r->group);
				r = env_route(e, index);
			}
			if (r && r->action == SIDESTEP_ROUTE_GROUP) {
				p->visited[i] = r->counter;
				index = group_select(e, p, r->group);
				r = env_route(e, index);
			}
		}
		if (!r)
			return punt(route_miss);
		/* Next hops without a counter of their own are shared by all routes that have the same ones. */
		if (r->counter)
			p->visited[i] = r->counter;
		p->visits = i + 1;
		if (unlikely(r->action == SIDESTEP_ROUTE_RETURN_AM || r->action == SIDESTEP_ROUTE_RETURN_AD)) {
			v = r->action == SIDESTEP_ROUTE_RETURN_AM ? demasquerade(e, p, r) : restore(e, p, r);
			if (v != lookup())
				return v;
			if (r->action == SIDESTEP_ROUTE_RETURN_AM && !p->srh_seen)
				p->srh_missing = source_is_not_service(e, p) != 0;
			index = 0;
			continue;
		}
		/* Hop-by-Hop options are for every node that forwards (RFC 8200 4.3); a SID walks them itself. */
		if (r->action < SIDESTEP_ROUTE_END) {
			if (unlikely(p->version == 6 && p->proto == PROTO_HOP_BY_HOP &&
				     r->action != SIDESTEP_ROUTE_DROP && r->action != SIDESTEP_ROUTE_PUNT)) {
				v = hop_by_hop(e, p);
				if (v != VERDICT_CONTINUE)
					return v;
			}
			p->last_sidestep_only = (r->flags & SIDESTEP_ROUTE_SIDESTEP_ONLY) != 0;
			p->sidestep_only |= p->last_sidestep_only;
			if (r->action == SIDESTEP_ROUTE_FORWARD)
				return forward(r->adjacency);
			if (r->action == SIDESTEP_ROUTE_PUNT)
				return VERDICT_PUNT | r->reason;
			if (r->action == SIDESTEP_ROUTE_DROP)
				return VERDICT_DROP | r->reason;
			v = commit_push(e, p);
			if (v != VERDICT_CONTINUE)
				return v;
			v = headend(e, p, r);
		} else {
			if (i == SIDESTEP_STEPS_MAX)
				return drop(sid_loop);
			p->last_sidestep_only = (r->flags & SIDESTEP_ROUTE_SIDESTEP_ONLY) != 0;
			p->sidestep_only |= p->last_sidestep_only;
			v = commit_push(e, p);
			if (v != VERDICT_CONTINUE)
				return v;
			env_trace(e, SIDESTEP_TRACE_BEHAVIOR, r->action, index, p->destination);
			if (unlikely(r->flags & SIDESTEP_ROUTE_REQUIRE_HMAC))
				hmac_begin(p);
			v = endpoint(e, p, r);
			if (VERDICT_KIND(v) != VERDICT_DROP) {
				verdict right = hmac_authenticate(e, p, r);

				if (right != VERDICT_CONTINUE)
					return right;
			}
			/* Nothing is learned from whom is not known. */
			if (unlikely(v == VERDICT_CONTINUE))
				v = end_ad_learn(e, p, r);
			if (unlikely(r->group) && v == forward(0))
				v = forward_by_group(e, p, r->group);
		}
		if (v != lookup())
			return v;
		index = 0;
	}
	return drop(sid_loop);
}

/* The last checks before anything is written; then it is written. */
INLINE verdict transmit(ENV *e, struct packet *p, __u32 index, struct outcome *outcome)
{
	const struct sidestep_adjacency *record = env_adjacency(e, index);
	struct sidestep_adjacency adjacency;
	enum rewrite_result result;
	__u32 length;
	__u64 first;
	int growth;
	verdict v;

	if (!index || !record)
		return punt(neighbor);
	/* Also where it is not resolved: then somebody should. */
	env_use(e, record);
	/* One load: MAC and validity are published together (abi.h). */
	first = *(const volatile __u64 *)record;
	adjacency = *record;
	store64(&adjacency, first);
	if (!(adjacency.flags & SIDESTEP_ADJACENCY_VALID))
		return punt(neighbor);
	if ((adjacency.flags & ENV_EGRESS_FLAGS) != ENV_EGRESS_FLAGS)
		return punt(egress);
	v = egress_check(e, p);
	if (v != VERDICT_CONTINUE)
		return v;
	growth = planned_growth(e, p);
	length = (__u32)((int)(p->end - p->l3) + growth);
	if (unlikely(length > adjacency.mtu &&
		     (length > IPV6_PACKET_MAX || wire_length(e, p, length, growth) > adjacency.mtu))) {
		p->max_length = (__u32)((int)adjacency.mtu - growth);
		return punt(packet_too_big);
	}
	env_trace(e, SIDESTEP_TRACE_FORWARD, index, length, p->destination);
	outcome->ifindex = adjacency.ifindex;
	if (!(p->plan & (PLAN_POP | PLAN_STRIP | PLAN_PUSH)) && p->frame_length == p->end)
		result = rewrite_in_place(e, p, &adjacency);
	else
		result = rewrite_and_sign(e, p, &adjacency);
	switch (result) {
	case REWRITE_DONE:
		return forward(index);
	case REWRITE_REFUSED:
		return punt(headroom);
	default:
		return drop(rewrite);
	}
}

/*
 * A route that the kernel does not have was applied, so the kernel could do nothing with the packet as it arrived. What
 * the kernel decides in the same way, it gets in the form that the behaviors gave the packet: one for an address of this
 * node, or one that a route of the kernel's own, in the tables that it would consult, sends to a next hop that it has to
 * resolve. Everything else ends here: the kernel's tables would send it elsewhere.
 */
INLINE verdict resolve_local_punt(ENV *e, struct packet *p, __u32 reason)
{
	_Bool kernels_route = !p->last_sidestep_only && (p->view == p->view6 || p->view == p->view4);

	if (!(p->plan & (PLAN_FRAME | PLAN_PUSH)) &&
	    (reason == PUNT_local || (kernels_route && reason == PUNT_neighbor)))
		return rewrite(e, p, 0) == REWRITE_DONE ? punt(decapsulated) : drop(rewrite);
	switch (reason) {
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
	case PUNT_routing_header:
		/* RFC 8200 4.4 asks for an answer: also where the packet is not the kernel's to drop. */
		icmp_report(e, p, punt(routing_header));
		return drop(kernel_only);
	default:
		return drop(kernel_only);
	}
}

/* An error is a failure of the behavior; a blackhole route does what it is for. */
SUBPROGRAM int count_routes(ENV *e, const struct packet *p, verdict v, __u32 bytes)
{
	_Bool error = VERDICT_KIND(v) == VERDICT_DROP && v != drop(blackhole);

	/* Where the counters are in maps nobody reads it, and the compiler would pass whatever the register holds. */
	KEEP(e);
	if (!p)
		return 0;
	for (__u32 i = 0; i <= SIDESTEP_STEPS_MAX; i++) {
		struct sidestep_route_counters *counters;

		if (i >= p->visits)
			break;
		counters = env_route_counters(e, p->visited[i]);
		if (!counters)
			break;
		if (error && i + 1 == p->visits) {
			counters->errors++;
			counters->not_learned += v == drop(not_learned);
		} else {
			counters->packets++;
			counters->bytes += bytes;
			/* The way back is the first one. */
			counters->no_srh += p->srh_missing && i == 0;
		}
	}
	return 0;
}

/* The whole way of one frame. */
INLINE struct outcome step(ENV *e)
{
	struct outcome outcome = {OUTCOME_PUNT, 0, PUNT_port_unknown};
	__u32 ifindex = env_ifindex(e), frame_length = env_length(e);
	struct sidestep_port_counters *counters = env_port_counters(e, ifindex);
	const struct sidestep_port *port = env_port(e, ifindex);
	struct packet p = {};
	verdict v;

	if (!port || !counters || port->ifindex != ifindex) {
		env_count_reason(e, PUNT_port_unknown);
		return outcome;
	}
	counters->received_packets++;
	counters->received_bytes += frame_length;
	env_trace(e, SIDESTEP_TRACE_PORT, ifindex, frame_length, p.destination);

	p.view6 = port->view6;
	p.view4 = port->view4;
	p.port_flags = port->flags;
	p.hmac.keys = (__u16)port->hmac_keys;
	p.frame_length = frame_length;
	v = classify(e, &p, port);
	if (v == VERDICT_CONTINUE) {
		p.check_source = p.version == 4;
		env_trace(e, SIDESTEP_TRACE_PARSED, p.frame ? 0 : p.version, p.l3, p.destination);
		v = route_packet(e, &p, return_route(e, &p, port));
		if (VERDICT_KIND(v) == VERDICT_FORWARD) {
			verdict checked = check_source(e, &p);

			if (checked != VERDICT_CONTINUE)
				v = checked;
		}
		if (VERDICT_KIND(v) == VERDICT_FORWARD)
			v = transmit(e, &p, VERDICT_ARGUMENT(v), &outcome);
		if (VERDICT_KIND(v) == VERDICT_PUNT && p.sidestep_only) {
			v = resolve_local_punt(e, &p, VERDICT_ARGUMENT(v));
			/* The kernel would ask for it if it knew the way. */
			if (v == drop(no_neighbor))
				env_request_resolution(e, p.view, p.destination);
		}
		if (unlikely(icmp_is_reported(v)))
			icmp_report(e, &p, v);
	}
	if (p.visits && (VERDICT_KIND(v) != VERDICT_PUNT || v == punt(decapsulated)))
		count_routes(e, &p, v, frame_length - ETH_LENGTH);

	outcome.reason = VERDICT_ARGUMENT(v);
	if (VERDICT_KIND(v) == VERDICT_FORWARD) {
		struct sidestep_port_counters *sent = env_port_counters(e, outcome.ifindex);

		outcome.kind = OUTCOME_FORWARD;
		counters->forwarded++;
		if (sent) {
			sent->sent_packets++;
			sent->sent_bytes += p.frame_length;
		}
	} else if (VERDICT_KIND(v) == VERDICT_DROP) {
		outcome.kind = OUTCOME_DROP;
		counters->dropped++;
		env_count_reason(e, outcome.reason);
	} else {
		outcome.kind = OUTCOME_PUNT;
		counters->punted++;
		env_count_reason(e, outcome.reason);
	}
	return outcome;
}

#endif
