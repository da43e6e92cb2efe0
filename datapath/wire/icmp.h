/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ICMP (RFC 792) and ICMPv6 (RFC 4443 2.1) headers: the fields that identify an error.
 *
 *   0               1               2               3
 *  +---------------+---------------+-------------------------------+
 *  |     Type      |     Code      |           Checksum            |
 *  +---------------+---------------+-------------------------------+
 *  |                    depends on the type                        |
 *  +---------------------------------------------------------------+
 *  |    errors: as much of the original packet as fits
 */
#ifndef SIDESTEP_WIRE_ICMP_H
#define SIDESTEP_WIRE_ICMP_H

#define ICMP_LENGTH 8
/* IANA "ICMP Type Numbers": errors except Source Quench (RFC 6633) and Redirect. */
#define ICMP_UNREACHABLE 3
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETER_PROBLEM 12
/* RFC 4443 2.1: lower types are errors. */
#define ICMPV6_INFORMATIONAL 128

#endif
