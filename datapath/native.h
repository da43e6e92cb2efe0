/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The packet path as a function, for `sidestep replay`, the vectors and the fuzzer. */
#ifndef SIDESTEP_NATIVE_H
#define SIDESTEP_NATIVE_H

#include "abi.h"
#include "report.h"

/* LIMIT: steps that are reported of one packet. */
#define SIDESTEP_NATIVE_TRACES 64

/* LIMIT: reports of one packet: a copy at each SID, and one ICMP error. */
#define SIDESTEP_NATIVE_REPORTS (SIDESTEP_STEPS_MAX + 1)

struct sidestep_native_station {
	struct sidestep_station_key key;
	struct sidestep_station station;
};

/* Tables, in the caller's memory. Routes, groups, adjacencies and policies do not use index 0. */
struct sidestep_native_tables {
	const struct sidestep_port *ports; /* SIDESTEP_PORTS records */
	const struct sidestep_route *routes;
	struct sidestep_native_station *stations; /* in the order of their keys' bytes */
	const struct sidestep_group *groups;
	const struct sidestep_adjacency *adjacencies;
	const struct sidestep_policy *policies;
	const struct sidestep_hmac_key *hmac_keys;
	struct sidestep_hmac_work *hmac_work; /* one per thread */
	struct sidestep_learned *learned;
	struct sidestep_flow_set *flow_sets;
	struct sidestep_session *sessions;
	__u64 now; /* nanoseconds, returned by env_now() */
	__u32 learned_count, flow_set_count, route_count, group_count, adjacency_count,
		policy_count, hmac_key_count, route_counter_count, station_count, session_count;
	struct sidestep_port_counters *port_counters; /* SIDESTEP_PORTS records */
	struct sidestep_route_counters *route_counters;
	__u64 *reason_counters; /* SIDESTEP_REASONS counters */
	const __u8 *fib;        /* table/fib6.h: lines of 64 bytes */
	__u32 fib_lines;        /* a power of two */
	__u32 sha;              /* 1: the CPU has the x86 SHA instructions, SSE4.1 and SSSE3 */
};

/* One frame: [data, end) lies in the buffer [head, limit). */
struct sidestep_native {
	__u8 *head, *data, *end, *limit;
	__u8 *first;        /* lowest .data so far */
	__u32 ifindex;      /* ingress */
	__u32 segment_size; /* result of env_segment_size(); only the fuzzer sets it */
	__u32 traces;       /* steps in .trace */
	const struct sidestep_native_tables *tables;
	struct sidestep_trace trace[SIDESTEP_NATIVE_TRACES];
	__u32 reports; /* reports in .report */
	struct sidestep_report report[SIDESTEP_NATIVE_REPORTS];
};

enum sidestep_outcome_kind {
	SIDESTEP_OUTCOME_FORWARD = 0,
	SIDESTEP_OUTCOME_PUNT = 1,
	SIDESTEP_OUTCOME_DROP = 2,
};

struct sidestep_outcome {
	__u32 kind;    /* enum sidestep_outcome_kind */
	__u32 ifindex; /* egress of FORWARD */
	__u32 reason;  /* enum sidestep_reason of PUNT and DROP */
};

/* Runs one frame. The frame may have moved within its buffer afterwards. */
struct sidestep_outcome sidestep_native_run(struct sidestep_native *frame);

/*
 * Forwards a packet of this node by the record `route`, as if a packet of a port had matched it. The
 * frame has an Ethernet header, whatever it is, and an IPv6 packet.
 */
struct sidestep_outcome sidestep_native_send(struct sidestep_native *frame, __u32 route);

#endif
