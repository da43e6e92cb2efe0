/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the packet path tells the control plane of a packet whose sender has to hear of it: the control plane makes the ICMP
 * message and sends it (crates/control/src/icmp). Errors are rare and slow; the path only says which, and copies the packet.
 * Packets with the O-flag are copied in the same way (oam.h).
 */
#ifndef SIDESTEP_REPORT_H
#define SIDESTEP_REPORT_H

#include "abi.h"

/* LIMIT: bytes of a packet that are reported: an echo request in a jumbo frame whole. Errors quote fewer. */
#define SIDESTEP_REPORT_BYTES 16384
/* LIMIT: bytes of a copy for the O-flag. */
#define SIDESTEP_COPY_BYTES 2048
/* LIMIT: bytes of the ring of reports that wait for the control plane. */
#define SIDESTEP_REPORT_RING (1u << 21)

/* Why a packet is reported. Each has its token buckets. */
enum sidestep_report_kind {
	SIDESTEP_REPORT_ERROR = 0, /* its sender has to be told */
	SIDESTEP_REPORT_COPY = 1, /* RFC 9259 2.1.1: the O-flag at a SID */
};
/* Token buckets: of errors by the port's slot, then those of copies. */
#define SIDESTEP_REPORT_RATES (2 * SIDESTEP_PORTS)

/* One packet, as it arrived: the IP packet that was the current one when its way ended. */
struct sidestep_report {
	__u64 time; /* nanoseconds of the kernel's monotonic clock */
	__u32 ifindex; /* ingress */
	__u32 kind; /* enum sidestep_report_kind */
	__u32 reason; /* enum sidestep_reason; of a copy 0 */
	__u32 value; /* of too_big: the MTU for that packet; of a copy: Segments Left before the SID; else the offset of what is wrong */
	__u32 proto; /* of the header that was looked at last */
	__u32 view; /* of a packet from inside an encapsulation: FIB view of its lookup; else 0 */
	__u32 length; /* of the packet */
	__u32 bytes; /* of .packet */
	__u8 destination[16]; /* network order: that of the last lookup, the SID that the packet came to */
	__u8 packet[SIDESTEP_REPORT_BYTES]; /* .bytes of them */
};

/*
 * RFC 4443 2.4(f): a token bucket for each port: one report each .interval, and after a silence of .credit some at once. The
 * first two are the control plane's, the others the packet path's.
 */
struct sidestep_report_rate {
	__u64 interval; /* nanoseconds; 0: no reports */
	__u64 credit; /* nanoseconds */
	__u64 next; /* no report before this time of the kernel's monotonic clock */
	__u64 suppressed; /* reports that there was no token for, or no room in the ring */
};

SIDESTEP_ASSERT_SIZE(struct sidestep_report, 8 + 8 * 4 + 16 + SIDESTEP_REPORT_BYTES);
SIDESTEP_ASSERT_SIZE(struct sidestep_report_rate, 32);

#endif
