/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* UDP header (RFC 768), and the S-BFD control packet behind it (RFC 7881, RFC 5880 4.1). */
#ifndef SIDESTEP_WIRE_UDP_H
#define SIDESTEP_WIRE_UDP_H

#include "bytes.h"

#define UDP_LENGTH 8
#define UDP_SOURCE_PORT 0
#define UDP_DESTINATION_PORT 2
#define UDP_LENGTH_FIELD 4
#define UDP_CHECKSUM 6

/*
 *   0                   1                   2                   3
 *  +-----+---------+---+-+-+-+-+-+-+---------------+---------------+
 *  |Vers |  Diag   |Sta|P|F|C|A|D|M|  Detect Mult  |    Length     |
 *  +-----+---------+---+-+-+-+-+-+-+---------------+---------------+
 *  |                       My Discriminator                        |
 *  |                      Your Discriminator                       |
 *  |                    Desired Min TX Interval                    |
 *  |                   Required Min RX Interval                    |
 *  |                 Required Min Echo RX Interval                 |
 *  +---------------------------------------------------------------+
 */
#define BFD_LENGTH 24 /* without authentication */
#define BFD_VERSION 0
#define BFD_STATE 1
#define BFD_MULTIPLIER 2
#define BFD_LENGTH_FIELD 3
#define BFD_MY_DISCRIMINATOR 4
#define BFD_YOUR_DISCRIMINATOR 8
#define BFD_MIN_RX 16

#define BFD_VERSION_1 0x20u
#define BFD_VERSION_MASK 0xe0u
#define BFD_DIAG_ADMIN_DOWN 7u

/* The byte at BFD_STATE: state in the first two bits, flags behind it. */
#define BFD_STATE_UP 0xc0u
#define BFD_STATE_ADMIN_DOWN 0x00u
#define BFD_STATE_SHIFT 6
#define BFD_POLL 0x20u
#define BFD_FINAL 0x10u
#define BFD_AUTHENTICATION 0x04u
#define BFD_DEMAND 0x02u
#define BFD_MULTIPOINT 0x01u

/* RFC 5881 4: port of a packet that returns to its sender. */
#define BFD_ECHO_PORT BE16_CONST(3785)
/* RFC 7881 3: port of the reflector. */
#define SBFD_PORT BE16_CONST(7784)

#endif
