/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The pipeline: classify -> lookup -> behavior -> (again, up to a limit) -> rewrite -> verdict. */
#ifndef SIDESTEP_STEP_H
#define SIDESTEP_STEP_H

#include "behavior/headend.h"
#include "bridge.h"
#include "classify.h"
#include "commit.h"
#include "down.h"
#include "endpoint.h"
#include "fragment.h"
#include "icmp.h"
#include "liveness.h"
#include "punt.h"
#include "reverse_path.h"
#include "route_select.h"
#include "service_return.h"
#include "tag.h"

/*
 * Carries out a planned push before the next SID or policy applies to the new header. Any result
 * other than CONTINUE is the packet's verdict.
 */
INLINE verdict commit_push(ENV *e, struct packet *p)
{
	return likely(!(p->plan & PLAN_PUSH)) ? VERDICT_CONTINUE : commit(e, p);
}

/* Returns the route that takes over from a next hop that is down; 0: none. */
INLINE __u32 next_hop_backup(ENV *e, const struct packet *p, verdict v)
{
	const struct sidestep_adjacency *adjacency;
	__u32 backup;

	if (VERDICT_KIND(v) != VERDICT_FORWARD)
		return 0;
	adjacency = env_adjacency(e, VERDICT_ARGUMENT(v));
	if (!adjacency || likely(!adjacency_is_down(p, adjacency)))
		return 0;
	backup = *(const volatile __u32 *)&adjacency->backup;
	if (backup)
		env_trace(e, SIDESTEP_TRACE_REROUTE, VERDICT_ARGUMENT(v), backup, p->destination);
	return backup;
}

/* Applies the headend `r`. The reverse path is checked before this node becomes the source. */
INLINE verdict apply_headend(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	verdict v = commit_push(e, p);

	if (v != VERDICT_CONTINUE)
		return v;
	v = check_source(e, p);
	if (v != VERDICT_CONTINUE)
		return v;
	p->check_source = 0;
	return headend(e, p, r);
}

/*
 * Processes the options of the current header before `r` is applied, which is no SID. Every
 * forwarding node processes Hop-by-Hop options (RFC 8200 4.3); a SID walks them itself. The kernel
 * forwards packets of its routes as they arrived, with their options.
 */
INLINE verdict route_options(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	_Bool kernel = r->action == SIDESTEP_ROUTE_FORWARD && !p->plan && !p->sidestep_only;

	if (r->action == SIDESTEP_ROUTE_DROP || r->action == SIDESTEP_ROUTE_PUNT)
		return VERDICT_CONTINUE;
	if (p->version == 6 && p->proto == PROTO_HOP_BY_HOP)
		return hop_by_hop(e, p, kernel);
	return ipv4_has_options(p) && kernel ? punt(ipv4_options) : VERDICT_CONTINUE;
}

/*
 * Applies lookups and behaviors until the verdict is not a lookup. `index` is the first route; 0:
 * look it up.
 */
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
		if (r && unlikely(r->action >= SIDESTEP_ROUTE_GROUP &&
				  r->action <= SIDESTEP_ROUTE_NEXT)) {
			index = route_select(e, p, r, index, &p->visited[i]);
			if (!index)
				return punt(route_miss);
			r = env_route(e, index);
		}
		if (!r)
			return punt(route_miss);
		/* Next hops without a counter of their own are shared by several routes. */
		if (r->counter)
			p->visited[i] = r->counter;
		p->visits = i + 1;
		if (unlikely(route_is_return(r))) {
			v = service_return(e, p, r);
			if (v != lookup())
				return v;
			index = 0;
			continue;
		}
		p->last = (r->flags & SIDESTEP_ROUTE_SIDESTEP_ONLY) ? LAST_SIDESTEP_ONLY : 0;
		p->sidestep_only |= p->last;
		if (r->action < SIDESTEP_ROUTE_END) {
			if (unlikely(p->options)) {
				v = route_options(e, p, r);
				if (v != VERDICT_CONTINUE)
					return v;
			}
			if (r->action == SIDESTEP_ROUTE_FORWARD) {
				/* An entry of a VLAN table (End.DX2V). */
				v = unlikely(r->tag) ? tag_plan(e, p, r->tag) : VERDICT_CONTINUE;
				return v == VERDICT_CONTINUE ? forward(r->adjacency) : v;
			}
			if (r->action == SIDESTEP_ROUTE_PUNT) {
				v = VERDICT_PUNT | r->reason;
				if (unlikely(liveness_is_asked(p, r)))
					v = liveness(e, p);
				if (VERDICT_KIND(v) == VERDICT_LOOKUP) {
					p->visited[i] = VERDICT_ARGUMENT(v);
					index = 0;
					continue;
				}
				if (VERDICT_KIND(v) == VERDICT_PUNT)
					p->last |= LAST_PUNTS;
				return v;
			}
			if (r->action == SIDESTEP_ROUTE_DROP)
				return VERDICT_DROP | r->reason;
			v = apply_headend(e, p, r);
		} else {
			if (i == SIDESTEP_STEPS_MAX)
				return drop(sid_loop);
			v = commit_push(e, p);
			if (v != VERDICT_CONTINUE)
				return v;
			/* A SID is not the source of a probe. */
			if (unlikely(p->plan & PLAN_REFLECT))
				return drop(bfd);
			env_trace(e, SIDESTEP_TRACE_BEHAVIOR, r->action, index, p->destination);
			v = endpoint(e, p, r);
		}
		if (v != lookup())
			return v;
		index = 0;
	}
	return drop(sid_loop);
}

/*
 * Sends a packet by the backup of a next hop: to another next hop, or by a segment list around it. The
 * first segment is not a SID of this node. The packet may have been encapsulated before.
 */
SUBPROGRAM verdict reroute(ENV *e, struct packet *p, __u32 index)
{
	const struct sidestep_route *r = env_route(e, index);
	__u32 counter = 0;
	verdict v;

	if (!p || !r)
		return punt(route_miss);
	if (r->action == SIDESTEP_ROUTE_HEADEND) {
		/* The kernel does not know the backup. */
		p->last = LAST_SIDESTEP_ONLY;
		p->sidestep_only = 1;
		v = apply_headend(e, p, r);
		if (v != lookup())
			return v;
		index = env_fib_lookup(e, p->view, p->destination);
		env_trace(e, SIDESTEP_TRACE_LOOKUP, p->view, index, p->destination);
		r = env_route(e, index);
		if (r && r->action >= SIDESTEP_ROUTE_GROUP && r->action <= SIDESTEP_ROUTE_NEXT)
			r = env_route(e, route_select(e, p, r, index, &counter));
	}
	return r && r->action == SIDESTEP_ROUTE_FORWARD ? forward(r->adjacency) : punt(route_miss);
}

/* Makes the last checks, carries out the plan and sets the egress. */
INLINE verdict transmit(ENV *e, struct packet *p, __u32 index, struct outcome *outcome)
{
	const struct sidestep_adjacency *record = env_adjacency(e, index);
	struct sidestep_adjacency adjacency;
	enum rewrite_result result;
	__u32 length, mtu;
	_Bool fragments = 0;
	__u64 first;
	int growth;
	verdict v;

	if (!index || !record)
		return punt(neighbor);
	/* Also marks an unresolved next hop, so that the daemon resolves it. */
	env_use(e, record);
	/* One load: the MAC address and its validity are published together (abi.h). */
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
	mtu = adjacency.mtu;
	growth = planned_growth(e, p);
	length = (__u32)((int)(p->end - p->l3) + growth);
	/*
	 * The MTU of an interface does not count the first tag (is_skb_forwardable). Linux counts it
	 * at End.DX2 (input_action_end_dx2).
	 */
	if (unlikely(p->plan & PLAN_FRAME) && (p->plan == PLAN_FRAME || p->sidestep_only) &&
	    frame_keeps_tag(e, p))
		mtu += VLAN_TAG_LENGTH;
	if (unlikely(length > mtu &&
		     (length > IPV6_PACKET_MAX || wire_length(e, p, length, growth) > mtu))) {
		p->max_length = (__u32)((int)mtu - growth);
		v = too_big(e, p, length);
		if (v != VERDICT_CONTINUE)
			return v;
		fragments = 1;
	}
	if (unlikely(p->tag))
		env_trace(e, SIDESTEP_TRACE_TAG, p->tag, 0, p->destination);
	env_trace(e, SIDESTEP_TRACE_FORWARD, index, length, p->destination);
	outcome->ifindex = adjacency.ifindex;
	outcome->to_peer = (adjacency.flags & SIDESTEP_ADJACENCY_PEER) != 0;
	outcome->marked = p->plan == PLAN_FRAME && p->sidestep_only;
	if (unlikely(p->plan == PLAN_FRAME))
		result = REWRITE_DONE;
	else if (!(p->plan & (PLAN_POP | PLAN_STRIP | PLAN_PUSH | PLAN_REFLECT)) &&
		 p->frame_length == p->end)
		result = rewrite_in_place(e, p, &adjacency);
	else
		result = rewrite_and_sign(e, p, &adjacency);
	switch (result) {
	case REWRITE_DONE:
		if (unlikely(fragments))
			return fragment_report(e, p, adjacency.ifindex, mtu);
		return forward(index);
	case REWRITE_REFUSED:
		return punt(headroom);
	default:
		return drop(rewrite);
	}
}

/* Counts a packet on a route that was applied to it. */
INLINE void count_route(ENV *e, __u32 slot, __u32 bytes)
{
	struct sidestep_route_counters *counters = env_route_counters(e, slot);

	if (counters) {
		counters->packets++;
		counters->bytes += bytes;
	}
}

/* Counts the packet on its routes. Drops by a blackhole route are not errors. */
SUBPROGRAM int count_routes(ENV *e, const struct packet *p, verdict v, __u32 bytes)
{
	_Bool error = VERDICT_KIND(v) == VERDICT_DROP && v != drop(blackhole);

	/* Map lookups do not use `e`, so the compiler would pass an undefined register. */
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
			/* The return path is the first route. */
			counters->no_srh += p->srh_missing && i == 0;
		}
	}
	return 0;
}

/* Processes one frame. */
INLINE struct outcome step(ENV *e)
{
	struct outcome outcome = {OUTCOME_PUNT, 0, PUNT_port_unknown, 0, 0};
	__u32 ifindex = env_ifindex(e), frame_length = env_length(e);
	struct sidestep_port_counters *counters = env_port_counters(e, ifindex);
	const struct sidestep_port *port = env_port(e, ifindex), *to = 0;
	struct packet p = {};
	__u32 backup;
	verdict v;

	if (!port || !counters || port->ifindex != ifindex) {
		env_count_reason(e, PUNT_port_unknown);
		return outcome;
	}
	/* XDP has counted a deferred frame as received. */
	if (!ENV_DEFERRED) {
		counters->received_packets++;
		counters->received_bytes += frame_length;
	}
	env_trace(e, SIDESTEP_TRACE_PORT, ifindex, frame_length, p.destination);

	if (unlikely(port->bridge) && !(port->flags & SIDESTEP_PORT_ETHER)) {
		__u32 other = bridge_port(e, 0, ifindex);

		to = other ? env_port(e, other) : 0;
	}
	if (to && (to->flags & SIDESTEP_PORT_ETHER)) {
		/* As if the frame had come through the bridge. That also segments it if necessary. */
		port = env_segment_size(e) ? port : to;
		to = 0;
	}
	p.view6 = port->view6;
	p.view4 = port->view4;
	p.port_flags = port->flags;
	p.hmac.keys = (__u16)port->hmac_keys;
	p.frame_length = frame_length;
	v = to ? bridge_forward(e, &p, to) : classify(e, &p, port);
	if (v == VERDICT_CONTINUE) {
		p.check_source = p.version == 4;
		env_trace(e, SIDESTEP_TRACE_PARSED, p.frame ? 0 : p.version, p.l3, p.destination);
		v = route_packet(e, &p, return_route(e, &p, port));
		backup = next_hop_backup(e, &p, v);
		if (unlikely(backup))
			v = reroute(e, &p, backup);
		if (VERDICT_KIND(v) == VERDICT_FORWARD || v == drop(hop_limit)) {
			verdict checked = check_source(e, &p);

			if (checked != VERDICT_CONTINUE)
				v = checked;
		}
	} else if (VERDICT_KIND(v) != VERDICT_FORWARD) {
		v = refused_verdict(e, &p, v);
	}
	if (VERDICT_KIND(v) == VERDICT_FORWARD)
		v = transmit(e, &p, VERDICT_ARGUMENT(v), &outcome);
	if (VERDICT_KIND(v) != VERDICT_FORWARD) {
		if (is_deferrable(&p, v) && env_defer(e)) {
			outcome.kind = OUTCOME_DEFER;
			return outcome;
		}
		if (VERDICT_KIND(v) == VERDICT_PUNT)
			v = resolve_punt(e, &p, v);
		if (icmp_is_reported(v))
			icmp_report(e, &p, v);
	}
	/* PERF: without a call for one route or two, which most packets have. */
	if (likely(VERDICT_KIND(v) == VERDICT_FORWARD && p.visits <= 2 && !p.srh_missing)) {
		count_route(e, p.visited[0], frame_length - ETH_LENGTH);
		if (p.visits == 2)
			count_route(e, p.visited[1], frame_length - ETH_LENGTH);
	} else if (p.visits && (VERDICT_KIND(v) != VERDICT_PUNT || v == punt(rewritten) ||
				v == punt(fragmented))) {
		count_routes(e, &p, v, frame_length - ETH_LENGTH);
	}

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
