/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* env.h for TC ingress: struct __sk_buff. */
#ifndef SIDESTEP_ENV_TC_H
#define SIDESTEP_ENV_TC_H

#include <asm-generic/errno.h>
#include <linux/bpf.h>

#include "deferred.h"
#include "newer.h"
#include "wire/bytes.h"
#include "wire/eth.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"

typedef struct __sk_buff ENV;

#include "maps.bpf.h"

#define ENV_EGRESS_FLAGS SIDESTEP_ADJACENCY_VALID
/* Removed bytes are lost. */
#define ENV_SHIFT_REVERSIBLE 0

/* Bytes that the packet path may read or move; a shorter linear part is pulled up to here. */
#define ENV_LINEAR_BYTES 512u

/* True if the kernel has that flag. The loader probes it. */
const volatile __u8 env_decap_l3 SEC(".rodata.env") = 1;
/* True for the program behind XDP. The gate (gate.bpf.c) leaves it the frames that XDP deferred. */
const volatile __u8 env_behind_xdp SEC(".rodata.env") = 0;

#define ENV_DEFERRED env_behind_xdp

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

INLINE __u32 env_vlan(ENV *e)
{
	return e->vlan_tci;
}

INLINE _Bool env_take_mark(ENV *e)
{
	_Bool marked = e->mark == SIDESTEP_SEGMENT_MARK;

	if (marked)
		e->mark = 0;
	return marked;
}

/*
 * The kernel keeps one tag outside the frame (skb->vlan_tci). Pushing another tag moves the first
 * one into the frame. env_as_ipv6() removes the other tag.
 */
INLINE int env_tag_into_frame(ENV *e)
{
	return (int)bpf_skb_vlan_push(e, ETHERTYPE_VLAN, 1);
}

INLINE int env_tag_resize(ENV *e, _Bool push, __u16 id)
{
	/* The one that env_tag_into_frame() has pushed. */
	if (env_tagged(e) && bpf_skb_vlan_pop(e) < 0)
		return -1;
	if ((push ? bpf_skb_vlan_push(e, ETHERTYPE_VLAN, id) : bpf_skb_vlan_pop(e)) < 0)
		return -1;
	return env_tagged(e) ? env_tag_into_frame(e) : 0;
}

INLINE _Bool env_defer(ENV *e)
{
	return 0;
}

/* Removes the mark of a frame that XDP deferred, which other programs may see. */
INLINE void env_remove_mark(ENV *e)
{
	__u64 *mark = deferred_mark(e);

	if (mark)
		*mark = 0;
}

INLINE _Bool env_is_linear(ENV *e)
{
	__u32 linear = (__u32)(e->data_end - e->data);

	return linear >= e->len || linear >= ENV_LINEAR_BYTES;
}

INLINE int env_pull(ENV *e)
{
	return (int)bpf_skb_pull_data(e, e->len < ENV_LINEAR_BYTES ? e->len : ENV_LINEAR_BYTES);
}

/*
 * For Linux before 6.3, which has no flag for IPv4 within IPv6. Shrinks the packet as IPv6,
 * except for 20 bytes: the difference of the header sizes, which bpf_skb_change_proto removes.
 * That helper needs an unshared IPv6 skb with linear headers, which the first step ensures. Only
 * the first step can be refused.
 */
INLINE int env_decap4_by_translation(ENV *e, int delta)
{
	int excess = IPV6_LENGTH - IPV4_LENGTH;

	if (bpf_skb_adjust_room(e, excess - delta, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO) < 0)
		return -1;
	return (int)bpf_skb_change_proto(e, ETHERTYPE_IPV4, 0);
}

/*
 * An skb that was encapsulated before keeps that mark when its outer header is removed. The
 * kernel then refuses to record a second encapsulation (bpf_skb_net_grow). The recorded state is
 * still right: the inner headers and the segments are unchanged.
 *
 * Only the recorded protocol may still be that of the inner packet, and it must become IPv6. Only
 * a shrink with a flag changes it, so this code grows the packet too much and then shrinks it.
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
 * bpf_skb_adjust_room accepts IP only, by the recorded protocol of the skb. Popping a VLAN tag from
 * the frame makes the kernel read the type again. Two tags are pushed, since the first is kept
 * outside the frame, and popped. The Ethernet header has the type of the grown frame meanwhile; the
 * caller writes it again.
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
	/* The tag that env_tag_into_frame() has pushed. */
	return env_tagged(e) ? (int)bpf_skb_vlan_pop(e) : 0;
}

/*
 * bpf_skb_adjust_room works directly behind the Ethernet header and keeps segmentation and checksum
 * state consistent. FIXED_GSO keeps the sender's segment size. Packets that exceed the MTU were
 * punted before.
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

/* The helper leaves a checksum that the egress device completes as it is. */
INLINE int env_update_checksum(ENV *e, __u32 offset, __u32 from, __u32 to)
{
	return (int)bpf_l4_csum_replace(e, offset, from, to, BPF_F_MARK_MANGLED_0 | sizeof(from));
}

INLINE __u32 env_segment_size(ENV *e)
{
	return e->gso_size;
}

/* Copies bytes, also from a fragmented frame, for env_copy_head. `length` is not 0. */
INLINE int env_copy(ENV *e, __u32 offset, void *to, __u32 length)
{
	return (int)bpf_skb_load_bytes(e, offset, to, length);
}

#endif
