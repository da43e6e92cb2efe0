/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Probes optional features of the running kernel with BPF_PROG_TEST_RUN. Not part of the packet
 * path, and never attached.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "newer.h"

/*
 * Runs on IPv4 in IPv6 (40 bytes of header). Returns 0 if the kernel accepts the flag for inner
 * IPv4.
 */
SEC("tc")
int sidestep_decap(struct __sk_buff *skb)
{
	return (int)bpf_skb_adjust_room(skb, -40, BPF_ADJ_ROOM_MAC,
					BPF_F_ADJ_ROOM_FIXED_GSO | SIDESTEP_ADJ_ROOM_DECAP_L3_IPV4);
}

char _license[] SEC("license") = "Dual BSD/GPL";
