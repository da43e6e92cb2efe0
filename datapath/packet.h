/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One packet on its way: what is known of it, and what is planned for it.
 *
 * Until the verdict is Forward nothing is written. Behaviors read the packet and write their intent here; rewrite.h
 * carries it out at the end, in one pass. So a packet that turns out to be the kernel's, or a drop, is still the packet
 * that arrived.
 */
#ifndef SIDESTEP_PACKET_H
#define SIDESTEP_PACKET_H

#include "env.h"

/* packet.plan */
#define PLAN_DESTINATION 0x01u   /* .destination is a new destination address */
#define PLAN_SEGMENTS_LEFT 0x02u /* .segments_left is new, at .srh */
#define PLAN_POP 0x04u           /* remove the SRH at .srh */
#define PLAN_STRIP 0x08u         /* everything before .l3 goes */
#define PLAN_PUSH 0x10u          /* apply .policy */
#define PLAN_FRAME 0x20u         /* .l3 - 14 is an inner Ethernet header: send that frame as it is */
#define PLAN_ECN 0x40u           /* .ecn is new */
#define PLAN_RESTORE 0x80u       /* with PLAN_PUSH: not a policy, but the learned headers .policy */
#define PLAN_ENCAP_FRAME 0x100u        /* with PLAN_PUSH: around the frame that arrived, not around the packet in it */
#define PLAN_LAST_SEGMENT 0x200u /* the destination that the packet has becomes Segment List[0] of the SRH at .srh */

struct packet {
	struct address destination; /* of the current header, as it will be; the key of the next lookup */
	struct address inserted;    /* H.Insert: the destination that becomes Segment List[0] */
	__u32 view;                 /* FIB view of the next lookup; 0: the next hop came without one */
	__u32 view4, view6;         /* the ingress port's */
	__u32 port_flags;
	__u32 frame_length; /* of the frame: as it arrived, then as it leaves */
	__u32 end;        /* one past the last byte of the current packet; what follows is padding */
	__u32 l3;         /* offset of the current IP header */
	__u32 cursor;     /* offset of the next header to look at in its chain */
	__u32 srh;        /* offset of the active SRH, 0: none yet */
	__u32 srh_length; /* bytes */
	__u32 srh_link;   /* offset of the Next Header field that announces the SRH */
	__u32 link;       /* offset of the Next Header field that announces .cursor */
	__u32 policy;     /* index of the headend's policy, or of learned headers */
	__u32 restored;   /* bytes of those */
	__u64 learned;    /* and their version */
	__u32 plan;       /* PLAN_* */
	__u32 visits;     /* routes applied so far */
	__u32 visited[SIDESTEP_STEPS_MAX + 1]; /* their counter slots */
	__u16 hmac_keys;   /* FIB view of HMAC key ids; 0: there is no key */
	__u16 hmac_srh;    /* offset of the SRH whose HMAC is to be verified; 0: none */
	__u16 hmac_length; /* of that SRH */
	__u16 hmac_source; /* offset of its source address */
	__u8 proto;       /* what is at .cursor */
	__u8 version;     /* of the current IP header: 4, 6; of a frame that carries none: 0 */
	__u8 hop_limit;   /* of the current header, as it arrived: hop limit or TTL */
	__u8 segments_left;
	__u8 ecn;         /* of the current header, as it will be */
	__u8 outer_proto; /* what the last decapsulation found: 4, 41, 143 */
	__u8 sidestep_only;        /* a route was applied that the kernel does not have */
	__u8 last_sidestep_only;   /* the last one was */
	__u8 check_source; /* an IPv4 packet whose source the ingress port's reverse path filter judges */
	__u8 frame;       /* a service sent back a frame: what is in it does not count */
	__u8 srh_seen;     /* a routing header was met, even if its Segments Left is 0 */
	__u8 srh_missing;    /* came back from a service behind End.AM without an SRH, and is hardly its own */
	__u8 csid_length; /* REPLACE-C-SID: bytes of a C-SID (2, 4) while such a SID looks for its SRH; else 0 */
	__u8 csid_index;  /* and DA.Arg.Index */
	__u8 hmac_key;    /* index of the key that signs what was inserted; 0: none */
	__u8 authentic;   /* the SRH that was read last has a right HMAC */
	__u32 max_length;       /* of a packet that is too big: the length that would not have been */
};

/*
 * Verdict = Lookup | Forward(adjacency) | Punt(why) | Drop(reason). Kind in the top byte, argument below it.
 * Local is Punt(local); whether the sender is told of a Drop is not part of it (icmp.h).
 */
typedef __u32 verdict;

#define VERDICT_LOOKUP 0x01000000u /* in packet.view, of packet.destination */
#define VERDICT_FORWARD 0x02000000u
#define VERDICT_PUNT 0x03000000u
#define VERDICT_DROP 0x04000000u
#define VERDICT_ULTIMATE 0x05000000u /* within End: nothing is left of the segment list */
#define VERDICT_CONTINUE 0u /* no verdict yet: go on */

#define VERDICT_KIND(v) ((v) & 0xff000000u)
#define VERDICT_ARGUMENT(v) ((v) & 0x00ffffffu)

#define lookup() VERDICT_LOOKUP
#define forward(adjacency) (VERDICT_FORWARD | (adjacency))
#define punt(name) (VERDICT_PUNT | PUNT_##name)
#define drop(name) (VERDICT_DROP | DROP_##name)

#endif
