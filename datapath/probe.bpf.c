/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What tries out by BPF_PROG_TEST_RUN whether the running kernel has something that the packet path can also do without.
 * Not part of the packet path; attached nowhere.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "newer.h"

/* Run on IPv4 in IPv6 (40 bytes of header). 0: the kernel takes the flag that says that IPv4 is inside. */
SEC("tc")
int sidestep_decap(struct __sk_buff *skb)
{
	return (int)bpf_skb_adjust_room(skb, -40, BPF_ADJ_ROOM_MAC,
					BPF_F_ADJ_ROOM_FIXED_GSO | SIDESTEP_ADJ_ROOM_DECAP_L3_IPV4);
}

char _license[] SEC("license") = "Dual BSD/GPL";
