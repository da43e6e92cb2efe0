/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ICMP (RFC 792) and ICMPv6 (RFC 4443 2.1) headers, as far as an error is told from what is none.
 *
 *   0               1               2               3
 *  +---------------+---------------+-------------------------------+
 *  |     Type      |     Code      |           Checksum            |
 *  +---------------+---------------+-------------------------------+
 *  |                     of the type                               |
 *  +---------------------------------------------------------------+
 *  |    of an error: the packet that it is about, as far as it fits
 */
#ifndef SIDESTEP_WIRE_ICMP_H
#define SIDESTEP_WIRE_ICMP_H

#define ICMP_LENGTH 8
/* IANA "ICMP Type Numbers": the errors but for Source Quench (RFC 6633) and Redirect, which is no answer to a sender. */
#define ICMP_UNREACHABLE 3
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETER_PROBLEM 12
/* RFC 4443 2.1: types below are errors. */
#define ICMPV6_INFORMATIONAL 128

#endif
