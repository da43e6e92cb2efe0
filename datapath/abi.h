/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every structure that the packet path shares with the control plane. The Rust side is generated from this file at
 * build time. Change anything and SIDESTEP_ABI_VERSION must change too: pinned maps carry it, and a daemon never
 * adopts maps of another version.
 *
 * Byte order: host order unless a comment says network order. Records are never changed while a packet may read them,
 * except by one aligned 8-byte store (see ARCHITECTURE.md, "Publishing").
 */
#ifndef SIDESTEP_ABI_H
#define SIDESTEP_ABI_H

#include <linux/types.h>

#include "reason.h"

#define SIDESTEP_ABI_VERSION 12

/* LIMIT: segments in one SRH that a headend writes. */
#define SIDESTEP_SEGMENTS_MAX 16
/* LIMIT: ports are found by the low bits of their interface index; two ports must not share them. */
#define SIDESTEP_PORTS 4096
/* LIMIT: behaviors that one packet may meet at this node (RFC 8754 4.3.1 allows local processing to repeat). */
#define SIDESTEP_STEPS_MAX 4
/* Values that a DSCP can have (RFC 2474 3). */
#define SIDESTEP_DSCPS 64
/*
 * LIMIT: next hops of one route, segment lists of one candidate path; a weight is exact where the weights sum up to this or
 * less.
 */
#define SIDESTEP_GROUP_SLOTS 256
/*
 * Records of SOURCE and NEXT that one lookup meets: rules by source address, the tables they name, their routes by source
 * address; then the tables that follow, and their routes by source address.
 */
#define SIDESTEP_INDIRECT_MAX 5
/* LIMIT: extension headers followed in one IPv6 packet, routing headers included. */
#define SIDESTEP_EXT_HEADERS_MAX 6
/* LIMIT: TLVs looked at in one SRH. */
#define SIDESTEP_TLVS_MAX 8
/* LIMIT: bytes of Hop-by-Hop options looked at. */
#define SIDESTEP_HBH_OPTIONS_MAX 16

/* LIMIT: dynamic SR proxies (End.AD). */
#define SIDESTEP_LEARNED 1024
/* LIMIT: bytes of outer headers that a dynamic proxy learns: the IPv6 header and all extension headers, with TLVs. */
#define SIDESTEP_LEARNED_MAX 384
/* How many learned headers a proxy keeps, for packets that are reading the older ones; a power of two. */
#define SIDESTEP_LEARNED_SLOTS 4

/* LIMIT: services whose dynamic proxies learn by flow (`flows`). */
#define SIDESTEP_FLOW_TABLES 16
/* LIMIT: flows of one such service; a power of two. */
#define SIDESTEP_FLOWS 8192
/* Flows that share a place in the table: the one that was longest without a packet makes room for a new one. */
#define SIDESTEP_FLOW_WAYS 8
/* LIMIT: records of learned headers that the flows of one service share; each keeps the last three chains in it. */
#define SIDESTEP_HEADER_SETS 256
/* Records that share a place among those. */
#define SIDESTEP_HEADER_SET_WAYS 8

/* LIMIT: HMAC keys. */
#define SIDESTEP_HMAC_KEYS 255
/* LIMIT: segments in an SRH that an HMAC is computed over, as Linux has it. */
#define SIDESTEP_HMAC_SEGMENTS_MAX 14
/* Texts whose HMAC each CPU remembers; a power of two. */
#define SIDESTEP_HMAC_KNOWN 64
/* Of the longest text, padded: four blocks of 64 bytes. */
#define SIDESTEP_HMAC_TEXT_MAX 256

/* In a key of a VLAN table, beside a VLAN id: there is one. */
#define SIDESTEP_VLAN_KEY_PRESENT 0x1000u

/* port.flags */
#define SIDESTEP_PORT_SEG6 0x01u         /* net.ipv6.conf.IF.seg6_enabled */
#define SIDESTEP_PORT_FORWARD6 0x02u     /* net.ipv6.conf.IF.forwarding */
#define SIDESTEP_PORT_FORWARD4 0x04u     /* net.ipv4.conf.IF.forwarding */
#define SIDESTEP_PORT_RPF_LOOSE 0x08u    /* net.ipv4.conf.IF.rp_filter = 2 */
#define SIDESTEP_PORT_RPF_STRICT 0x10u   /* net.ipv4.conf.IF.rp_filter = 1 */
#define SIDESTEP_PORT_RULES6_PUNT 0x20u  /* IPv6 rules that cannot be compiled */
#define SIDESTEP_PORT_RULES4_PUNT 0x40u  /* IPv4 rules that cannot be compiled */
#define SIDESTEP_PORT_REQUIRE_HMAC 0x80u /* net.ipv6.conf.IF.seg6_require_hmac = 1 */
#define SIDESTEP_PORT_IGNORE_HMAC 0x100u /* net.ipv6.conf.IF.seg6_require_hmac = -1 */
#define SIDESTEP_PORT_SERVICE 0x200u     /* to or from a service behind END_AM */
#define SIDESTEP_PORT_O_FLAG 0x400u      /* packets with the O-flag are copied at SIDs (RFC 9259 2.1.1) */

/* An ingress port, found at index ifindex % SIDESTEP_PORTS. */
struct sidestep_port {
	__u32 ifindex; /* 0: no port here */
	__u32 flags;   /* SIDESTEP_PORT_* */
	__u32 view6;   /* FIB view of its IPv6 rules */
	__u32 view4;   /* FIB view of its IPv4 rules */
	__u8 mac[6];   /* frames to another address are not for us */
	__u16 reserved; /* 0 */
	__u32 return6, return4; /* route of what a service sends back by this port (an SR proxy); 0: no service */
	__u32 local_addrs6, local_addrs4;   /* where there is one: FIB view of the port's own addresses */
	__u32 return_l2;        /* as return6 and return4, of Ethernet frames; the other two are 0 then */
	__u32 domain;       /* FIB view of the SID blocks kept from this port (RFC 8754 5.1); 0: it is inside */
	__u32 hmac_keys;    /* FIB view of HMAC key ids, in 4 bytes of an address; 0: no key */
	__u8 spare[12];     /* 0 */
};

enum sidestep_action {
	SIDESTEP_ROUTE_NONE = 0,    /* no such route */
	SIDESTEP_ROUTE_FORWARD = 1, /* to .adjacency */
	SIDESTEP_ROUTE_PUNT = 2,    /* to the kernel, because of .reason */
	SIDESTEP_ROUTE_DROP = 3,    /* because of .reason */
	SIDESTEP_ROUTE_HEADEND = 4, /* .policy */
	SIDESTEP_ROUTE_GROUP = 5,   /* one of the routes of .group, by the packet's flow */
	/* No routes themselves, they lead on to one: */
	SIDESTEP_ROUTE_SOURCE = 6,  /* what .view6 or .view4 has for the source address */
	SIDESTEP_ROUTE_NEXT = 7,    /* what .view6 or .view4 has for the destination address */
	SIDESTEP_ROUTE_RETURN_AM = 8, /* of a port: what a service behind END_AM sends back */
	SIDESTEP_ROUTE_RETURN_AD = 9, /* of a port: the same behind END_AD; .policy: index of learned headers */
	SIDESTEP_ROUTE_HMAC_KEY = 10, /* of an HMAC key id: .policy is the index of the key. No packet's */
	/* Endpoint behaviors. A SID from here on: needs SIDESTEP_PORT_SEG6. */
	SIDESTEP_ROUTE_END = 16,
	SIDESTEP_ROUTE_END_X = 17,    /* .adjacency */
	SIDESTEP_ROUTE_END_T = 18,    /* .view6 */
	SIDESTEP_ROUTE_END_DX2 = 19,  /* .adjacency: only its egress interface is used */
	SIDESTEP_ROUTE_END_DX4 = 20,  /* .adjacency, or 0: lookup in the port's view4 */
	SIDESTEP_ROUTE_END_DX6 = 21,  /* .adjacency, or 0: lookup in the port's view6 */
	SIDESTEP_ROUTE_END_DT4 = 22,  /* .view4 */
	SIDESTEP_ROUTE_END_DT6 = 23,  /* .view6 */
	SIDESTEP_ROUTE_END_DT46 = 24, /* .view4, .view6 */
	SIDESTEP_ROUTE_END_B6_ENCAPS = 25, /* .policy, pushed after End */
	SIDESTEP_ROUTE_END_B6_INSERT = 26, /* .policy, inserted; Segments Left stays */
	SIDESTEP_ROUTE_END_DX2V = 27, /* .view6: its VLAN table, prefixes of the VLAN ids (end_dx2v.h) */
	SIDESTEP_ROUTE_END_AM = 28, /* .adjacency: of the service */
	SIDESTEP_ROUTE_END_AS = 29, /* .adjacency: of the service, .inner: what it takes */
	SIDESTEP_ROUTE_END_AD = 30, /* as END_AS; .policy: of learned headers */
};

/* route.flags */
#define SIDESTEP_ROUTE_SIDESTEP_ONLY 0x01u      /* the kernel does not have this route */
#define SIDESTEP_ROUTE_PSP 0x02u       /* penultimate segment pop */
#define SIDESTEP_ROUTE_USP 0x04u       /* ultimate segment pop */
#define SIDESTEP_ROUTE_USD 0x08u       /* ultimate segment decapsulation */
#define SIDESTEP_ROUTE_NEXT_CSID 0x10u /* the SID begins a container of compressed SIDs (RFC 9800 4.1) */
#define SIDESTEP_ROUTE_REPLACE_CSID 0x20u /* the segment list holds containers of them (RFC 9800 4.2) */
#define SIDESTEP_ROUTE_NAT 0x40u       /* RETURN_AM: the service may change the destination */
#define SIDESTEP_ROUTE_BY_DSCP 0x80u   /* GROUP: the packet's DSCP is the slot; its routes may be groups by flow */
/* Of a SID, which is no GROUP: what comes without a right HMAC is dropped, whatever its port says. */
#define SIDESTEP_ROUTE_REQUIRE_HMAC 0x80u

/* A route, SID or policy: what the FIB yields. Index 0 is never used: it means "no route". */
struct sidestep_route {
	__u8 action;     /* enum sidestep_action */
	__u8 flags;      /* SIDESTEP_ROUTE_* */
	__u8 reason;     /* enum sidestep_reason, of PUNT and DROP */
	__u8 reserved;   /* 0 */
	__u32 counter;   /* slot in the route counters; 0: none, or that of the GROUP which led here */
	__u32 adjacency; /* index, 0: none */
	__u32 view6;     /* FIB view, 0: none */
	__u32 view4;     /* FIB view, 0: none */
	__u32 policy;    /* index, 0: none; END_AD, RETURN_AD: index of learned headers; HMAC_KEY: of the key */
	__u8 block_bits; /* *_CSID: Locator-Block length, a multiple of 8 */
	__u8 function_bits; /* *_CSID: C-SID length, a multiple of 8; REPLACE_CSID: 16 or 32 */
	__u8 inner;         /* END_AS, END_AD: upper-layer header that the service takes: 4, 41, 143 */
	__u8 spare;         /* 0 */
	__u32 group; /* of GROUP; of END_X, END_DX4, END_DX6 whose next hop has several ways: then .adjacency is 0 */
};

/*
 * The next hops of a multipath route, or the segment lists of an SR policy. A packet's flow (flow.h) chooses a slot; how many
 * slots a next hop or list has is its weight. Or what a route has for each DSCP (SIDESTEP_ROUTE_BY_DSCP).
 * Written once, before anything refers to it.
 */
struct sidestep_group {
	__u32 slots; /* in use, 1 to SIDESTEP_GROUP_SLOTS */
	__u32 seed;  /* of the hash: two routers in a row must not choose alike */
	__u32 routes[SIDESTEP_GROUP_SLOTS]; /* index; none of them is a GROUP, unless the slot is a DSCP */
};

/* adjacency.flags */
#define SIDESTEP_ADJACENCY_VALID 0x01u /* .destination is resolved */
#define SIDESTEP_ADJACENCY_XDP 0x02u   /* the egress device takes XDP redirects */

/*
 * Where a packet leaves. The first 8 bytes change by one store when the neighbor changes; the rest but .used is written
 * before the record is first referred to.
 */
struct sidestep_adjacency {
	__u8 destination[6]; /* MAC of the next hop */
	__u16 flags;         /* SIDESTEP_ADJACENCY_* */
	__u8 source[6];      /* MAC of the egress interface */
	__u16 reserved;      /* 0 */
	__u32 ifindex;       /* egress interface */
	__u32 mtu;           /* bytes of layer 3 */
	__u64 used;          /* set by a packet that needs this next hop, cleared by whoever keeps neighbors alive */
};

/* LIMIT: unresolved destinations that the packet path remembers at a time. */
#define SIDESTEP_RESOLVE_REQUESTS 64

/* A destination that a packet was dropped for, because the kernel has no way to resolve it (DROP_no_neighbor). */
struct sidestep_resolve_request {
	__u32 view;       /* FIB view in which it was looked up; 0: none. Written last, cleared by who asks for it. */
	__u32 reserved;   /* 0 */
	__u8 address[16]; /* network order; IPv4 in the first four bytes */
};

enum sidestep_policy_kind {
	SIDESTEP_POLICY_ENCAPS = 1,    /* H.Encaps, H.Encaps.Red */
	SIDESTEP_POLICY_ENCAPS_L2 = 2, /* H.Encaps.L2, H.Encaps.L2.Red */
	SIDESTEP_POLICY_INSERT = 3,    /* H.Insert, H.Insert.Red */
};

enum sidestep_flow_label {
	SIDESTEP_FLOW_LABEL_COPY = 0,    /* the inner label; computed where there is none */
	SIDESTEP_FLOW_LABEL_COMPUTE = 1, /* always computed */
	SIDESTEP_FLOW_LABEL_ZERO = 2,    /* 0 */
};

/* Outer IPv6 header and an SRH of SIDESTEP_SEGMENTS_MAX segments plus the inserted one, or of 14 and an HMAC TLV. */
#define SIDESTEP_HEADER_MAX (40 + 8 + 16 * (SIDESTEP_SEGMENTS_MAX + 1))

/*
 * What a headend puts in front of (ENCAPS) or into (INSERT) a packet. `header` is ready but for the fields that
 * depend on the packet: traffic class, flow label, payload length, next header and, for INSERT, Segment List[0].
 */
struct sidestep_policy {
	__u16 length;      /* of `header` in use: 40, 40 + 8 + 16n, or 8 + 16n for INSERT; with an HMAC TLV 40 more */
	__u8 kind;         /* enum sidestep_policy_kind */
	__u8 flow_label;   /* enum sidestep_flow_label */
	__u32 adjacency;   /* of the first segment; 0: look it up in .view */
	__u32 view;        /* FIB view of the first segment; 0: the port's */
	__u32 hmac_key;    /* that signed or, for INSERT, signs; 0: none */
	__u8 first[16];    /* the first segment: the new destination address */
	__u8 header[SIDESTEP_HEADER_MAX]; /* network order, as on the wire */
};

/* IANA has no numbers for them: include/uapi/linux/seg6_hmac.h. */
enum sidestep_hmac_algorithm {
	SIDESTEP_HMAC_SHA1 = 1,
	SIDESTEP_HMAC_SHA256 = 2,
};

/* A secret, as the hash value behind its first block (RFC 2104 4): whoever has that can sign. */
struct sidestep_hmac_key {
	__u32 id;         /* HMAC Key ID */
	__u32 algorithm;  /* enum sidestep_hmac_algorithm */
	__u64 generation; /* another one for another id, algorithm or secret */
	__u32 inner[8];   /* of the key with ipad; SHA-1: the first five */
	__u32 outer[8];   /* with opad */
};

/* A text whose HMAC was found before. */
struct sidestep_hmac_known {
	__u64 generation; /* of the key; 0: nothing is known */
	__u8 text[SIDESTEP_HMAC_TEXT_MAX]; /* padded as it is hashed */
	__u64 mac[4];
};

/* Of one CPU, for the packet in work; and what it remembers. The packet path's alone (hmac/mac.h). */
struct sidestep_hmac_work {
	__u8 text[2 * SIDESTEP_HMAC_TEXT_MAX]; /* the inner text, and behind it the outer one */
	__u32 state[8];
	__u32 schedule[16];
	__u64 mac[4]; /* the result, as it is in the TLV */
	struct sidestep_hmac_known known[SIDESTEP_HMAC_KNOWN];
};

/* Outer headers as they go on, but for what is each packet's own: traffic class, flow label, Payload Length are 0. */
struct sidestep_headers {
	__u32 length; /* bytes in use, a multiple of 8 */
	__u32 hash; /* of them, where flows share the record */
	__u8 bytes[SIDESTEP_LEARNED_MAX]; /* network order, as on the wire */
};

/*
 * What a dynamic proxy has learned. The control plane writes what is before .version; the rest is the packet path's.
 * Behind the SIDESTEP_LEARNED records of proxies follow SIDESTEP_HEADER_SETS for each table of flows: .used is 0 there.
 */
struct sidestep_learned {
	__u32 used;    /* 1: there is such a proxy */
	__u32 age;     /* seconds that must pass before other headers are learned */
	__u32 flows;   /* told apart, a power of two, and nothing is learned in this record itself; or 0 */
	__u32 table;   /* of those flows, 1 to SIDESTEP_FLOW_TABLES */
	__u64 seed;    /* of their hash: who sends packets should not know which of them share a place */
	__u64 version; /* counts what was learned; 0: nothing yet. Written last (table/learned.h) */
	__u64 time;    /* of the last change, nanoseconds of the monotonic clock; of flows: of the last packet */
	__u64 busy;    /* a CPU is learning */
	struct sidestep_headers headers[SIDESTEP_LEARNED_SLOTS]; /* at version % SIDESTEP_LEARNED_SLOTS */
};

/* Packets of one direction between two ends. The packet path's alone (table/flows.h). */
struct sidestep_flow {
	__u64 key[5];   /* flow_key */
	__u32 sequence; /* odd while the rest is written */
	__u32 used;     /* when a packet last went to the service, in units of 2^FLOW_TICK ns */
	__u64 header_set;    /* version << 16 | number, from 0, of a record of SIDESTEP_HEADER_SETS; 0: there is no flow here */
	__u64 time;     /* when it got that chain, in nanoseconds of the monotonic clock */
};

/* A table of flows is an array of these. */
struct sidestep_flow_set {
	__u64 busy;        /* a CPU writes one of them */
	__u64 evicted;     /* flows that made room for others */
	__u64 reserved[6]; /* 0: each flow is a cache line */
	struct sidestep_flow flows[SIDESTEP_FLOW_WAYS];
};
#define SIDESTEP_FLOW_SETS (SIDESTEP_FLOWS / SIDESTEP_FLOW_WAYS)

/* Elements of the maps: of all tables of flows; of the proxies and of all tables of flows. */
#define SIDESTEP_FLOW_SETS_TOTAL (SIDESTEP_FLOW_TABLES * SIDESTEP_FLOW_SETS)
#define SIDESTEP_LEARNED_TOTAL (SIDESTEP_LEARNED + 1 + SIDESTEP_FLOW_TABLES * SIDESTEP_HEADER_SETS)

/* Per-CPU counters. received = forwarded + punted + dropped, exactly. */
struct sidestep_port_counters {
	__u64 received_packets, received_bytes; /* from this port, bytes with the Ethernet header */
	__u64 forwarded, punted, dropped;       /* verdicts on packets received here */
	__u64 sent_packets, sent_bytes;         /* forwarded by us out of this interface, wherever they came from */
	__u64 reserved;
};

struct sidestep_route_counters {
	__u64 packets, bytes; /* matched and processed; bytes of layer 3 as received */
	__u64 errors;         /* matched, then dropped by the behavior's checks */
	__u64 not_learned;    /* of the errors: a service sent it back before its proxy had learned headers */
	__u64 no_srh;         /* of RETURN_AM: came back without an SRH, from a source that is not at a service */
};

#define SIDESTEP_ASSERT_SIZE(type, size) _Static_assert(sizeof(type) == (size), #type)
SIDESTEP_ASSERT_SIZE(struct sidestep_port, 64);
SIDESTEP_ASSERT_SIZE(struct sidestep_route, 32);
SIDESTEP_ASSERT_SIZE(struct sidestep_group, 8 + 4 * SIDESTEP_GROUP_SLOTS);
SIDESTEP_ASSERT_SIZE(struct sidestep_adjacency, 32);
SIDESTEP_ASSERT_SIZE(struct sidestep_resolve_request, 24);
SIDESTEP_ASSERT_SIZE(struct sidestep_policy, 16 + 16 + SIDESTEP_HEADER_MAX);
SIDESTEP_ASSERT_SIZE(struct sidestep_hmac_key, 80);
SIDESTEP_ASSERT_SIZE(struct sidestep_hmac_known, 8 + SIDESTEP_HMAC_TEXT_MAX + 32);
SIDESTEP_ASSERT_SIZE(struct sidestep_flow, 64);
SIDESTEP_ASSERT_SIZE(struct sidestep_flow_set, 64 + 64 * SIDESTEP_FLOW_WAYS);
SIDESTEP_ASSERT_SIZE(struct sidestep_learned, 48 + SIDESTEP_LEARNED_SLOTS * (8 + SIDESTEP_LEARNED_MAX));
SIDESTEP_ASSERT_SIZE(struct sidestep_port_counters, 64);
SIDESTEP_ASSERT_SIZE(struct sidestep_route_counters, 40);

/* What the native target reports of a packet's way, in order. The kernel targets report nothing. */
enum sidestep_trace_kind {
	SIDESTEP_TRACE_PORT = 1,     /* a: port index */
	SIDESTEP_TRACE_PARSED = 2,   /* a: IP version (0: a frame), b: offset of its header; address: destination */
	SIDESTEP_TRACE_LOOKUP = 3,   /* a: view, b: route or 0; address: key */
	SIDESTEP_TRACE_BEHAVIOR = 4, /* a: action, b: route */
	SIDESTEP_TRACE_SRH = 5,      /* a: offset, b: Segments Left as it will be; address: new destination */
	SIDESTEP_TRACE_POP = 6,      /* a: offset of the SRH, b: its length (PSP) */
	SIDESTEP_TRACE_DECAP =
		7,    /* a: upper-layer protocol, b: offset of the inner header; address: inner destination */
	SIDESTEP_TRACE_PUSH = 8,     /* a: policy, b: bytes; address: first segment */
	SIDESTEP_TRACE_FORWARD = 9,  /* a: adjacency, b: layer 3 length */
	SIDESTEP_TRACE_CSID = 10,    /* a: block bits, b: function bits; address: new destination */
	SIDESTEP_TRACE_CHOICE = 11,  /* a: group, b: the route that was chosen */
	/* a: Segments Left, b: DA.Arg.Index, as they will be; address: new destination */
	SIDESTEP_TRACE_REPLACE_CSID = 12,
	SIDESTEP_TRACE_SOURCE = 13,  /* a: view of source addresses, b: route or 0; address: key */
	SIDESTEP_TRACE_RETURN = 14,         /* b: route of the port that a service sent the packet back by */
	SIDESTEP_TRACE_MASQUERADE = 15,   /* a: offset of the SRH, b: Segments Left; address: new destination */
	SIDESTEP_TRACE_DEMASQUERADE = 16, /* the same */
	SIDESTEP_TRACE_LEARN = 17,        /* a: learned headers, b: bytes; address: destination as it goes on */
	SIDESTEP_TRACE_RESTORE = 18,      /* the same */
	SIDESTEP_TRACE_LAST_SEGMENT = 19, /* a: offset of the SRH; address: its new Segment List[0] */
	SIDESTEP_TRACE_HMAC = 20,         /* a: HMAC Key ID, b: 0: it is right, or the reason */
	SIDESTEP_TRACE_DSCP = 21,         /* a: DSCP, b: the route for it */
};

struct sidestep_trace {
	__u32 kind; /* enum sidestep_trace_kind */
	__u32 a, b;
	__u8 address[16]; /* network order */
};
SIDESTEP_ASSERT_SIZE(struct sidestep_trace, 28);

#endif
