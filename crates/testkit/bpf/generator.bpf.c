/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Traffic out of nothing: run by BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES, it writes a template into the page that
 * the kernel hands it and redirects it to one interface. Not attached to anything.
 *
 * It keeps the pace itself: a frame that is not due is dropped, which costs some tens of nanoseconds, and the next is asked
 * again. User space could only pace calls, and each call waits twice for an RCU grace period.
 */
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "stamp.h"

/*
 * LIMIT: bytes of the frame that are rewritten for each packet; see `Template` in
 * src/traffic/stream.rs.
 */
#define HEADER_MAX 320
/* LIMIT: templates of a stream; see `Stream` in src/traffic/stream.rs. */
#define TEMPLATES_MAX 4
/* Upper bound of a length for the verifier; above `Template::FRAME_MAX`. */
#define LENGTH_MASK 0xfff

/* Number of late frames that are sent in a burst to catch up. Further late packets are not sent. */
#define CATCH_UP 64
/*
 * Without pacing, the clock is read once per this number of frames, because reading it takes
 * half as long as a frame.
 */
#define LOOK_EVERY 64

struct template
{
	__u8 header[HEADER_MAX];
	__u64 behind[2]; /* what longer templates have where this one has its stamp */
	__u32 length;
	__u32 checksum_base; /* with the first flow and zeros for a stamp */
	__u32 odd;           /* the stamp begins at an odd byte of what the checksum covers */
	__u32 reserved;      /* 0 */
};

/* The same layout as `Config` in src/traffic/program.rs. */
struct config {
	struct template templates
		[TEMPLATES_MAX]; /* the shortest first; the same behind their headers */
	__u32 count;             /* of templates */
	__u32 ifindex;           /* where the frames go, in the namespace of the running thread */
	__u32 header_length;     /* bytes of `header` in use: 14..HEADER_MAX */
	__u32 flows;             /* how many values the varying word takes; 1: none varies */
	__u32 flow_offset;       /* of the varying big-endian 16-bit word */
	__u32 flow_base;         /* value of the first flow; flow_base + flows <= 65536 */
	__u32 checksum_offset;   /* of the UDP checksum that covers word and stamp; 0: none */
	__u32 stamped;           /* 0 or 1 */
	__u32 slots;             /* of `schedule` in use; 0: one template, each flow in its turn */
	__u32 reserved;          /* 0 */
};

/* Read-only, so that the verifier knows each value. */
const volatile struct config config;

/*
 * State of one CPU: each generator loads its own copy of the program and runs it from one thread.
 * The same layout as `State` in src/traffic/program.rs, which writes it before a run.
 */
struct {
	__u64 made; /* frames sent */
	__u64 first; /* when the trial began, the same for all its generators; ns of CLOCK_MONOTONIC; 0: it has not */
	__u64 began;    /* when this generator saw that */
	__u64 now;      /* the last look at the clock */
	__u64 ended;    /* when the run was over; 0: it is not */
	__u64 duration; /* ns from `first` on; 0: until it is stopped */
	__u64 interval; /* between two frames, ns * 2^16; 0: none */
	__u64 due;      /* when the next frame is, after the first, ns * 2^16 */
	__u32 next_flow;
	__u32 slot;
	__u32 trial;
	__u32 timed;      /* whether stamps say the time */
	__u32 generators; /* of the trial: it begins when all of them are at work */
	__u32 number;     /* which of them this is, from 0 */
} state;

/* LIMIT: generators of a trial; `Receiver::SOURCES_MAX` of src/traffic/receiver.rs. */
#define GENERATORS_MAX 8
/* A generator that read the clock at most this many ns ago is running. */
#define AT_WORK 50000

/* State that all generators of a trial share: the first object's map. */
struct gate {
	__u64 begin;                /* when all were at work; 0: they have not been yet */
	__u64 seen[GENERATORS_MAX]; /* when each last was */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gate);
} gate_of_all SEC(".maps");

/* Template and flow of each turn: template << 16 | flow. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} schedule SEC(".maps");

/*
 * Returns the start time of the trial, or 0 before the start. A run begins some milliseconds
 * after it was requested, another one some hundred, and the scheduler may take a CPU away for a
 * tick. Each generator therefore waits, frame by frame. The first one that sees all others
 * running sets the start time.
 */
static __always_inline __u64 begun(void)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 only = 0;
	struct gate *gate = bpf_map_lookup_elem(&gate_of_all, &only);

	if (!gate)
		return 0;
	gate->seen[state.number % GENERATORS_MAX] = now;
	if (!gate->begin) {
		for (__u32 i = 0; i < GENERATORS_MAX; i++) {
			/* Another CPU's timestamp may be later than `now`. */
			if (i < state.generators && (__s64)(now - gate->seen[i]) > AT_WORK)
				return 0;
		}
		__sync_val_compare_and_swap(&gate->begin, 0, now);
	}
	return gate->begin;
}

/* Returns whether a frame is due. */
static __always_inline bool due(void)
{
	__u64 elapsed, late;

	if (!state.duration)
		return true;
	if (state.ended)
		return false;
	if (!state.first) {
		state.first = begun();
		if (!state.first)
			return false;
		/*
		 * Read the clock after the start time was set, so that the elapsed time is not
		 * negative.
		 */
		state.began = state.now = bpf_ktime_get_ns();
	} else if (state.interval || state.timed || !(state.made % LOOK_EVERY)) {
		state.now = bpf_ktime_get_ns();
	}
	elapsed = state.now - state.first;
	if (elapsed >= state.duration) {
		state.ended = state.now;
		return false;
	}
	if (!state.interval)
		return true;
	if (state.due >> 16 >= state.duration || elapsed << 16 < state.due)
		return false;
	late = (elapsed << 16) - state.due;
	if (late > CATCH_UP * state.interval)
		state.due += (late / state.interval - CATCH_UP) * state.interval;
	state.due += state.interval;
	return true;
}

/* Copies bytes of the template. The caller has checked the length of the packet. */
#define COPY(type, packet, offset)                                                                 \
	(*(type *)((packet) + (offset)) = *(const volatile type *)(template->header + (offset)))

static __always_inline void put_header(__u8 *packet, const volatile struct template *template)
{
	__u32 at = 0;

	/*
	 * PERF: saves 16 ns per packet against bpf_xdp_store_bytes() (160 -> 144, generator to
	 * sink). The verifier knows the length and removes the unused iterations.
	 */
#pragma unroll
	for (int i = 0; i < HEADER_MAX / 8; i++) {
		if (at + 8 > config.header_length)
			break;
		COPY(__u64, packet, at);
		at += 8;
	}
	if (config.header_length & 4) {
		COPY(__u32, packet, at);
		at += 4;
	}
	if (config.header_length & 2) {
		COPY(__u16, packet, at);
		at += 2;
	}
	if (config.header_length & 1)
		COPY(__u8, packet, at);
}

static __always_inline void put_be16(__u8 *packet, __u32 offset, __u32 value)
{
	*(__u16 *)(packet + offset) = bpf_htons((__u16)value);
}

/* Writes the last 16 bytes of a packet of this length. */
static __always_inline bool put_stamp(__u8 *packet, __u8 *end, __u32 length, __u64 front,
				      __u64 back)
{
	__u8 *at = packet + ((length - sizeof(struct stamp)) & LENGTH_MASK);

	if (at + sizeof(struct stamp) > end)
		return false;
	*(__u64 *)at = front;
	*(__u64 *)(at + 8) = back;
	return true;
}

static __always_inline __u32 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/*
 * Returns the ones' complement sum of a stamp in host order, for the checksum. At an odd offset,
 * the sum has its bytes swapped (RFC 1071 2 (B)).
 */
static __always_inline __u32 sum_of(const struct stamp *stamp, bool odd)
{
	__u32 front = fold(stamp->front), back = fold(stamp->back);
	__u32 sum = fold(front + back);

	return odd ? sum : bpf_ntohs(sum);
}

SEC("xdp")
int generator(struct xdp_md *ctx)
{
	const volatile struct template *template = &config.templates[0];
	__u32 flow = 0, which = 0;
	struct stamp stamp = {};
	__u8 *packet, *end;

	if (!due())
		return XDP_DROP;
	if (config.slots) {
		__u32 slot = state.slot;
		__u32 *turn = bpf_map_lookup_elem(&schedule, &slot);

		if (!turn)
			return XDP_ABORTED;
		state.slot = slot + 1 < config.slots ? slot + 1 : 0;
		flow = *turn & 0xffff;
		which = *turn >> 16;
		/*
		 * The verifier must see the bound of this register, not of the one that it was
		 * computed from.
		 */
		asm volatile("" : "+r"(which));
		which %= TEMPLATES_MAX;
	} else if (config.flows > 1) {
		flow = state.next_flow;
		state.next_flow = flow + 1 < config.flows ? flow + 1 : 0;
	}
	if (config.count > 1) {
		__u32 longest = config.templates[(config.count - 1) % TEMPLATES_MAX].length;

		template = &config.templates[which];
		/* Each run begins with a frame of the longest template. */
		if (template->length < longest &&
		    bpf_xdp_adjust_tail(ctx, (int)template->length - (int)longest))
			return XDP_ABORTED;
	}
	packet = (__u8 *)(long)ctx->data;
	end = (__u8 *)(long)ctx->data_end;
	if (packet + config.header_length > end)
		return XDP_ABORTED;
	/*
	 * Write the whole header each time: pages are recycled with the bytes that the path under
	 * test left.
	 */
	put_header(packet, template);
	if (config.stamped) {
		/* Clear the old stamp of this page, from a shorter packet. */
#pragma unroll
		for (__u32 other = 0; other + 1 < TEMPLATES_MAX; other++) {
			const volatile struct template *shorter = &config.templates[other];

			if (other + 1 < config.count && other < which &&
			    !put_stamp(packet, end, shorter->length, shorter->behind[0],
				       shorter->behind[1]))
				return XDP_ABORTED;
		}
		stamp = stamp_of(state.trial, state.made, state.timed ? state.now : 0);
		if (!put_stamp(packet, end, template->length, stamp.front, stamp.back))
			return XDP_ABORTED;
	}
	if (config.flows > 1)
		put_be16(packet, config.flow_offset, config.flow_base + flow);
	if (config.checksum_offset && (config.flows > 1 || config.stamped)) {
		/*
		 * RFC 1624: HC' = ~(~HC + ~m + m'). Here m' - m is the number of the flow, and
		 * the stamp in place of zeros.
		 */
		__u32 sum = (~template->checksum_base & 0xffff) + flow;

		if (config.stamped)
			sum += sum_of(&stamp, template->odd);
		sum = ~fold(sum) & 0xffff;
		/* RFC 768: 0 would mean no checksum. */
		put_be16(packet, config.checksum_offset, sum ? sum : 0xffff);
	}
	state.made++;
	return bpf_redirect(config.ifindex, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
