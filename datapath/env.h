/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The interface between the packet path and its target. env_xdp.h, env_tc.h and env_native.h
 * implement it; each defines the type ENV (the packet in the target's form) and these functions:
 *
 *   env_data(e), env_end(e)   bounds of the bytes that can be read in place
 *   env_length(e)             bytes of the whole frame, fragments included
 *   env_ifindex(e)            ingress interface
 *   env_tagged(e)             true if the frame has a VLAN tag outside its bytes
 *   env_vlan(e)               tag control information of that tag
 *   env_tag_into_frame(e)     moves that tag into the bytes; negative on failure
 *   env_tag_resize(e, push, id)
 *                             adds a tag with this VLAN ID, or removes the outermost tag, of a frame
 *                             in which env_tag_into_frame() has left none outside; negative on failure
 *   env_take_mark(e)          true for a frame that was sent for segmentation; removes its mark
 *   env_is_linear(e)          true if the headers can be read in place, however long they are
 *   env_pull(e)               moves the bounds until that is so; negative on failure
 *   env_shift(e, delta, how)  removes (delta > 0) or adds (delta < 0) bytes behind the Ethernet
 *                             header. The Ethernet header and added bytes are undefined afterwards.
 *                             Negative if refused; the packet is then unchanged. TC derives the
 *                             offload state from `how` (enum env_shift).
 *   env_defer(e)              hands the unmodified frame to the program at TC behind XDP; false if
 *                             there is none
 *   env_trim(e, length)       cuts the frame to `length` bytes; negative if refused
 *   env_segment_size(e)       payload bytes of each segment that GSO makes of the frame; 0: no GSO
 *   env_port(e, index), env_route, env_group, env_adjacency, env_policy, env_hmac_key,
 *   env_learned, env_flow_set, env_session
 *                             the record at `index`, or NULL
 *   env_station(e, key)       the station of a bridge, or NULL
 *   env_fib_lookup(e, view, address)
 *                             route index; 0: no route
 *   env_use(e, adjacency)     marks an adjacency as used
 *   env_request_resolution(e, view, address)
 *                             asks the daemon to resolve a destination
 *   env_hash(e, algorithm, state, block)
 *                             adds a block of 64 bytes to a hash state with CPU instructions; false
 *                             if there are none (enum sidestep_hmac_algorithm)
 *   env_hmac_work(e)          HMAC buffers and cache of this CPU, valid until the packet is done
 *   env_update_checksum(e, offset, from, to)
 *                             updates the UDP checksum at `offset` after a change of 4 bytes, which are
 *                             in network order; negative on failure
 *   env_now(e)                monotonic clock, in nanoseconds
 *   env_swap(word, value)     exchanges an 8-byte word; a full barrier
 *   env_barrier()             orders the reads before it and behind it
 *   env_port_counters(e, index), env_route_counters(e, index), env_count_reason(e, reason)
 *   env_report(e, kind)       a report to fill in, or NULL without a token (report.h)
 *   env_report_end(e, report) submits that report
 *   env_copy_head(e, offset, to, length, wanted, room)
 *                             copies min(length, wanted, room) bytes at `offset` and returns their
 *                             number; 0 on failure. `room` is a constant and a power of 2.
 *   env_trace(e, kind, a, b, address)
 *                             reports a step; expands to nothing in the plain kernel programs
 *
 * After env_shift, env_trim, env_pull and env_update_checksum every packet pointer has to be derived again.
 */
#ifndef SIDESTEP_ENV_H
#define SIDESTEP_ENV_H

#include "abi.h"
#include "wire/bytes.h"
#include "wire/eth.h"

/* Meaning of a shift for a target that keeps offload state. */
enum env_shift {
	ENV_SHIFT_PLAIN,   /* header grows or shrinks, no tunnel involved */
	ENV_SHIFT_DECAP4,  /* outer header removed, IPv4 (or a frame) inside */
	ENV_SHIFT_DECAP6,  /* outer header removed, IPv6 inside */
	ENV_SHIFT_ENCAP,   /* outer IPv6 header added around IP */
	ENV_SHIFT_ENCAP_L2 /* outer IPv6 header added around an Ethernet frame */
};

/* Final decision about a frame. */
enum outcome_kind {
	OUTCOME_FORWARD, /* send it out of .ifindex */
	OUTCOME_PUNT,    /* pass it to the kernel */
	OUTCOME_DROP,
	OUTCOME_DEFER /* the program behind this one decides (env_defer) */
};

struct outcome {
	__u32 kind;    /* enum outcome_kind */
	__u32 ifindex; /* egress of FORWARD */
	__u32 reason;  /* of PUNT and DROP */
	_Bool to_peer; /* FORWARD: TC may redirect to the egress's peer */
	_Bool marked;  /* FORWARD: the egress is an ether device, which segments the frame */
};

/* Returns true if the frame ends here: it was dropped, or the daemon sends it in fragments. */
INLINE _Bool outcome_ends_frame(struct outcome outcome)
{
	return outcome.kind == OUTCOME_DROP ||
	       (outcome.kind == OUTCOME_PUNT && outcome.reason == PUNT_fragmented);
}

/* LIMIT: largest offset of a header that is read or written. */
#define OFFSET_MAX 4095u

#if defined(SIDESTEP_TARGET_XDP)
#include "env_xdp.h"
#elif defined(SIDESTEP_TARGET_TC)
#include "env_tc.h"
#else
#include "env_native.h"
#endif

#ifndef SIDESTEP_TARGET_TC
/* A frame is its bytes: no tag and no mark is outside them. */
INLINE _Bool env_tagged(ENV *e)
{
	return 0;
}

INLINE __u32 env_vlan(ENV *e)
{
	return 0;
}

INLINE _Bool env_take_mark(ENV *e)
{
	return 0;
}

INLINE int env_tag_into_frame(ENV *e)
{
	return 0;
}
#endif

/*
 * The only bounds check: returns `length` bytes at `offset`, or NULL. `length` is a constant. The
 * pointer is valid until the next env_shift, env_trim or env_pull.
 */
INLINE __u8 *env_bytes(ENV *e, __u32 offset, __u32 length)
{
	__u8 *p = env_data(e);

	if (offset > OFFSET_MAX)
		return 0;
#ifdef __bpf__
	/*
	 * The verifier of Linux 6.1 loses the bound if the compiler reloads a spilled offset
	 * between check and use.
	 */
	asm volatile("%0 &= %1" : "+r"(offset) : "i"(OFFSET_MAX));
#endif
	p += offset;
	if (p + length > env_end(e))
		return 0;
	return p;
}

/*
 * Reads the Ethernet header at `at` as it is behind a change of the outermost tag: without the tag, or
 * with another one (`push`). `behind` gets the type behind a new tag.
 */
INLINE int env_read_eth(ENV *e, __u32 at, _Bool push, struct eth_header *eth, __u16 *behind)
{
	const __u8 *bytes = env_bytes(e, at, ETH_LENGTH);

	if (!bytes)
		return -1;
	*eth = eth_load(bytes);
	*behind = eth->type;
	eth->type = ETHERTYPE_VLAN;
	if (push)
		return 0;
	bytes = env_bytes(e, at + ETH_LENGTH, VLAN_TAG_LENGTH);
	if (!bytes)
		return -1;
	eth->type = load16(bytes + 2);
	return 0;
}

/* Writes such a header, and with `push` the new tag, of priority 0. */
INLINE int env_write_eth(ENV *e, __u32 at, _Bool push, struct eth_header eth, __u16 id,
			 __u16 behind)
{
	__u8 *bytes = env_bytes(e, at, ETH_LENGTH);

	if (!bytes)
		return -1;
	eth_store(bytes, eth);
	if (!push)
		return 0;
	bytes = env_bytes(e, at + ETH_LENGTH, VLAN_TAG_LENGTH);
	if (!bytes)
		return -1;
	store16(bytes, be16(id));
	store16(bytes + 2, behind);
	return 0;
}

#ifndef SIDESTEP_TARGET_TC
/* RFC 1624, RFC 8200 8.1: 0 would mean that there is no checksum. */
INLINE int env_update_checksum(ENV *e, __u32 offset, __u32 from, __u32 to)
{
	__u8 *bytes = env_bytes(e, offset, 2);
	__u16 checksum;

	if (!bytes)
		return -1;
	checksum = checksum_update(load16(bytes), (__u16)from, (__u16)to);
	checksum = checksum_update(checksum, (__u16)(from >> 16), (__u16)(to >> 16));
	store16(bytes, checksum ? checksum : 0xffff);
	return 0;
}

INLINE int env_tag_resize(ENV *e, _Bool push, __u16 id)
{
	struct eth_header eth;
	__u16 behind;

	if (env_read_eth(e, 0, push, &eth, &behind) < 0 ||
	    env_shift(e, push ? -VLAN_TAG_LENGTH : VLAN_TAG_LENGTH, ENV_SHIFT_PLAIN) < 0)
		return -1;
	return env_write_eth(e, 0, push, eth, id, behind);
}
#endif

#ifdef __bpf__
/* Copies from fragmented frames, too. */
INLINE __u32 env_copy_head(ENV *e, __u32 offset, __u8 *to, __u32 length, __u32 wanted, __u32 room)
{
	__u64 head = length < wanted ? length : wanted;

	if (head > room)
		head = room;
	if (head == 0)
		return 0;
	/*
	 * The verifier needs both bounds on one register, which the compiler must not split. Linux
	 * 6.1 does not learn from a comparison with 0 that the length is at least 1. `room` is a
	 * power of 2.
	 */
	asm volatile("%0 += -1\n%0 &= %1\n%0 += 1" : "+r"(head) : "i"(room - 1));
	return env_copy(e, offset, to, (__u32)head) < 0 ? 0 : (__u32)head;
}
#endif

#if defined(SIDESTEP_TRACED)
#include "trace.bpf.h"
#elif defined(__bpf__)
#define env_trace(e, kind, a, b, address) ((void)0)
#define trace_begin(e) ((void)0)
#define trace_end(e, outcome) ((void)0)
#endif

#endif
