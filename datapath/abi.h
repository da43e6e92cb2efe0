/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Structures that the packet path shares with the control plane. The Rust side is generated from
 * this file at build time.
 *
 * Byte order: host order unless a comment states network order. While a packet may read a record,
 * the record changes only by one aligned 8-byte store (see ARCHITECTURE.md, "Publishing"). Any
 * change in this file requires a new SIDESTEP_ABI_VERSION: pinned maps carry it, and a daemon
 * adopts maps of its own version only.
 */
#ifndef SIDESTEP_ABI_H
#define SIDESTEP_ABI_H

#include <linux/types.h>

#include "reason.h"

#define SIDESTEP_ABI_VERSION 20

/* LIMIT: segments in one SRH that a headend writes. */
#define SIDESTEP_SEGMENTS_MAX 16
/*
 * LIMIT: ports. The low bits of an interface index select the record, so two ports must differ in
 * them.
 */
#define SIDESTEP_PORTS 4096
/*
 * LIMIT: behaviors that one packet passes at this node (RFC 8754 4.3.1 allows repeated local
 * processing).
 */
#define SIDESTEP_STEPS_MAX 4
/* Number of DSCP values (RFC 2474 3). */
#define SIDESTEP_DSCPS 64
/*
 * LIMIT: next hops of one route, and segment lists of one candidate path. Weights are exact if they
 * sum up to at most this number.
 */
#define SIDESTEP_GROUP_SLOTS 256
/*
 * SOURCE and NEXT records that one lookup passes. Rules by source address, their tables and the
 * routes by source address in these take three; the tables that follow and their routes by source
 * address take two.
 */
#define SIDESTEP_INDIRECT_MAX 5
/*
 * LIMIT: extension headers that are followed in one IPv6 packet, including routing headers. RFC 8504
 * 5.3 lets a host discard packets with more than 8.
 */
#define SIDESTEP_EXT_HEADERS_MAX 8
/* LIMIT: TLVs that are checked in one SRH. */
#define SIDESTEP_TLVS_MAX 8
/* LIMIT: options that are checked in one Hop-by-Hop or Destination Options header. */
#define SIDESTEP_OPTIONS_MAX 16

/* LIMIT: dynamic SR proxies (End.AD). */
#define SIDESTEP_LEARNED 1024
/*
 * LIMIT: bytes of outer headers that a dynamic proxy learns: IPv6 header, extension headers and
 * TLVs.
 */
#define SIDESTEP_LEARNED_MAX 384
/* Number of learned versions that a record keeps for concurrent readers; a power of two. */
#define SIDESTEP_LEARNED_SLOTS 4

/* LIMIT: services whose dynamic proxy learns headers per flow (`flows`). */
#define SIDESTEP_FLOW_TABLES 16
/* LIMIT: flows of one such service; a power of two. */
#define SIDESTEP_FLOWS 8192
/*
 * Associativity of the flow table. A new flow replaces the one that was unused for the longest
 * time.
 */
#define SIDESTEP_FLOW_WAYS 8
/* LIMIT: header sets that the flows of one service share. */
#define SIDESTEP_HEADER_SETS 256
/* Associativity of the table of header sets. */
#define SIDESTEP_HEADER_SET_WAYS 8

/* LIMIT: HMAC keys. */
#define SIDESTEP_HMAC_KEYS 255
/* LIMIT: segments in an SRH with an HMAC, as in Linux. */
#define SIDESTEP_HMAC_SEGMENTS_MAX 14
/* Size of the HMAC cache of each CPU, in texts; a power of two. */
#define SIDESTEP_HMAC_KNOWN 64
/* Bytes of the longest padded text: four blocks of 64 bytes. */
#define SIDESTEP_HMAC_TEXT_MAX 256

/*
 * Indices into the tables; 0 means none. In C they are numbers. In Rust each one is a type of its
 * own, so that the compiler finds an index in the wrong place.
 */
typedef __u32 sidestep_route_id;      /* route record */
typedef __u32 sidestep_group_id;      /* group */
typedef __u32 sidestep_adjacency_id;  /* adjacency */
typedef __u32 sidestep_policy_id;     /* policy record */
typedef __u32 sidestep_view_id;       /* view of the prefix table */
typedef __u32 sidestep_counter_id;    /* slot in the route counters */
typedef __u32 sidestep_header_set_id; /* headers that END_AD learned */
typedef __u32 sidestep_key_slot;      /* HMAC key; not its HMAC Key ID */
typedef __u32 sidestep_flow_table_id; /* table of flows */
typedef __u32 sidestep_session_id;    /* session of a path */

/* Bit in the key of a VLAN table: the tag is present. */
#define SIDESTEP_VLAN_KEY_PRESENT 0x1000u

/* port.flags */
#define SIDESTEP_PORT_SEG6 0x01u         /* processes SIDs (seg6_enabled, if required) */
#define SIDESTEP_PORT_FORWARD6 0x02u     /* net.ipv6.conf.IF.forwarding */
#define SIDESTEP_PORT_FORWARD4 0x04u     /* net.ipv4.conf.IF.forwarding */
#define SIDESTEP_PORT_RPF_LOOSE 0x08u    /* net.ipv4.conf.IF.rp_filter = 2 */
#define SIDESTEP_PORT_RPF_STRICT 0x10u   /* net.ipv4.conf.IF.rp_filter = 1 */
#define SIDESTEP_PORT_RULES6_PUNT 0x20u  /* punt IPv6 packets: the compiler cannot express a rule */
#define SIDESTEP_PORT_RULES4_PUNT 0x40u  /* punt IPv4 packets: the compiler cannot express a rule */
#define SIDESTEP_PORT_REQUIRE_HMAC 0x80u /* net.ipv6.conf.IF.seg6_require_hmac = 1 */
#define SIDESTEP_PORT_IGNORE_HMAC 0x100u /* net.ipv6.conf.IF.seg6_require_hmac = -1 */
#define SIDESTEP_PORT_SERVICE 0x200u     /* leads to or from a service behind END_AM */
#define SIDESTEP_PORT_O_FLAG 0x400u      /* SIDs copy packets with the O-flag (RFC 9259 2.1.1) */
#define SIDESTEP_PORT_LOCAL_SRH 0x800u   /* leave an SRH at a local address to Linux */
#define SIDESTEP_PORT_FRAGMENT 0x1000u   /* fragment IPv4 packets without DF (fragment.h) */
#define SIDESTEP_PORT_ETHER 0x2000u      /* every frame takes .return_l2 (ether device) */
/* frames of some VLANs take .return_l2, whose .view6 is a VLAN table */
#define SIDESTEP_PORT_ETHER_VLANS 0x4000u
/* takes only frames that Sidestep sends into the device for segmentation */
#define SIDESTEP_PORT_ETHER_WIRE 0x8000u

#define SIDESTEP_PORT_BRIDGED 0x10000u  /* belongs to a bridge, which gets all other frames */
#define SIDESTEP_PORT_ISOLATED 0x20000u /* isolated in its bridge */

/* LIMIT: stations of all bridges. */
#define SIDESTEP_STATIONS (1 << 17)

/*
 * Metadata of a frame that XDP leaves to the program at TC of the same port. It gives no rights: TC
 * processes the frame like one that arrived there.
 */
#define SIDESTEP_DEFERRED 0x5de57e9de7e44ed0ull

/* skb->mark of a frame that an ether device segments, until its port encapsulates it. */
#define SIDESTEP_SEGMENT_MARK 0x5de57e9du

/* Ingress port, at index ifindex % SIDESTEP_PORTS. */
struct sidestep_port {
	__u32 ifindex;          /* 0: unused record */
	__u32 flags;            /* SIDESTEP_PORT_* */
	sidestep_view_id view6; /* FIB view of its IPv6 rules */
	sidestep_view_id view4; /* FIB view of its IPv4 rules */
	__u8 mac[6];            /* frames to another address are punted */
	__u16 reserved;         /* 0 */
	/* Return path of an SR proxy: index of the route; 0: no service. */
	sidestep_route_id return6, return4;
	/* FIB views of the port's local addresses, if it has a service */
	sidestep_view_id local_addrs6, local_addrs4;
	/*
	 * Route of Ethernet frames that a service returns, or of all frames (SIDESTEP_PORT_ETHER);
	 * return6 and return4 are 0 then
	 */
	sidestep_route_id return_l2;
	/*
	 * FIB view of the SIDs that this port must not reach (RFC 8754 5.1); 0: inside the domain
	 */
	sidestep_view_id domain;
	/* FIB view of HMAC Key IDs, in the first 4 bytes of an address; 0: no key */
	sidestep_view_id hmac_keys;
	/* Bridge whose stations exchange frames with this port (bridge.h); 0: none */
	__u32 bridge;
	sidestep_adjacency_id egress; /* toward the stations of the port, with .bridge */
	/*
	 * FIB view of the BFD discriminators of this node, in the first 4 bytes of an address; 0:
	 * outside the SR domain, or none
	 */
	sidestep_view_id discriminators;
};

/* Key of a station: an Ethernet address that a bridge has learned, or that was added to its FDB. */
struct sidestep_station_key {
	__u32 bridge; /* ifindex */
	__u8 mac[6];
	__u16 reserved; /* 0 */
};

struct sidestep_station {
	__u32 port; /* ifindex of the port toward the station */
	__u32 used; /* set by a frame from the station, cleared by the daemon */
};

enum sidestep_action {
	SIDESTEP_ROUTE_NONE = 0,    /* unused record */
	SIDESTEP_ROUTE_FORWARD = 1, /* to .adjacency */
	SIDESTEP_ROUTE_PUNT = 2,    /* to the kernel, with .reason */
	SIDESTEP_ROUTE_DROP = 3,    /* with .reason */
	SIDESTEP_ROUTE_HEADEND = 4, /* pushes .policy */
	SIDESTEP_ROUTE_GROUP = 5,   /* the packet's flow selects a route of .group */
	/* Indirect records: they lead to a route. */
	SIDESTEP_ROUTE_SOURCE = 6,    /* looks up the source address in .view6 or .view4 */
	SIDESTEP_ROUTE_NEXT = 7,      /* looks up the destination address in .view6 or .view4 */
	SIDESTEP_ROUTE_RETURN_AM = 8, /* return path of END_AM, from a port record */
	/* return path of END_AD, from a port record; .policy: learned headers */
	SIDESTEP_ROUTE_RETURN_AD = 9,
	/* of an HMAC Key ID: .policy is the index of the key; not a route */
	SIDESTEP_ROUTE_HMAC_KEY = 10,
	/* of a discriminator that S-BFD reflects; .inner: 1: Up, 0: AdminDown; not a route */
	SIDESTEP_ROUTE_REFLECT = 11,
	/* of a discriminator of a session: .policy is the index of the session; not a route */
	SIDESTEP_ROUTE_SESSION = 12,
	/* Endpoint behaviors. Routes from here on are SIDs and need SIDESTEP_PORT_SEG6. */
	SIDESTEP_ROUTE_END = 16,
	/*
	 * The next hop of END_X, END_DX4 and END_DX6 is .adjacency or .group. If it differs between
	 * ports, .view6 has the interface indices of ports as prefixes, in the first 4 bytes of an
	 * address. Their routes are FORWARD, GROUP or PUNT.
	 */
	SIDESTEP_ROUTE_END_X = 17,
	SIDESTEP_ROUTE_END_T = 18,    /* .view6 */
	SIDESTEP_ROUTE_END_DX2 = 19,  /* .adjacency, of which only the egress interface is used */
	SIDESTEP_ROUTE_END_DX4 = 20,  /* without a next hop: lookup in the port's view4 */
	SIDESTEP_ROUTE_END_DX6 = 21,  /* without a next hop: lookup in the port's view6 */
	SIDESTEP_ROUTE_END_DT4 = 22,  /* .view4 */
	SIDESTEP_ROUTE_END_DT6 = 23,  /* .view6 */
	SIDESTEP_ROUTE_END_DT46 = 24, /* .view4, .view6 */
	SIDESTEP_ROUTE_END_B6_ENCAPS = 25, /* .policy, pushed after End */
	SIDESTEP_ROUTE_END_B6_INSERT = 26, /* .policy, inserted; Segments Left is unchanged */
	/* .view6: VLAN table with VLAN IDs as prefixes (end_dx2v.h) */
	SIDESTEP_ROUTE_END_DX2V = 27,
	SIDESTEP_ROUTE_END_AM = 28, /* .adjacency of the service */
	SIDESTEP_ROUTE_END_AS = 29, /* .adjacency of the service, .inner: type of its packets */
	SIDESTEP_ROUTE_END_AD = 30, /* as END_AS; .policy: learned headers */
	/* as END_DX2: the bridge behind the ether device looks the frame up */
	SIDESTEP_ROUTE_END_DT2U = 31,
	SIDESTEP_ROUTE_END_DT2M = 32,
};

/* route.flags */
#define SIDESTEP_ROUTE_SIDESTEP_ONLY 0x01u /* the kernel does not have this route */
#define SIDESTEP_ROUTE_PSP 0x02u           /* penultimate segment pop */
#define SIDESTEP_ROUTE_USP 0x04u           /* ultimate segment pop */
#define SIDESTEP_ROUTE_USD 0x08u           /* ultimate segment decapsulation */
/* the SID is a container of compressed SIDs (RFC 9800 4.1) */
#define SIDESTEP_ROUTE_NEXT_CSID 0x10u
/* the segment list has containers of compressed SIDs (RFC 9800 4.2) */
#define SIDESTEP_ROUTE_REPLACE_CSID 0x20u
#define SIDESTEP_ROUTE_NAT 0x40u /* RETURN_AM: the service may change the destination */
/* GROUP: the DSCP selects the slot; its route may be a GROUP */
#define SIDESTEP_ROUTE_BY_DSCP 0x80u
/*
 * Only for a SID, never for a GROUP: drops packets without a valid HMAC, whatever the port
 * requires.
 */
#define SIDESTEP_ROUTE_REQUIRE_HMAC 0x80u

/*
 * route.tag, in host order: a change of the outermost VLAN tag (IEEE 802.1Q 9.6), and a VLAN ID in
 * the low 12 bits.
 */
#define SIDESTEP_TAG_ID 0x0fffu
#define SIDESTEP_TAG_POP 0x1000u  /* remove the tag */
#define SIDESTEP_TAG_PUSH 0x2000u /* add a tag with this VLAN ID and priority 0 */
#define SIDESTEP_TAG_SET 0x3000u  /* change the VLAN ID, and keep the rest */
#define SIDESTEP_TAG_CHANGE 0xf000u

/* Route record: the result of a FIB lookup. Index 0 is unused and means "no route". */
struct sidestep_route {
	__u8 action; /* enum sidestep_action */
	__u8 flags;  /* SIDESTEP_ROUTE_* */
	__u8 reason; /* enum sidestep_reason, of PUNT and DROP */
	__u8 inner;  /* END_AS, END_AD: Next Header of the service's packets: 4, 41, 143 */
	/* Slot in the route counters; 0: none, or the slot of the GROUP. */
	sidestep_counter_id counter;
	sidestep_adjacency_id adjacency; /* index, 0: none */
	sidestep_view_id view6;          /* FIB view, 0: none */
	sidestep_view_id view4;          /* FIB view, 0: none */
	__u32 policy;       /* index; 0: none. END_AD, RETURN_AD: learned headers. HMAC_KEY: key */
	__u8 block_bits;    /* *_CSID: Locator-Block length, a multiple of 8 */
	__u8 function_bits; /* *_CSID: C-SID length, a multiple of 8; REPLACE_CSID: 16 or 32 */
	__u16 tag; /* of frames to or from an attached interface: SIDESTEP_TAG_*; 0: none */
	/* of GROUP; of END_X, END_DX4 and END_DX6 with several next hops (.adjacency is 0 then) */
	sidestep_group_id group;
};

/*
 * Group of route records: the next hops of a multipath route, the segment lists of an SR policy, or
 * the routes for each DSCP (SIDESTEP_ROUTE_BY_DSCP). Except for the latter, the packet's flow
 * (flow.h) selects a slot, and the number of slots of a route is its weight. A group is written
 * before anything refers to it. Only the group of a nexthop object changes while it is in use; all
 * of its slots have a route, so that packets may read any mixture of old and new ones.
 */
struct sidestep_group {
	__u32 slots; /* in use: 1 to SIDESTEP_GROUP_SLOTS */
	/* of the hash; differs between routers, so that two in a row do not choose alike */
	__u32 seed;
	sidestep_route_id
		routes[SIDESTEP_GROUP_SLOTS]; /* indices; only a DSCP slot may hold a GROUP */
};

/* adjacency.flags */
#define SIDESTEP_ADJACENCY_VALID 0x01u /* .destination is resolved */
#define SIDESTEP_ADJACENCY_XDP 0x02u   /* the egress device accepts XDP redirects */
/* TC redirects to the peer of the egress, a veth; .destination is the peer's address */
#define SIDESTEP_ADJACENCY_PEER 0x04u
/* the next hop is out of order: packets take the rest of their group, or .backup */
#define SIDESTEP_ADJACENCY_DOWN 0x08u

/*
 * Next hop. One store changes the first 8 bytes when the neighbor or its link changes, another one
 * .backup. All other fields except .used are written before anything refers to the record.
 */
struct sidestep_adjacency {
	__u8 destination[6]; /* MAC of the next hop */
	__u16 flags;         /* SIDESTEP_ADJACENCY_* */
	__u8 source[6];      /* MAC of the egress interface */
	__u16 mtu;           /* bytes of layer 3 */
	__u32 ifindex;       /* egress interface */
	/* route that takes the packets while this next hop is DOWN; 0: none. It has no backup. */
	sidestep_route_id backup;
	__u64 used; /* set by a packet that uses this next hop, cleared by the daemon */
};

/* LIMIT: unresolved destinations that are recorded at a time. */
#define SIDESTEP_RESOLVE_REQUESTS 64

/* Destination of a dropped packet that the kernel has no route to resolve (DROP_no_neighbor). */
struct sidestep_resolve_request {
	/*
	 * FIB view of the lookup; 0: unused. The packet path writes it last, the daemon clears it.
	 */
	sidestep_view_id view;
	__u32 reserved;   /* 0 */
	__u8 address[16]; /* network order; IPv4 in the first four bytes */
};

enum sidestep_policy_kind {
	SIDESTEP_POLICY_ENCAPS = 1,    /* H.Encaps, H.Encaps.Red */
	SIDESTEP_POLICY_ENCAPS_L2 = 2, /* H.Encaps.L2, H.Encaps.L2.Red */
	SIDESTEP_POLICY_INSERT = 3,    /* H.Insert, H.Insert.Red */
};

enum sidestep_flow_label {
	SIDESTEP_FLOW_LABEL_COPY = 0,    /* label of the inner packet; computed if that is 0 */
	SIDESTEP_FLOW_LABEL_COMPUTE = 1, /* always computed */
	SIDESTEP_FLOW_LABEL_ZERO = 2,    /* always 0 */
};

/*
 * Outer IPv6 header with an SRH. The SRH has SIDESTEP_SEGMENTS_MAX segments and the inserted one,
 * or 14 segments and an HMAC TLV.
 */
#define SIDESTEP_HEADER_MAX (40 + 8 + 16 * (SIDESTEP_SEGMENTS_MAX + 1))

/*
 * Header that a headend pushes (ENCAPS) or inserts (INSERT). All fields of .header are final except
 * those that depend on the packet: traffic class, flow label, payload length, next header and, for
 * INSERT, Segment List[0].
 */
struct sidestep_policy {
	/* bytes of .header: 40, 40 + 8 + 16n, or 8 + 16n for INSERT; 40 more with an HMAC TLV */
	__u16 length;
	__u8 kind;       /* enum sidestep_policy_kind */
	__u8 flow_label; /* enum sidestep_flow_label */
	/*
	 * Path: adjacency of the first segment; 0: look it up in .view. One store of the first 8
	 * bytes changes it for all routes with this policy.
	 */
	sidestep_adjacency_id adjacency;
	sidestep_view_id view; /* FIB view of the first segment; 0: that of the port */
	/* key of the HMAC TLV: it has signed .header or, for INSERT, signs the packet; 0: none */
	sidestep_key_slot hmac_key;
	/*
	 * While .session or .adjacency is down, packets take .backup. 0: no session, or no backup.
	 * One store of both changes them.
	 */
	sidestep_session_id session;
	sidestep_policy_id backup;
	__u8 first[16];                   /* first segment: the new destination address */
	__u8 header[SIDESTEP_HEADER_MAX]; /* network order, as on the wire */
};

/* LIMIT: sessions of all paths: one for each flow of a path. */
#define SIDESTEP_SESSIONS 8192

/* session.answered: the state in the last answer (RFC 5880 4.1), in the low bits of its time. */
#define SIDESTEP_ANSWER_STATE 3u

/*
 * Session that probes a path. The control plane writes the fields from .discriminator on before a
 * discriminator refers to the record, and .down at any time. The packet path writes the others.
 */
struct sidestep_session {
	/* arrival of the last answer, in nanoseconds (monotonic), with its state; 0: none yet */
	__u64 answered;
	__u64 answers;       /* number of them */
	__u32 discriminator; /* of this end; 0: unused record */
	__u32 remote;        /* discriminator of the reflector; that of this end for a loopback */
	__u32 down;          /* 1: policies with this session take their backup */
	__u32 reserved;      /* 0 */
	__u8 source[16];     /* of the answers, for a loopback */
	__u8 spare[16];      /* 0 */
};

/* HMAC algorithms, numbered as in include/uapi/linux/seg6_hmac.h. IANA has no registry for them. */
enum sidestep_hmac_algorithm {
	SIDESTEP_HMAC_SHA1 = 1,
	SIDESTEP_HMAC_SHA256 = 2,
};

/*
 * HMAC key as the two hash states after its first block (RFC 2104 4). These states suffice to sign.
 */
struct sidestep_hmac_key {
	__u32 id;         /* HMAC Key ID */
	__u32 algorithm;  /* enum sidestep_hmac_algorithm */
	__u64 generation; /* changes with the ID, the algorithm or the secret */
	__u32 inner[8];   /* state after the key with ipad; SHA-1 uses the first five words */
	__u32 outer[8];   /* state after the key with opad */
};

/* Cached HMAC of a text. */
struct sidestep_hmac_known {
	__u64 generation;                  /* of the key; 0: unused entry */
	__u8 text[SIDESTEP_HMAC_TEXT_MAX]; /* padded for the hash */
	__u64 mac[4];
};

/* HMAC buffers and cache of one CPU. Only the packet path uses them (hmac/mac.h). */
struct sidestep_hmac_work {
	__u8 text[2 * SIDESTEP_HMAC_TEXT_MAX]; /* inner text, followed by the outer one */
	__u32 state[8];
	__u32 schedule[16];
	__u64 mac[4]; /* result, in the form of the TLV */
	struct sidestep_hmac_known known[SIDESTEP_HMAC_KNOWN];
};

/*
 * Learned outer headers as the proxy restores them. The fields that differ between packets are 0:
 * traffic class, flow label, Payload Length.
 */
struct sidestep_headers {
	__u32 length;                     /* bytes, a multiple of 8 */
	__u32 hash;                       /* of .bytes, if flows share the record */
	__u8 bytes[SIDESTEP_LEARNED_MAX]; /* network order, as on the wire */
};

/*
 * State of a dynamic proxy. The control plane writes the fields before .version, the packet path
 * all others. SIDESTEP_LEARNED records of proxies come first. SIDESTEP_HEADER_SETS records for each
 * flow table follow; their .used is 0.
 */
struct sidestep_learned {
	__u32 used; /* 1: the proxy exists */
	__u32 age;  /* minimum seconds between two changes of the learned headers */
	/*
	 * number of flows, a power of two, whose headers are in header sets; 0: one header set, in
	 * this record
	 */
	__u32 flows;
	sidestep_flow_table_id table; /* flow table, 1 to SIDESTEP_FLOW_TABLES */
	__u64 seed; /* of the flow hash; secret, so that senders cannot choose colliding flows */
	/* counts the changes; 0: nothing learned yet. Written last (table/learned.h) */
	__u64 version;
	/* of the last change, or of a flow's last packet, in nanoseconds (monotonic) */
	__u64 time;
	__u64 busy; /* lock: a CPU writes */
	/* the current version is at .version % SIDESTEP_LEARNED_SLOTS */
	struct sidestep_headers headers[SIDESTEP_LEARNED_SLOTS];
};

/* Packets of one direction between two ends. Only the packet path uses it (table/flows.h). */
struct sidestep_flow {
	__u64 key[5];   /* flow_key() */
	__u32 sequence; /* odd during a write */
	__u32 used;     /* time of the last packet to the service, in units of 2^FLOW_TICK ns */
	/* version << 16 | number of a record of SIDESTEP_HEADER_SETS; 0: unused entry */
	__u64 header_set;
	__u64 time; /* when the flow got its header set, in nanoseconds (monotonic) */
};

/* Bucket of a flow table. */
struct sidestep_flow_set {
	__u64 busy;        /* lock: a CPU writes */
	__u64 evicted;     /* number of flows that were replaced */
	__u64 reserved[6]; /* 0; aligns flows to cache lines */
	struct sidestep_flow flows[SIDESTEP_FLOW_WAYS];
};
#define SIDESTEP_FLOW_SETS (SIDESTEP_FLOWS / SIDESTEP_FLOW_WAYS)

/* Elements of the maps: flow sets of all tables; records of proxies and header sets. */
#define SIDESTEP_FLOW_SETS_TOTAL (SIDESTEP_FLOW_TABLES * SIDESTEP_FLOW_SETS)
#define SIDESTEP_LEARNED_TOTAL (SIDESTEP_LEARNED + 1 + SIDESTEP_FLOW_TABLES * SIDESTEP_HEADER_SETS)

/* Per-CPU counters. Each packet counts once: received = forwarded + punted + dropped. */
struct sidestep_port_counters {
	/* from this port; bytes include the Ethernet header */
	__u64 received_packets, received_bytes;
	__u64 forwarded, punted, dropped; /* verdicts on these packets */
	/* sent by Sidestep out of this interface, from any port */
	__u64 sent_packets, sent_bytes;
	__u64 reserved;
};

struct sidestep_route_counters {
	__u64 packets, bytes; /* matched and processed; bytes are layer 3 as received */
	__u64 errors;         /* matched, then dropped by a check of the behavior */
	__u64 not_learned;    /* errors on the return path, before the proxy learned headers */
	__u64 no_srh;         /* returned to END_AM without an SRH, not by the service itself */
};

#define SIDESTEP_ASSERT_SIZE(type, size) _Static_assert(sizeof(type) == (size), #type)
SIDESTEP_ASSERT_SIZE(struct sidestep_port, 64);
SIDESTEP_ASSERT_SIZE(struct sidestep_route, 32);
SIDESTEP_ASSERT_SIZE(struct sidestep_group, 8 + 4 * SIDESTEP_GROUP_SLOTS);
SIDESTEP_ASSERT_SIZE(struct sidestep_adjacency, 32);
SIDESTEP_ASSERT_SIZE(struct sidestep_resolve_request, 24);
SIDESTEP_ASSERT_SIZE(struct sidestep_policy, 24 + 16 + SIDESTEP_HEADER_MAX);
SIDESTEP_ASSERT_SIZE(struct sidestep_session, 64);
SIDESTEP_ASSERT_SIZE(struct sidestep_hmac_key, 80);
SIDESTEP_ASSERT_SIZE(struct sidestep_hmac_known, 8 + SIDESTEP_HMAC_TEXT_MAX + 32);
SIDESTEP_ASSERT_SIZE(struct sidestep_flow, 64);
SIDESTEP_ASSERT_SIZE(struct sidestep_flow_set, 64 + 64 * SIDESTEP_FLOW_WAYS);
SIDESTEP_ASSERT_SIZE(struct sidestep_learned,
		     48 + SIDESTEP_LEARNED_SLOTS * (8 + SIDESTEP_LEARNED_MAX));
SIDESTEP_ASSERT_SIZE(struct sidestep_port_counters, 64);
SIDESTEP_ASSERT_SIZE(struct sidestep_route_counters, 40);

/*
 * Steps of a packet that env_trace() reports, in order. The native target and the traced kernel
 * programs (trace.bpf.h) report them; the plain kernel programs do not.
 */
enum sidestep_trace_kind {
	SIDESTEP_TRACE_PORT = 1, /* a: port index, b: bytes of the frame */
	/* a: IP version (0: a frame), b: offset of the header; address: destination */
	SIDESTEP_TRACE_PARSED = 2,
	SIDESTEP_TRACE_LOOKUP = 3,   /* a: view, b: route or 0; address: key */
	SIDESTEP_TRACE_BEHAVIOR = 4, /* a: action, b: route */
	SIDESTEP_TRACE_SRH = 5,      /* a: offset, b: new Segments Left; address: new destination */
	SIDESTEP_TRACE_POP = 6,      /* a: offset of the SRH, b: its length (PSP) */
	SIDESTEP_TRACE_DECAP =
		/*
		 * a: upper-layer protocol, b: offset of the inner header; address: inner
		 * destination
		 */
	7,
	SIDESTEP_TRACE_PUSH = 8,    /* a: policy, b: bytes; address: first segment */
	SIDESTEP_TRACE_FORWARD = 9, /* a: adjacency, b: layer 3 length */
	SIDESTEP_TRACE_CSID = 10,   /* a: block bits, b: function bits; address: new destination */
	SIDESTEP_TRACE_CHOICE = 11, /* a: group, b: selected route */
	/* a: new Segments Left, b: new DA.Arg.Index; address: new destination */
	SIDESTEP_TRACE_REPLACE_CSID = 12,
	SIDESTEP_TRACE_SOURCE = 13, /* a: view of source addresses, b: route or 0; address: key */
	SIDESTEP_TRACE_RETURN = 14, /* b: route of the return path; address: destination */
	/* a: offset of the SRH, b: Segments Left; address: new destination */
	SIDESTEP_TRACE_MASQUERADE = 15,
	SIDESTEP_TRACE_DEMASQUERADE = 16, /* as MASQUERADE */
	/* a: learned headers, b: bytes; address: destination after the proxy */
	SIDESTEP_TRACE_LEARN = 17,
	SIDESTEP_TRACE_RESTORE = 18, /* as LEARN */
	/* a: offset of the SRH; address: its new Segment List[0] */
	SIDESTEP_TRACE_LAST_SEGMENT = 19,
	/* a: HMAC Key ID, b: reason of the failure; 0: verified */
	SIDESTEP_TRACE_HMAC = 20,
	SIDESTEP_TRACE_DSCP = 21, /* a: DSCP, b: route */
	/* a: view by port, b: route or 0; address: key */
	SIDESTEP_TRACE_PORT_HOP = 22,
	SIDESTEP_TRACE_TAG = 23, /* a: route.tag */
	/* a: discriminator, b: its record; address: destination of the answer */
	SIDESTEP_TRACE_REFLECT = 24,
	SIDESTEP_TRACE_BACKUP = 25,  /* a: policy that is down, b: its backup */
	SIDESTEP_TRACE_REROUTE = 26, /* a: adjacency that is down, b: route of its backup */
};

struct sidestep_trace {
	__u32 kind; /* enum sidestep_trace_kind */
	__u32 a, b;
	__u8 address[16]; /* network order */
};
SIDESTEP_ASSERT_SIZE(struct sidestep_trace, 28);

#endif
