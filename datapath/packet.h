/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One packet during processing: the headers that were read, and the rewrite that is planned.
 *
 * Behaviors read the packet and record their changes in .plan; rewrite.h carries out the plan in
 * one pass after the verdict Forward. A packet that is punted or dropped therefore keeps the bytes
 * that it arrived with. commit.h and hand_over() (punt.h) are the two exceptions.
 */
#ifndef SIDESTEP_PACKET_H
#define SIDESTEP_PACKET_H

#include "env.h"

/* packet.plan */
#define PLAN_DESTINATION 0x01u   /* write .destination as the destination address */
#define PLAN_SEGMENTS_LEFT 0x02u /* write .segments_left into the SRH at .srh */
#define PLAN_POP 0x04u           /* remove the bytes at .pop: one or more SRHs */
#define PLAN_STRIP 0x08u         /* remove all headers before .l3 */
#define PLAN_PUSH 0x10u          /* apply .policy */
#define PLAN_FRAME 0x20u         /* send the inner Ethernet frame at .l3 - 14 unmodified */
#define PLAN_ECN 0x40u           /* write .ecn */
#define PLAN_RESTORE 0x80u       /* with PLAN_PUSH: .policy is a record of learned headers */
#define PLAN_ENCAP_FRAME 0x100u  /* with PLAN_PUSH: encapsulate the frame, not its packet */
#define PLAN_LAST_SEGMENT 0x200u /* copy the current destination to Segment List[0] at .srh */
#define PLAN_REFLECT 0x400u      /* exchange the ends of an S-BFD probe (liveness.h) */
/* with PLAN_REFLECT: answer that the reflector is down by configuration */
#define PLAN_REFLECT_ADMIN_DOWN 0x800u

/* packet.port_flags, beside those of the port */
#define PORT_PROBES 0x80000000u /* the packet tests its way, which may be down */

/* packet.last */
#define LAST_SIDESTEP_ONLY 1u /* the kernel does not have the route */
#define LAST_PUNTS 2u         /* it leaves the rest to the kernel (SIDESTEP_ROUTE_PUNT) */

/* packet.taken */
#define TAKEN_HEADEND 1u   /* a headend was applied */
#define TAKEN_WRITTEN 2u   /* a push was carried out (commit.h): those bytes are gone */
#define TAKEN_REFLECTED 4u /* an S-BFD probe becomes its answer */

/* HMAC of the SRH (hmac/state.h). */
struct packet_hmac {
	__u16 keys;     /* FIB view of HMAC Key IDs; 0: no key is configured */
	__u16 srh;      /* offset of the SRH to verify; 0: none */
	__u16 length;   /* bytes of that SRH */
	__u16 source;   /* offset of its source address */
	__u8 key;       /* index of the key that signs an inserted SRH; 0: none */
	__u8 authentic; /* the HMAC of the last SRH was verified */
};

/* The REPLACE-C-SID that currently looks for its SRH (behavior/replace_csid.h). */
struct packet_csid {
	__u8 length; /* bytes of a C-SID: 2 or 4; 0: the SID does not have this flavor */
	__u8 index;  /* DA.Arg.Index */
};

/* The groups are ordered so that the structure has no padding. */
struct packet {
	/* The current header (read/ip.h). Offsets count from the start of the frame. */
	struct address destination; /* after the plan; also the key of the next lookup */
	__u32 l3;                   /* offset of the IP header */
	__u32 end;                  /* offset of the end of the packet; padding follows */
	__u32 cursor;               /* offset of the next header to process */
	__u32 link;                 /* offset of the Next Header field that announces .cursor */
	__u32 frame_length;         /* bytes of the frame, as received and then as sent */
	__u8 proto;                 /* type of the header at .cursor */
	__u8 version;               /* 4 or 6; 0: a frame without an IP packet */
	__u8 hop_limit;             /* hop limit or TTL, before the plan */
	__u8 ecn;                   /* after the plan */

	/* The active SRH (read/ext.h). Offsets of headers are at most OFFSET_MAX. */
	__u16 srh;        /* offset; 0: none, or removed by the plan */
	__u16 srh_length; /* bytes */
	__u16 srh_link;   /* offset of the Next Header field that announces it */

	/* PLAN_POP (pop.h). */
	__u16 pop;        /* offset */
	__u16 pop_length; /* bytes */
	__u16 pop_link;   /* offset of the Next Header field that announces them */

	__u8 srh_seen; /* a routing header was read, whatever its Segments Left */
	__u8 segments_left;
	struct packet_csid csid;
	struct packet_hmac hmac;

	/* The ingress port. */
	__u8 check_source; /* the reverse path filter applies to the IPv4 source */
	__u8 pop_next;     /* PLAN_POP: type of the header behind the removed bytes */
	__u32 port_flags;  /* SIDESTEP_PORT_* */
	__u32 view4, view6;

	/* The plan. */
	struct address inserted; /* H.Insert: the address that becomes Segment List[0] */
	__u32 plan;              /* PLAN_* */
	__u32 policy;            /* index of a policy, or of learned headers with PLAN_RESTORE */

	/* Routing (step.h). */
	__u32 view;                            /* FIB view of the next lookup; 0: none is needed */
	__u32 visited[SIDESTEP_STEPS_MAX + 1]; /* counter slots of the routes applied */
	__u8 visits;                           /* number of routes applied */
	/* Local SIDs that decrement the hop limit of the current header (hop_limit_take). */
	__u8 hops;
	/* A Sidestep-only route was applied, or a push was carried out (commit.h). */
	__u8 sidestep_only;
	__u8 last;        /* LAST_*: of the last applied route */
	__u32 max_length; /* of a packet that is too big: the length that fits */

	/* Return path of an SR proxy (service_return.h). */
	__u8 frame;       /* a service returned this frame; the packet in it is not processed */
	__u8 srh_missing; /* returned to End.AM without an SRH, not from the service itself */
	/* Routing (step.h) */
	__u8 taken;     /* TAKEN_*: the kernel never gets the packet as it arrived */
	__u8 options;   /* the current header may have options that concern every route */
	__u16 restored; /* PLAN_RESTORE: bytes of the learned headers */
	__u16 tag;      /* change of the outermost VLAN tag of the frame: SIDESTEP_TAG_* */
	__u64 learned;  /* PLAN_RESTORE: version of the learned headers */
};
_Static_assert(sizeof(struct packet) == 152, "the stack of the BPF programs is limited");

/*
 * Verdict of a packet: kind in the top byte, argument below it. An ICMP error for a dropped packet
 * is not part of the verdict (icmp.h).
 */
typedef __u32 verdict;

#define VERDICT_CONTINUE 0u              /* no verdict yet */
#define VERDICT_LOOKUP 0x01000000u       /* look up packet.destination in packet.view */
#define VERDICT_FORWARD 0x02000000u      /* argument: adjacency */
#define VERDICT_PUNT 0x03000000u         /* argument: reason */
#define VERDICT_DROP 0x04000000u         /* argument: reason */
#define VERDICT_ULTIMATE 0x05000000u     /* within End: no segment is left */
#define VERDICT_AUTHENTICATE 0x06000000u /* run the behavior's second phase (endpoint.h) */

#define VERDICT_KIND(v) ((v) & 0xff000000u)
#define VERDICT_ARGUMENT(v) ((v) & 0x00ffffffu)

#define lookup() VERDICT_LOOKUP
#define forward(adjacency) (VERDICT_FORWARD | (adjacency))
#define punt(name) (VERDICT_PUNT | PUNT_##name)
#define drop(name) (VERDICT_DROP | DROP_##name)

/* RFC 8200 3, RFC 1812 5.3.1: a packet with hop limit (TTL) 1 or 0 is not forwarded. */
INLINE verdict hop_limit_check(const struct packet *p)
{
	return p->hop_limit <= 1 ? punt(hop_limit_exceeded) : VERDICT_CONTINUE;
}

/*
 * RFC 8986 4.1 S05 and S12: each SID that moves the packet to the next segment decrements the hop
 * limit. Linux does so only once for all SIDs of the node, and not before a local SID that
 * decapsulates, so an expired packet is not punted.
 */
INLINE verdict hop_limit_take(struct packet *p)
{
	p->hops++;
	return p->hop_limit <= p->hops ? drop(hop_limit) : VERDICT_CONTINUE;
}

/* Decrement of the hop limit when the packet leaves. After a SID, forwarding adds none (S15). */
INLINE __u8 hop_limit_decrement(const struct packet *p)
{
	return p->hops ? p->hops : 1;
}

#endif
