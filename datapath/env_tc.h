/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* env.h for TC: struct __sk_buff, at ingress. */
#ifndef SIDESTEP_ENV_TC_H
#define SIDESTEP_ENV_TC_H

#include <asm-generic/errno.h>
#include <linux/bpf.h>

#include "newer.h"
#include "wire/bytes.h"
#include "wire/eth.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"

typedef struct __sk_buff ENV;

#include "maps.bpf.h"

#define ENV_EGRESS_FLAGS SIDESTEP_ADJACENCY_VALID
/* Bytes that a shift removed are gone. */
#define ENV_SHIFT_REVERSIBLE 0

/* All that a behavior reads or moves lies in these bytes; a shorter linear part is pulled. */
#define ENV_LINEAR_BYTES 512u

/* Whether the running kernel has that flag: the loader tries it out. */
const volatile __u8 env_decap_l3 SEC(".rodata.env") = 1;

INLINE __u8 *env_data(ENV *e)
{
	return (__u8 *)(long)e->data;
}

INLINE __u8 *env_end(ENV *e)
{
	return (__u8 *)(long)e->data_end;
}

INLINE __u32 env_length(ENV *e)
{
	return e->len;
}

INLINE __u32 env_ifindex(ENV *e)
{
	return e->ifindex;
}

INLINE _Bool env_tagged(ENV *e)
{
	return e->vlan_present;
}

INLINE int env_linear(ENV *e)
{
	__u32 linear = (__u32)(e->data_end - e->data);
	__u32 want = e->len < ENV_LINEAR_BYTES ? e->len : ENV_LINEAR_BYTES;

	return linear < want ? bpf_skb_pull_data(e, want) : 0;
}

/*
 * Before Linux 6.3: IPv6 around IPv4 without the flag. The packet stays IPv6 until only 20 bytes too many are left, the
 * difference between the smallest headers of both, which the translation from one to the other takes. It needs an IPv6
 * skb of its own whose headers are linear, and after the first step, which alone may be refused, it has that.
 */
INLINE int env_decap4_by_translation(ENV *e, int delta)
{
	int excess = IPV6_LENGTH - IPV4_LENGTH;

	if (bpf_skb_adjust_room(e, excess - delta, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO) < 0)
		return -1;
	return (int)bpf_skb_change_proto(e, ETHERTYPE_IPV4, 0);
}

/*
 * An skb that was encapsulated before, perhaps by another node on this machine, stays marked as such when its outer header
 * is taken off: the kernel then refuses to note a second encapsulation (bpf_skb_net_grow). What it noted is still right:
 * the inner headers are where they were, and the segments are still to be cut inside. Only the protocol may be that of the
 * packet without outer header; it changes when bytes are taken off, so there are more of them at first.
 */
INLINE int env_encap_again(ENV *e, int delta)
{
	int excess = e->protocol == ETHERTYPE_IPV6 ? 0 : IPV6_LENGTH;

	if (excess && !env_decap_l3)
		return -1;
	if (bpf_skb_adjust_room(e, excess - delta, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO) < 0)
		return -1;
	if (!excess)
		return 0;
	return (int)bpf_skb_adjust_room(e, -excess, BPF_ADJ_ROOM_MAC,
					BPF_F_ADJ_ROOM_FIXED_GSO | SIDESTEP_ADJ_ROOM_DECAP_L3_IPV6);
}

/*
 * bpf_skb_adjust_room takes IP only, by what the kernel noted of the frame's type. A tag that is taken out of the frame
 * makes it read the type again: one goes in (two, since the first is kept beside the frame), and out again. By then the
 * Ethernet header says what it will say of the frame when it has grown; the caller writes it anew.
 */
INLINE int env_as_ipv6(ENV *e)
{
	__u8 *eth = env_data(e);

	if (e->protocol == ETHERTYPE_IPV4 || e->protocol == ETHERTYPE_IPV6)
		return 0;
	if (eth + ETH_LENGTH > env_end(e))
		return -1;
	store16(eth + ETH_TYPE, ETHERTYPE_IPV6);
	for (int i = 0; i < 2; i++) {
		if (bpf_skb_vlan_push(e, ETHERTYPE_VLAN, 1) < 0)
			return -1;
	}
	for (int i = 0; i < 2; i++) {
		if (bpf_skb_vlan_pop(e) < 0)
			return -1;
	}
	return 0;
}

/*
 * bpf_skb_adjust_room works right behind the Ethernet header and keeps the segmentation and checksum state of the skb
 * in step. FIXED_GSO: the segment size is the sender's business; what does not fit the MTU was left to the kernel
 * before.
 */
INLINE int env_shift(ENV *e, int delta, enum env_shift how)
{
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO;
	int refused;

	if (how == ENV_SHIFT_DECAP4 && !env_decap_l3)
		return env_decap4_by_translation(e, delta);
	if (how == ENV_SHIFT_ENCAP_L2 && env_as_ipv6(e) < 0)
		return -1;
	if (how == ENV_SHIFT_ENCAP)
		flags |= BPF_F_ADJ_ROOM_ENCAP_L3_IPV6;
	else if (how == ENV_SHIFT_ENCAP_L2)
		flags |= BPF_F_ADJ_ROOM_ENCAP_L3_IPV6 | BPF_F_ADJ_ROOM_ENCAP_L2(ETH_LENGTH) |
			 BPF_F_ADJ_ROOM_ENCAP_L2_ETH;
	else if (how == ENV_SHIFT_DECAP4)
		flags |= SIDESTEP_ADJ_ROOM_DECAP_L3_IPV4;
	refused = (int)bpf_skb_adjust_room(e, -delta, BPF_ADJ_ROOM_MAC, flags);
	if (unlikely(refused == -EALREADY) && (how == ENV_SHIFT_ENCAP || how == ENV_SHIFT_ENCAP_L2))
		return env_encap_again(e, delta);
	return refused;
}

INLINE int env_trim(ENV *e, __u32 length)
{
	return (int)bpf_skb_change_tail(e, length, 0);
}

INLINE __u32 env_segment_size(ENV *e)
{
	return e->gso_size;
}

/* Bytes of the frame, also of one in pieces: for env_copy_head. `length` is not 0. */
INLINE int env_copy(ENV *e, __u32 offset, void *to, __u32 length)
{
	return (int)bpf_skb_load_bytes(e, offset, to, length);
}

#endif
