/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* env.h for a frame in ordinary memory. */
#ifndef SIDESTEP_ENV_NATIVE_H
#define SIDESTEP_ENV_NATIVE_H

#include "native.h"
#include "table/fib6.h"
#include "wire/bytes.h"
#include "wire/eth.h"
#if defined(__x86_64__)
#include "hmac/sha_x86.h"
#endif

typedef struct sidestep_native ENV;

/* A native egress accepts every frame. */
#define ENV_EGRESS_FLAGS SIDESTEP_ADJACENCY_VALID
/* The opposite shift restores removed bytes. */
#define ENV_SHIFT_REVERSIBLE 1

/*
 * With AddressSanitizer, the bytes of the buffer outside [data, end) are poisoned during a run. The
 * bounds follow the frame.
 */
#if defined(__has_feature) && __has_feature(address_sanitizer)
void __asan_poison_memory_region(const volatile void *address, unsigned long size);
void __asan_unpoison_memory_region(const volatile void *address, unsigned long size);

/* Bytes behind the frame whose shadow memory is set; larger than any offset that is read. */
#define ENV_FENCE 8192

INLINE void env_fence(ENV *e)
{
	long behind = e->limit - e->end;

	__asan_poison_memory_region(e->end,
				    (unsigned long)(behind < ENV_FENCE ? behind : ENV_FENCE));
	__asan_poison_memory_region(e->head, (unsigned long)(e->data - e->head));
	__asan_unpoison_memory_region(e->data, (unsigned long)(e->end - e->data));
}

INLINE void env_unfence(ENV *e)
{
	__asan_unpoison_memory_region(e->head, (unsigned long)(e->limit - e->head));
}
#else
INLINE void env_fence(ENV *e)
{
}

INLINE void env_unfence(ENV *e)
{
}
#endif

INLINE __u8 *env_data(ENV *e)
{
	return e->data;
}

INLINE __u8 *env_end(ENV *e)
{
	return e->end;
}

INLINE __u32 env_length(ENV *e)
{
	return (__u32)(e->end - e->data);
}

INLINE __u32 env_ifindex(ENV *e)
{
	return e->ifindex;
}

#define ENV_DEFERRED 0

INLINE _Bool env_defer(ENV *e)
{
	return 0;
}

INLINE _Bool env_is_linear(ENV *e)
{
	return 1;
}

INLINE int env_pull(ENV *e)
{
	return 0;
}

INLINE int env_shift(ENV *e, int delta, enum env_shift how)
{
	if (delta > e->end - e->data - ETH_LENGTH || -delta > e->data - e->head)
		return -1;
	e->data += delta;
	if (e->data < e->first)
		e->first = e->data;
	env_fence(e);
	return 0;
}

INLINE int env_trim(ENV *e, __u32 length)
{
	if (length > env_length(e))
		return -1;
	e->end = e->data + length;
	env_fence(e);
	return 0;
}

INLINE __u32 env_segment_size(ENV *e)
{
	return e->segment_size;
}

INLINE const struct sidestep_port *env_port(ENV *e, __u32 index)
{
	return &e->tables->ports[index & (SIDESTEP_PORTS - 1)];
}

INLINE struct sidestep_station *env_station(ENV *e, const struct sidestep_station_key *key)
{
	__u32 first = 0, end = e->tables->station_count;

	while (first < end) {
		__u32 middle = (first + end) / 2;
		struct sidestep_native_station *it = &e->tables->stations[middle];
		int order = __builtin_memcmp(&it->key, key, sizeof(*key));

		if (order == 0)
			return &it->station;
		if (order < 0)
			first = middle + 1;
		else
			end = middle;
	}
	return 0;
}

INLINE const struct sidestep_route *env_route(ENV *e, __u32 index)
{
	return index < e->tables->route_count ? &e->tables->routes[index] : 0;
}

INLINE const struct sidestep_group *env_group(ENV *e, __u32 index)
{
	return index < e->tables->group_count ? &e->tables->groups[index] : 0;
}

INLINE const struct sidestep_adjacency *env_adjacency(ENV *e, __u32 index)
{
	return index < e->tables->adjacency_count ? &e->tables->adjacencies[index] : 0;
}

/* No daemon uses the mark. */
INLINE void env_use(ENV *e, const struct sidestep_adjacency *adjacency)
{
}

INLINE void env_request_resolution(ENV *e, __u32 view, struct address address)
{
}

INLINE const struct sidestep_policy *env_policy(ENV *e, __u32 index)
{
	return index < e->tables->policy_count ? &e->tables->policies[index] : 0;
}

INLINE const struct sidestep_hmac_key *env_hmac_key(ENV *e, __u32 index)
{
	return index < e->tables->hmac_key_count ? &e->tables->hmac_keys[index] : 0;
}

INLINE _Bool env_hash(ENV *e, __u32 algorithm, __u32 state[8], const __u8 *block)
{
#if defined(__x86_64__)
	if (!e->tables->sha)
		return 0;
	if (algorithm == SIDESTEP_HMAC_SHA256)
		sha256_block_x86(state, block);
	else
		sha1_block_x86(state, block);
	return 1;
#else
	return 0;
#endif
}

INLINE struct sidestep_hmac_work *env_hmac_work(ENV *e)
{
	return e->tables->hmac_work;
}

INLINE struct sidestep_learned *env_learned(ENV *e, __u32 index)
{
	return index < e->tables->learned_count ? &e->tables->learned[index] : 0;
}

INLINE struct sidestep_flow_set *env_flow_set(ENV *e, __u32 index)
{
	return index < e->tables->flow_set_count ? &e->tables->flow_sets[index] : 0;
}

INLINE struct sidestep_session *env_session(ENV *e, __u32 index)
{
	return index < e->tables->session_count ? &e->tables->sessions[index] : 0;
}

INLINE __u64 env_now(ENV *e)
{
	return e->tables->now;
}

/* Instances on several threads may share learned headers. */
INLINE __u64 env_swap(__u64 *word, __u64 value)
{
	return __atomic_exchange_n(word, value, __ATOMIC_SEQ_CST);
}

INLINE void env_barrier(void)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

INLINE __u32 env_fib_lookup(ENV *e, __u32 view, struct address address)
{
	return fib6_lookup(e->tables->fib, e->tables->fib_lines, view, be64(address.hi),
			   be64(address.lo));
}

INLINE struct sidestep_port_counters *env_port_counters(ENV *e, __u32 index)
{
	return &e->tables->port_counters[index & (SIDESTEP_PORTS - 1)];
}

INLINE struct sidestep_route_counters *env_route_counters(ENV *e, __u32 index)
{
	return index < e->tables->route_counter_count ? &e->tables->route_counters[index] : 0;
}

INLINE void env_count_reason(ENV *e, __u32 reason)
{
	e->tables->reason_counters[reason % SIDESTEP_REASONS]++;
}

/* The caller limits the rate. */
INLINE struct sidestep_report *env_report(ENV *e, enum sidestep_report_kind kind)
{
	struct sidestep_report *report = &e->report[e->reports];

	if (e->reports == SIDESTEP_NATIVE_REPORTS)
		return 0;
	report->time = env_now(e);
	return report;
}

INLINE void env_report_end(ENV *e, struct sidestep_report *report)
{
	e->reports++;
}

INLINE __u32 env_copy_head(ENV *e, __u32 offset, __u8 *to, __u32 length, __u32 wanted, __u32 room)
{
	__u32 head = length < wanted ? length : wanted;

	if (head > room)
		head = room;
	if (offset > env_length(e) || head > env_length(e) - offset)
		return 0;
	__builtin_memcpy(to, e->data + offset, head);
	return head;
}

INLINE void env_trace(ENV *e, __u32 kind, __u32 a, __u32 b, struct address address)
{
	struct sidestep_trace *trace;

	if (e->traces == SIDESTEP_NATIVE_TRACES)
		return;
	trace = &e->trace[e->traces++];
	trace->kind = kind;
	trace->a = a;
	trace->b = b;
	store_address(trace->address, address);
}

#endif
