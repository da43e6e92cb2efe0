/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Receiver of a trial: counts the packets of this trial, detects loss, reordering and duplicates,
 * and measures latency. Packets of former trials are dropped; other packets are counted and passed
 * to the stack.
 */
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>
#include "stamp.h"

/*
 * Log-linear classes of nanoseconds. Each value below 2^LINEAR has its own class. Each higher power
 * of two has 2^LINEAR classes of equal width. The same as in src/traffic/histogram.rs.
 */
#define LINEAR 6
#define POWERS 34
#define CLASSES ((POWERS + 1) << LINEAR)

/*
 * LIMIT: distance between a packet and its duplicate, or between a packet and those that overtook
 * it. Later packets count as `late` only.
 */
#define WINDOW 65536

/* LIMIT: generators of a trial; `Receiver::SOURCES_MAX` of src/traffic/receiver.rs. */
#define SOURCES_MAX 8

/* LIMIT: bytes of a packet in one piece. The stamp of a longer packet is copied. */
#define LENGTH_MASK 0x3fff

/* The same layout as `Tally` in src/traffic/receiver.rs. */
struct tally {
	__u64 packets;    /* of this trial, without duplicates */
	__u64 bytes;      /* of these, Ethernet header included, FCS not */
	__u64 reordered;  /* of these, arrived after a later one (RFC 4737 3.3) */
	__u64 duplicated; /* repeated */
	__u64 late;       /* too late to know whether they are duplicates */
	__u64 strangers;  /* without the generator's stamp */
	__u64 longest;    /* ns */
	__u64 variation;  /* sum of |differences| of successive latencies, ns */
	__u64 previous;   /* latency of the last packet, ns */
	__u64 classes[CLASSES];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tally);
} tallies SEC(".maps");

/*
 * State of one generator. Its stamps carry the trial number plus its index. Each counts its packets
 * from 0.
 */
struct order {
	__u32 trial; /* trial, timed and sources are valid in the first entry */
	__u32 timed;
	__u32 sources;      /* number of generators */
	__u32 reserved;     /* 0 */
	__u64 next;         /* the highest sequence number so far, + 1 */
	__u64 seen[WINDOW]; /* sequence number + 1 of the last packet in this slot */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SOURCES_MAX);
	__type(key, __u32);
	__type(value, struct order);
} orders SEC(".maps");

static __always_inline __u32 class_of(__u64 time)
{
	__u32 power = 0;
	__u64 rest = time >> LINEAR;

	/* The position of the highest bit; BPF has no instruction for it. */
#pragma unroll
	for (int step = 32; step; step /= 2) {
		if (rest >> step) {
			rest >>= step;
			power += step;
		}
	}
	if (!(time >> LINEAR))
		return time;
	if (power >= POWERS)
		return CLASSES - 1;
	return ((power + 1) << LINEAR) + ((time >> power) & ((1 << LINEAR) - 1));
}

static __always_inline void measure(struct tally *tally, __u64 time)
{
	__u32 class = class_of(time);

	if (tally->packets)
		tally->variation += time > tally->previous ? time - tally->previous :
							     tally->previous - time;
	tally->previous = time;
	if (time > tally->longest)
		tally->longest = time;
	if (class < CLASSES)
		tally->classes[class]++;
}

/* Returns whether the packet has the generator's stamp, from any trial. */
static __always_inline bool receive(const struct stamp *stamp, __u64 bytes)
{
	__u32 key = 0, source, timed;
	struct tally *tally = bpf_map_lookup_elem(&tallies, &key);
	struct order *order = bpf_map_lookup_elem(&orders, &key);
	__u64 sequence, slot, mark, *place;

	if (!tally || !order)
		return false;
	if (stamp_magic(stamp) != STAMP_MAGIC) {
		tally->strangers++;
		return false;
	}
	source = (__u16)(stamp_trial(stamp) - order->trial);
	if (source >= order->sources)
		return true;
	timed = order->timed;
	if (source) {
		order = bpf_map_lookup_elem(&orders, &source);
		if (!order)
			return true;
	}
	sequence = stamp_sequence(stamp);
	mark = sequence + 1;
	/* Keep the mask: Clang omits it for 16 bits, but the verifier of Linux 6.1 needs it. */
	slot = sequence;
	asm volatile("" : "+r"(slot));
	place = &order->seen[slot % WINDOW];
	if (*place > mark) {
		tally->late++;
		return true;
	}
	/* Two copies may arrive on two CPUs at once. */
	if (__sync_lock_test_and_set(place, mark) == mark) {
		tally->duplicated++;
		return true;
	}
	/* Inexact if packets arrive on several CPUs at once: they have no defined order then. */
	if (mark <= order->next)
		tally->reordered++;
	else
		order->next = mark;
	if (timed)
		measure(tally, (bpf_ktime_get_ns() - stamp_time(stamp)) & STAMP_48);
	tally->packets++;
	tally->bytes += bytes;
	return true;
}

static __always_inline void stranger(void)
{
	__u32 key = 0;
	struct tally *tally = bpf_map_lookup_elem(&tallies, &key);

	if (tally)
		tally->strangers++;
}

SEC("xdp.frags")
int receiver(struct xdp_md *ctx)
{
	__u8 *packet = (__u8 *)(long)ctx->data;
	__u8 *end = (__u8 *)(long)ctx->data_end;
	__u64 total = bpf_xdp_get_buff_len(ctx);
	__u64 length = end - packet;
	/*
	 * Two variables, so that one of them lives in registers. Otherwise the verifier of Linux
	 * 6.18, which tracks the precision of stack slots, gives up with "verifier bug: stack slot
	 * 1, total slots 0".
	 */
	struct stamp stamp, copied;

	if (total < sizeof(stamp)) {
		stranger();
		return XDP_PASS;
	}
	if (total == length && length <= LENGTH_MASK) {
		/* Hide the value from the compiler, which would otherwise omit the bounds check. */
		asm volatile("" : "+r"(length));
		packet += (length - sizeof(stamp)) & LENGTH_MASK;
		if (packet + sizeof(stamp) > end)
			return XDP_PASS;
		stamp = *(struct stamp *)packet;
	} else if (bpf_xdp_load_bytes(ctx, total - sizeof(copied), &copied, sizeof(copied))) {
		stranger();
		return XDP_PASS;
	} else {
		stamp = copied;
	}
	return receive(&stamp, total) ? XDP_DROP : XDP_PASS;
}

SEC("tc")
int receiver_skb(struct __sk_buff *skb)
{
	struct stamp stamp;

	if (skb->len < sizeof(stamp) ||
	    bpf_skb_load_bytes(skb, skb->len - sizeof(stamp), &stamp, sizeof(stamp))) {
		stranger();
		return TC_ACT_OK;
	}
	return receive(&stamp, skb->len) ? TC_ACT_SHOT : TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
