/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What kernels newer than the oldest supported one have, by value so that older headers serve. */
#ifndef SIDESTEP_NEWER_H
#define SIDESTEP_NEWER_H

/*
 * include/uapi/linux/bpf.h, Linux 6.3: the packet is IPv4 now. IPv6 in IPv6 changes neither the protocol nor the smallest
 * length and needs no flag.
 */
#define SIDESTEP_ADJ_ROOM_DECAP_L3_IPV4 (1ULL << 7)
/* The same: the packet is IPv6 now. */
#define SIDESTEP_ADJ_ROOM_DECAP_L3_IPV6 (1ULL << 8)

#endif
