/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The tables as BPF maps, shared by the XDP and the TC program. The loader sets sizes given as 1
 * from its limits (`sidestep show limits`). The control plane maps arrays into its memory, so it
 * publishes a record by one store.
 */
#ifndef SIDESTEP_MAPS_BPF_H
#define SIDESTEP_MAPS_BPF_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "abi.h"
#include "report.h"
#include "table/fib6.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SIDESTEP_PORTS);
	__type(key, __u32);
	__type(value, struct sidestep_port);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sidestep_route);
} routes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sidestep_group);
} groups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sidestep_adjacency);
} adjacencies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sidestep_policy);
} policies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, SIDESTEP_STATIONS);
	__type(key, struct sidestep_station_key);
	__type(value, struct sidestep_station);
} stations SEC(".maps");

/*
 * The prefix table. It is a single value, so a line is found by its offset without a map lookup.
 * The loader sets the size and reloads the programs when the table grows.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, FIB6_VIEWS * 8);
} fib SEC(".maps");

const volatile __u32 fib_lines = FIB6_VIEWS * 8 / FIB6_LINE;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SIDESTEP_PORTS);
	__type(key, __u32);
	__type(value, struct sidestep_port_counters);
} port_counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sidestep_route_counters);
} route_counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SIDESTEP_REASONS);
	__type(key, __u32);
	__type(value, __u64);
} reason_counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SIDESTEP_RESOLVE_REQUESTS);
	__type(key, __u32);
	__type(value, struct sidestep_resolve_request);
} unresolved SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SIDESTEP_HMAC_KEYS + 1);
	__type(key, __u32);
	__type(value, struct sidestep_hmac_key);
} hmac_keys SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sidestep_hmac_work);
} hmac_work SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SIDESTEP_LEARNED_TOTAL);
	__type(key, __u32);
	__type(value, struct sidestep_learned);
} learned SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SIDESTEP_FLOW_SETS_TOTAL);
	__type(key, __u32);
	__type(value, struct sidestep_flow_set);
} flow_sets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SIDESTEP_SESSIONS);
	__type(key, __u32);
	__type(value, struct sidestep_session);
} sessions SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, SIDESTEP_REPORT_RING);
} reports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SIDESTEP_REPORT_RATES);
	__type(key, __u32);
	__type(value, struct sidestep_report_rate);
} report_rates SEC(".maps");

INLINE __u32 env_ifindex(ENV *e);

INLINE struct sidestep_port *env_port(ENV *e, __u32 index)
{
	index &= SIDESTEP_PORTS - 1;
	return bpf_map_lookup_elem(&ports, &index);
}

INLINE struct sidestep_station *env_station(ENV *e, const struct sidestep_station_key *key)
{
	return bpf_map_lookup_elem(&stations, key);
}

INLINE struct sidestep_route *env_route(ENV *e, __u32 index)
{
	return bpf_map_lookup_elem(&routes, &index);
}

INLINE struct sidestep_group *env_group(ENV *e, __u32 index)
{
	return bpf_map_lookup_elem(&groups, &index);
}

INLINE struct sidestep_adjacency *env_adjacency(ENV *e, __u32 index)
{
	return bpf_map_lookup_elem(&adjacencies, &index);
}

/* All CPUs read the record, so the flag is written only after the control plane has cleared it. */
INLINE void env_use(ENV *e, const struct sidestep_adjacency *adjacency)
{
	volatile __u64 *used = (volatile __u64 *)&adjacency->used;

	if (unlikely(!*used))
		*used = 1;
}

/*
 * Two CPUs may write different halves of a record. The result is a request for a neighbor that does
 * not exist, which is harmless.
 */
INLINE void env_request_resolution(ENV *e, __u32 view, struct address address)
{
	__u64 mixed = address.hi ^ address.lo;
	struct sidestep_resolve_request *record;
	__u32 slot;

	/* Addresses on a link may differ in any byte, most often in the last one. */
	mixed ^= mixed >> 32;
	mixed ^= mixed >> 16;
	slot = (__u32)(mixed ^ mixed >> 8) & (SIDESTEP_RESOLVE_REQUESTS - 1);
	record = bpf_map_lookup_elem(&unresolved, &slot);
	if (!record || record->view)
		return;
	store_address(record->address, address);
	*(volatile __u32 *)&record->view = view;
}

INLINE struct sidestep_policy *env_policy(ENV *e, __u32 index)
{
	return bpf_map_lookup_elem(&policies, &index);
}

INLINE struct sidestep_hmac_key *env_hmac_key(ENV *e, __u32 index)
{
	return bpf_map_lookup_elem(&hmac_keys, &index);
}

INLINE _Bool env_hash(ENV *e, __u32 algorithm, __u32 state[8], const __u8 *block)
{
	return 0;
}

INLINE struct sidestep_hmac_work *env_hmac_work(ENV *e)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&hmac_work, &first);
}

INLINE struct sidestep_learned *env_learned(ENV *e, __u32 index)
{
	return bpf_map_lookup_elem(&learned, &index);
}

INLINE struct sidestep_flow_set *env_flow_set(ENV *e, __u32 index)
{
	return bpf_map_lookup_elem(&flow_sets, &index);
}

INLINE struct sidestep_session *env_session(ENV *e, __u32 index)
{
	return bpf_map_lookup_elem(&sessions, &index);
}

INLINE __u64 env_now(ENV *e)
{
	return bpf_ktime_get_ns();
}

INLINE __u64 env_swap(__u64 *word, __u64 value)
{
	return __sync_lock_test_and_set(word, value);
}

/* BPF has no barrier instruction; its atomic exchange orders memory accesses. */
INLINE void env_barrier(void)
{
	__u64 nothing = 0;

	env_swap(&nothing, 1);
}

SUBPROGRAM __u32 fib_lookup(__u32 view, __u64 high, __u64 low)
{
	const __u8 *memory;
	__u32 first = 0;

	memory = bpf_map_lookup_elem(&fib, &first);
	return memory ? fib6_lookup(memory, fib_lines, view, high, low) : 0;
}

INLINE __u32 env_fib_lookup(ENV *e, __u32 view, struct address address)
{
	return fib_lookup(view, be64(address.hi), be64(address.lo));
}

INLINE struct sidestep_port_counters *env_port_counters(ENV *e, __u32 index)
{
	index &= SIDESTEP_PORTS - 1;
	return bpf_map_lookup_elem(&port_counters, &index);
}

INLINE struct sidestep_route_counters *env_route_counters(ENV *e, __u32 index)
{
	return bpf_map_lookup_elem(&route_counters, &index);
}

/* Takes a token. If several CPUs compete for it, one of them gets it. */
INLINE _Bool rate_token(__u64 *bucket, __u64 interval, __u64 credit)
{
	__u64 now = bpf_ktime_get_ns(), next = *(volatile __u64 *)bucket;
	__u64 begin = now > credit ? now - credit : 0;

	if (next > now)
		return 0;
	if (begin < next)
		begin = next;
	return __sync_val_compare_and_swap(bucket, next, begin + interval) == next;
}

INLINE struct sidestep_report *env_report(ENV *e, enum sidestep_report_kind kind)
{
	__u32 slot = (env_ifindex(e) & (SIDESTEP_PORTS - 1)) + kind * SIDESTEP_PORTS;
	struct sidestep_report_rate *rate = bpf_map_lookup_elem(&report_rates, &slot);
	struct sidestep_report *report = 0;

	if (!rate || !rate->interval)
		return 0;
	if (rate_token(&rate->next, rate->interval, rate->credit))
		report = bpf_ringbuf_reserve(&reports, sizeof(*report), 0);
	if (report)
		report->time = bpf_ktime_get_ns();
	else
		__sync_fetch_and_add(&rate->suppressed, 1);
	return report;
}

INLINE void env_report_end(ENV *e, struct sidestep_report *report)
{
	bpf_ringbuf_submit(report, 0);
}

INLINE void env_count_reason(ENV *e, __u32 reason)
{
	__u64 *count = bpf_map_lookup_elem(&reason_counters, &reason);

	if (count)
		(*count)++;
}

#endif
