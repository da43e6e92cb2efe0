/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Traces on the live path, in programs that are compiled with SIDESTEP_TRACED. These replace the
 * plain programs while `sidestep trace` runs.
 *
 * trace_begin() checks the filter against the arriving frame and copies its head. env_trace()
 * records the steps. trace_end() checks the filter against the verdict and sends the sample. The
 * draft is in memory of this CPU.
 */
#ifndef SIDESTEP_TRACE_BPF_H
#define SIDESTEP_TRACE_BPF_H

#include "sample.h"
#include "wire/eth.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sidestep_filter);
} trace_filter SEC(".maps");

struct trace_draft {
	struct sidestep_sample sample;
	__u32 begun;     /* the current packet may match the filter */
	__u32 looked_up; /* a lookup matched the filter */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct trace_draft);
} trace_drafts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, SIDESTEP_SAMPLE_RING);
} trace_ring SEC(".maps");

INLINE struct sidestep_filter *trace_active_filter(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&trace_filter, &zero);
}

INLINE struct trace_draft *trace_draft(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&trace_drafts, &zero);
}

INLINE _Bool trace_prefix_has(const struct sidestep_filter_prefix *prefix, struct address address)
{
	return (address.hi & prefix->mask[0]) == prefix->address[0] &&
	       (address.lo & prefix->mask[1]) == prefix->address[1];
}

/*
 * Returns true if the address at the given offset of its header is within the prefix. Reads
 * fragmented frames, too.
 */
INLINE _Bool trace_address_fits(ENV *e, const struct sidestep_filter_prefix *prefix, __u32 in_ipv6,
				__u32 in_ipv4)
{
	struct address address = {};
	__u16 type = 0;

	if (env_copy(e, ETH_TYPE, &type, sizeof(type)) < 0 || type != prefix->ethertype)
		return 0;
	if (type == ETHERTYPE_IPV6) {
		if (env_copy(e, ETH_LENGTH + in_ipv6, &address, 16) < 0)
			return 0;
	} else if (env_copy(e, ETH_LENGTH + in_ipv4, &address, 4) < 0) {
		return 0;
	}
	return trace_prefix_has(prefix, address);
}

/* Runs before the first step. Cheap conditions come first, because most packets do not match. */
INLINE void trace_begin(ENV *e)
{
	struct sidestep_filter *filter = trace_active_filter();
	struct trace_draft *draft = trace_draft();
	__u32 length = env_length(e), arrived;

	if (!filter || !draft)
		return;
	draft->begun = 0;
	if (filter->ifindex && filter->ifindex != env_ifindex(e))
		return;
	/*
	 * The coarse clock has the resolution of a kernel tick. That suffices for a token bucket
	 * and is cheaper.
	 */
	if (filter->next > bpf_ktime_get_coarse_ns())
		return;
	if ((filter->flags & SIDESTEP_FILTER_SOURCE) &&
	    !trace_address_fits(e, &filter->source, IPV6_SOURCE, IPV4_SOURCE))
		return;
	if ((filter->flags & SIDESTEP_FILTER_DESTINATION) &&
	    !trace_address_fits(e, &filter->destination, IPV6_DESTINATION, IPV4_DESTINATION))
		return;
	arrived = env_copy_head(e, 0, draft->sample.arrived, length, filter->bytes,
				SIDESTEP_SAMPLE_BYTES);
	if (!arrived)
		return;
	draft->sample.time = bpf_ktime_get_ns();
	draft->sample.ifindex = env_ifindex(e);
	draft->sample.length = length;
	draft->sample.arrived_bytes = arrived;
	draft->sample.left_length = 0;
	draft->sample.left_bytes = 0;
	draft->sample.steps = 0;
	draft->looked_up = 0;
	draft->begun = 1;
}

/* Records a step. */
INLINE void env_trace(ENV *e, __u32 kind, __u32 a, __u32 b, struct address address)
{
	struct trace_draft *draft = trace_draft();
	struct sidestep_filter *filter;
	struct sidestep_trace *step;
	__u32 number;

	if (!draft || !draft->begun)
		return;
	if (kind == SIDESTEP_TRACE_LOOKUP) {
		filter = trace_active_filter();
		if (filter && trace_prefix_has(&filter->looked_up, address))
			draft->looked_up = 1;
	}
	number = draft->sample.steps;
	if (number >= SIDESTEP_SAMPLE_STEPS)
		return;
	step = &draft->sample.step[number];
	step->kind = kind;
	step->a = a;
	step->b = b;
	store_address(step->address, address);
	draft->sample.steps = number + 1;
}

/* Runs after the last step. */
INLINE void trace_end(ENV *e, struct outcome outcome)
{
	_Bool forwarded = outcome.kind == OUTCOME_FORWARD;
	struct sidestep_filter *filter = trace_active_filter();
	struct trace_draft *draft = trace_draft();
	__u32 length, left;

	if (!filter || !draft || !draft->begun)
		return;
	draft->begun = 0;
	if ((filter->flags & SIDESTEP_FILTER_VERDICT) && filter->verdict != outcome.kind)
		return;
	if ((filter->flags & SIDESTEP_FILTER_REASON) &&
	    (forwarded || filter->reason != outcome.reason))
		return;
	if ((filter->flags & SIDESTEP_FILTER_LOOKED_UP) && !draft->looked_up)
		return;
	if (!rate_token(&filter->next, filter->interval, filter->credit))
		return;
	draft->sample.outcome = outcome.kind;
	draft->sample.egress = forwarded ? outcome.ifindex : 0;
	draft->sample.reason = forwarded ? 0 : outcome.reason;
	if (forwarded || outcome.reason == PUNT_rewritten || outcome.reason == PUNT_fragmented) {
		length = env_length(e);
		left = env_copy_head(e, 0, draft->sample.left, length, filter->bytes,
				     SIDESTEP_SAMPLE_BYTES);
		draft->sample.left_bytes = left;
		if (left)
			draft->sample.left_length = length;
	}
	if (bpf_ringbuf_output(&trace_ring, &draft->sample, sizeof(draft->sample), 0) < 0)
		__sync_fetch_and_add(&filter->lost, 1);
}

#endif
