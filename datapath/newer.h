/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Constants of kernels that are newer than the oldest supported one, so that older headers suffice.
 */
#ifndef SIDESTEP_NEWER_H
#define SIDESTEP_NEWER_H

/*
 * include/uapi/linux/bpf.h, Linux 6.3: the packet becomes IPv4. IPv6 in IPv6 needs no flag, as
 * protocol and minimum length do not change.
 */
#define SIDESTEP_ADJ_ROOM_DECAP_L3_IPV4 (1ULL << 7)
/* Linux 6.3: the packet becomes IPv6. */
#define SIDESTEP_ADJ_ROOM_DECAP_L3_IPV6 (1ULL << 8)

#endif
