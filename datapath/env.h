/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the packet path may ask of the world. env_xdp.h, env_tc.h and env_native.h answer for their target; each defines
 * the type ENV (the packet in its target's form) and these functions:
 *
 *   env_data(e), env_end(e)     first byte and one past the last byte that can be read in place
 *   env_length(e)               bytes of the whole frame, also those that cannot be read in place
 *   env_ifindex(e)              ingress interface
 *   env_tagged(e)               the frame carries a VLAN tag that is not in its bytes
 *   env_linear(e)               make the headers readable in place (0, or negative when it failed)
 *   env_shift(e, delta, how)    remove (delta > 0) or add (delta < 0) bytes behind the Ethernet header. The Ethernet
 *                               header and added bytes are undefined afterwards. Negative when refused; the packet is
 *                               then unchanged. `how` tells TC what the change means for offloads (enum env_shift).
 *   env_trim(e, length)         cut the frame to that length
 *   env_segment_size(e)         bytes of payload in each segment that the frame is cut into when it leaves; 0: it is not
 *   env_port/route/group/adjacency/policy(e, index)   records, NULL where there is none
 *   env_hmac_key(e, index)      the same
 *   env_hash(e, algorithm, state, block)   what a block of 64 bytes does to a hash value (enum sidestep_hmac_algorithm), by
 *                               instructions that are made for it; 0: there are none, and nothing is done
 *   env_hmac_work(e)            memory for an HMAC, this CPU's until the packet is done; what it remembers stays
 *   env_fib_lookup(e, view, address)             route index, 0: none
 *   env_learned(e, index)       what a dynamic proxy has learned, NULL where there is none
 *   env_flow_set(e, index)      flows that share a place, NULL where there is none
 *   env_now(e)                  nanoseconds of the monotonic clock
 *   env_swap(word, value)       stores a word of 8 bytes and returns what it was; ordered before and behind it
 *   env_barrier()               what was read before it was read before what is read behind it
 *   env_port_counters/route_counters(e, index), env_count_reason(e, reason)
 *   env_report(e, kind)         a report to fill in, NULL if there is no token for it (report.h); then env_report_end(e, report)
 *   env_copy_head(e, offset, to, length, wanted, room)   the first `wanted` of `length` bytes at `offset`, as many as there is
 *                               room for (a constant, a power of 2). Bytes that were copied; 0: none could be.
 *   env_trace(e, kind, a, b, address)            in the kernel nothing at all, save in the traced programs
 *
 * After env_shift, env_trim and env_linear every packet pointer is stale and must be derived again.
 */
#ifndef SIDESTEP_ENV_H
#define SIDESTEP_ENV_H

#include "abi.h"
#include "wire/bytes.h"

/* What a shift means to a target that keeps offload state. */
enum env_shift {
	ENV_SHIFT_PLAIN,   /* header grows or shrinks, no tunnel involved */
	ENV_SHIFT_DECAP4,  /* outer header removed, IPv4 (or a frame) inside */
	ENV_SHIFT_DECAP6,  /* outer header removed, IPv6 inside */
	ENV_SHIFT_ENCAP,   /* outer IPv6 header added around IP */
	ENV_SHIFT_ENCAP_L2 /* outer IPv6 header added around an Ethernet frame */
};

/* What the target does with the frame. */
enum outcome_kind {
	OUTCOME_FORWARD, /* send it out of .ifindex */
	OUTCOME_PUNT,  /* hand it to the kernel */
	OUTCOME_DROP
};

struct outcome {
	__u32 kind;    /* enum outcome_kind */
	__u32 ifindex; /* egress of FORWARD */
	__u32 reason;  /* of KERNEL and DROP */
};

/* LIMIT: no header that we read or write begins beyond this offset. */
#define OFFSET_MAX 4095u

#if defined(SIDESTEP_TARGET_XDP)
#include "env_xdp.h"
#elif defined(SIDESTEP_TARGET_TC)
#include "env_tc.h"
#else
#include "env_native.h"
#endif

/*
 * The one bounds check: `length` (a constant) bytes at `offset`, or NULL. The pointer is good until the next
 * env_shift, env_trim or env_linear.
 */
INLINE __u8 *env_bytes(ENV *e, __u32 offset, __u32 length)
{
	__u8 *p = env_data(e);

	if (offset > OFFSET_MAX)
		return 0;
#ifdef __bpf__
	/* Linux 6.1's verifier forgets the bound when the compiler reloads a spilled offset between check and use. */
	asm volatile("%0 &= %1" : "+r"(offset) : "i"(OFFSET_MAX));
#endif
	p += offset;
	if (p + length > env_end(e))
		return 0;
	return p;
}

#ifdef __bpf__
/* Reads frames in pieces too. */
INLINE __u32 env_copy_head(ENV *e, __u32 offset, __u8 *to, __u32 length, __u32 wanted, __u32 room)
{
	__u64 head = length < wanted ? length : wanted;

	if (head > room)
		head = room;
	if (head == 0)
		return 0;
	/*
	 * The verifier has to see both bounds in one place, in a register that the compiler does not take apart; and Linux
	 * 6.1's does not learn from a comparison with 0 that the length is at least 1. `room` is a power of 2.
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
