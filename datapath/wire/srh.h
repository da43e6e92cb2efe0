/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Segment Routing Header (RFC 8754 2).
 *
 *   0                   1                   2                   3
 *  +---------------+---------------+---------------+---------------+
 *  |  Next Header  |  Hdr Ext Len  | Routing Type 4| Segments Left |
 *  +---------------+---------------+---------------+---------------+
 *  |  Last Entry   |     Flags     |              Tag              |
 *  +---------------+---------------+-------------------------------+
 *  |           Segment List[0] (16 bytes): the last segment        |
 *  |                              ...                              |
 *  |           Segment List[Last Entry]: the first segment         |
 *  |                        optional TLVs                          |
 *  +---------------------------------------------------------------+
 *
 * Hdr Ext Len counts 8-byte units after the first 8 bytes. A reduced SRH (RFC 8754 4.1.1) has the
 * first segment only in the destination address, so Segments Left may be Last Entry + 1.
 */
#ifndef SIDESTEP_WIRE_SRH_H
#define SIDESTEP_WIRE_SRH_H

#include "bytes.h"

#define SRH_NEXT_HEADER 0
#define SRH_HDR_EXT_LEN 1
#define SRH_ROUTING_TYPE 2
#define SRH_SEGMENTS_LEFT 3
#define SRH_LAST_ENTRY 4
#define SRH_FLAGS 5
#define SRH_SEGMENTS 8
#define SEGMENT_LENGTH 16

/* IANA "IPv6 Routing Types". */
#define ROUTING_TYPE_SRH 4

/* SR6_FLAG1_HMAC of Linux (include/uapi/linux/seg6.h): the SRH ends with an HMAC TLV. */
#define SRH_FLAG_HMAC 0x08

/* RFC 9259 2.1: the O-flag. IANA "Segment Routing Header Flags", bit 2. */
#define SRH_FLAG_OAM 0x20

/* IANA "Segment Routing Header TLVs". */
#define SRH_TLV_PAD1 0
#define SRH_TLV_PADN 4
#define SRH_TLV_HMAC 5

#endif
