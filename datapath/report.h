/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reports: copies of packets that the packet path hands to the control plane. The control plane
 * sends ICMP errors from them (crates/control/src/icmp), collects packets with the O-flag
 * (oam.h), and fragments packets (fragment.h). All of these are rare, so the packet path only copies
 * the packet and names the reason.
 */
#ifndef SIDESTEP_REPORT_H
#define SIDESTEP_REPORT_H

#include "abi.h"

/*
 * LIMIT: bytes of a packet in a report, enough for an echo request in a jumbo frame. Errors quote
 * less.
 */
#define SIDESTEP_REPORT_BYTES 16384
/* LIMIT: bytes of a packet that is copied for the O-flag. */
#define SIDESTEP_COPY_BYTES 2048
/* LIMIT: bytes of the ring with reports for the control plane. */
#define SIDESTEP_REPORT_RING (1u << 21)

/* Kind of a report. Each kind has its own token buckets. */
enum sidestep_report_kind {
	SIDESTEP_REPORT_ERROR = 0,    /* an ICMP error for the source */
	SIDESTEP_REPORT_COPY = 1,     /* a copy for the O-flag at a SID (RFC 9259 2.1.1) */
	SIDESTEP_REPORT_FRAGMENT = 2, /* a finished frame to send in fragments */
};
/* Token buckets: by kind, and then by the port's slot. */
#define SIDESTEP_REPORT_RATES (3 * SIDESTEP_PORTS)

/*
 * One report. The packet is the IP packet that was the current one, as it arrived. Or it is the frame
 * that an ether device encapsulates, with .frame. For FRAGMENT it is the whole frame as it would
 * leave.
 */
struct sidestep_report {
	__u64 time;    /* nanoseconds (monotonic clock) */
	__u32 ifindex; /* ingress */
	__u32 kind;    /* enum sidestep_report_kind */
	__u32 reason;  /* enum sidestep_reason; 0 for a copy */
	/*
	 * too_big: the MTU for the packet, or for the frame behind its Ethernet header. Copy: Segments Left before the SID. Fragment: the egress
	 * MTU. Else: offset of the field in error.
	 */
	__u32 value;
	__u32 proto; /* type of the header that was processed last */
	/* FIB view of the last lookup, for a packet from an encapsulation; else 0. */
	sidestep_view_id view;
	__u32 egress;                       /* FRAGMENT: egress interface */
	__u32 frame;                        /* 1: .packet is the frame of an ether device */
	__u32 length;                       /* bytes of the packet */
	__u32 bytes;                        /* valid bytes of .packet */
	__u8 destination[16];               /* key of the last lookup, the SID, in network order */
	__u8 packet[SIDESTEP_REPORT_BYTES]; /* the first .bytes are valid */
};

/*
 * Token bucket of a port (RFC 4443 2.4(f)): one report per .interval, and a burst that .credit
 * bounds. The control plane writes the first two fields, the packet path the others.
 */
struct sidestep_report_rate {
	__u64 interval;   /* nanoseconds; 0 disables reports */
	__u64 credit;     /* nanoseconds: .interval times the burst size */
	__u64 next;       /* earliest time of the next report, in nanoseconds (monotonic clock) */
	__u64 suppressed; /* reports without a token or without room in the ring */
};

SIDESTEP_ASSERT_SIZE(struct sidestep_report, 8 + 10 * 4 + 16 + SIDESTEP_REPORT_BYTES);
SIDESTEP_ASSERT_SIZE(struct sidestep_report_rate, 32);

#endif
