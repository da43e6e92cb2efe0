/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The flow table of a dynamic proxy: which header set each flow has, for both directions.
 *
 * The table is an array of buckets with SIDESTEP_FLOW_WAYS flows each. The hash of a flow selects
 * its bucket; in a full bucket, a new flow replaces the one that was unused for the longest time.
 * Memory and cost per packet are therefore bounded. Flows with equal outer headers share a header
 * set, which header_set_find() finds by a hash of its own.
 *
 * A CPU writes a flow under the lock of its bucket and keeps the sequence odd meanwhile. A reader
 * compares the sequence before and after. A flow names a version of its header set, and whoever
 * copies the headers checks the version afterwards (learned.h). A flow whose entry or header set
 * was replaced counts as unknown. It never gets the headers of another flow.
 */
#ifndef SIDESTEP_TABLE_FLOWS_H
#define SIDESTEP_TABLE_FLOWS_H

#include "../flow.h"
#include "../wire/icmp.h"
#include "learned.h"

/* LIMIT: extension headers that are walked to the ports of an inner packet. */
#define FLOW_KEY_HEADERS 4
/* Attempts to take a lock. Its holder writes about a hundred bytes. */
#define FLOW_LOCK_LOOKS 64
/*
 * Unit of the time of use, 2^24 ns (17 ms). It is coarse, because each write invalidates a shared
 * cache line.
 */
#define FLOW_TICK 24
/* Bits of the record number in sidestep_flow.header_set; the version is above them. */
#define FLOW_HEADER_SET_BITS 16
#define FLOW_KEY_WORDS 5
#define FLOW_KEY_VERSION (1ull << 40)
#define FLOW_KEY_FRAGMENT (1ull << 48)

/*
 * Reads the key of the IP packet at `at`: addresses, protocol and ports (TCP, UDP, SCTP). A
 * fragment has its identification instead of ports. Returns false if the packet cannot be read.
 */
INLINE _Bool flow_key(ENV *e, __u32 at, __u8 version, __u64 key[FLOW_KEY_WORDS])
{
	const __u8 *ip;
	__u8 proto;

	if (version == 4) {
		ip = env_bytes(e, at, IPV4_LENGTH);
		if (!ip)
			return 0;
		proto = ip[IPV4_PROTOCOL];
		key[0] = load64(ip + IPV4_SOURCE);
		key[1] = key[2] = key[3] = 0;
		key[4] = load16(ip + IPV4_FRAGMENT) & IPV4_FRAGMENT_MASK ?
				 FLOW_KEY_FRAGMENT | (__u64)proto << 32 |
					 load16(ip + IPV4_IDENTIFICATION) :
				 flow_tail(e, at + (ip[0] & 15) * 4u, proto, 1);
		key[4] |= 4 * FLOW_KEY_VERSION;
		return 1;
	}
	ip = env_bytes(e, at, IPV6_LENGTH);
	if (!ip)
		return 0;
	proto = ip[IPV6_NEXT_HEADER];
	for (int i = 0; i < 4; i++)
		key[i] = load64(ip + IPV6_SOURCE + i * 8);
	at += IPV6_LENGTH;
	for (int i = 0; i < FLOW_KEY_HEADERS; i++) {
		if (!ext_is_walked(proto))
			break;
		at = next_header(e, at, &proto);
		if (!at)
			return 0;
	}
	key[4] = flow_tail(e, at, proto, 1) | 6 * FLOW_KEY_VERSION;
	if (proto == PROTO_FRAGMENT) {
		ip = env_bytes(e, at, FRAGMENT_LENGTH);
		if (!ip)
			return 0;
		key[4] |= FLOW_KEY_FRAGMENT | load32(ip + FRAGMENT_IDENTIFICATION);
	}
	return 1;
}

/* Reads the key of the inner packet at the cursor. */
INLINE _Bool flow_key_inside(ENV *e, const struct packet *p, __u64 key[FLOW_KEY_WORDS])
{
	return flow_key(e, p->cursor, p->proto == PROTO_IPV4 ? 4 : 6, key);
}

/* Turns the key to the opposite direction. */
INLINE void flow_key_turn(__u64 key[FLOW_KEY_WORDS])
{
	__u64 hi = key[0], lo = key[1];
	__u32 ports = (__u32)key[4];

	if (key[4] >= 6 * FLOW_KEY_VERSION) {
		key[0] = key[2];
		key[1] = key[3];
		key[2] = hi;
		key[3] = lo;
	} else {
		key[0] = hi << 32 | hi >> 32;
	}
	key[4] = (key[4] & ~0xffffffffull) | (ports << 16 | ports >> 16);
}

/*
 * Returns true if the IP packet at `at` is an ICMP error (RFC 792, RFC 4443 2.1), and stores the
 * offset of the quoted packet.
 */
INLINE _Bool flow_icmp_error(ENV *e, __u32 at, __u8 version, __u32 *quoted)
{
	const __u8 *ip = env_bytes(e, at, IPV4_LENGTH), *icmp;
	__u8 proto;

	if (!ip)
		return 0;
	proto = version == 4 ? ip[IPV4_PROTOCOL] : ip[IPV6_NEXT_HEADER];
	if (proto != (version == 4 ? PROTO_ICMP : PROTO_ICMPV6))
		return 0;
	at += version == 4 ? (ip[0] & 15) * 4u : IPV6_LENGTH;
	icmp = env_bytes(e, at, ICMP_LENGTH);
	if (!icmp)
		return 0;
	*quoted = at + ICMP_LENGTH;
	if (version == 6)
		return icmp[0] < ICMPV6_INFORMATIONAL;
	return icmp[0] == ICMP_UNREACHABLE || icmp[0] == ICMP_TIME_EXCEEDED ||
	       icmp[0] == ICMP_PARAMETER_PROBLEM;
}

/*
 * Returns true if the bytes at `at` start like a packet of that version. No reader has checked a
 * quoted packet (ipv6_read, ipv4_read).
 */
INLINE _Bool flow_is_packet(ENV *e, __u32 at, __u8 version)
{
	const __u8 *ip = env_bytes(e, at, 1);

	return ip && *ip >> 4 == version && (version == 6 || (*ip & 15) >= 5);
}

/*
 * Reads the key of the flow that an ICMP error at `at` belongs to: the opposite direction of the
 * quoted packet. Returns false if the packet is not an ICMP error, or quotes no readable packet. A
 * quoted fragment does not count, because identifications differ by direction.
 */
INLINE _Bool flow_key_quoted(ENV *e, __u32 at, __u8 version, __u64 key[FLOW_KEY_WORDS])
{
	__u32 quoted = 0;

	if (!flow_icmp_error(e, at, version, &quoted) || !flow_is_packet(e, quoted, version) ||
	    !flow_key(e, quoted, version, key) || (key[4] & FLOW_KEY_FRAGMENT))
		return 0;
	flow_key_turn(key);
	return 1;
}

INLINE struct sidestep_flow_set *flow_set(ENV *e, const struct sidestep_learned *proxy,
					  const __u64 key[FLOW_KEY_WORDS])
{
	__u32 sets = proxy->flows / SIDESTEP_FLOW_WAYS;
	__u64 h = proxy->seed;

	for (int i = 0; i < FLOW_KEY_WORDS; i++)
		h = flow_mix(h, key[i]);
	return env_flow_set(e, (proxy->table - 1) * SIDESTEP_FLOW_SETS +
				       ((__u32)(h >> 32) & (sets - 1)));
}

/* Returns the header set of `flow`; 0 if its key differs. */
INLINE __u64 flow_header_set(const struct sidestep_flow *flow, const __u64 key[FLOW_KEY_WORDS])
{
	const volatile __u64 *words = flow->key;
	__u64 differs = words[4] ^ key[4];

	for (int i = 0; i < 4; i++)
		differs |= words[i] ^ key[i];
	return differs ? 0 : *(const volatile __u64 *)&flow->header_set;
}

/* Returns the position of the flow in its bucket; SIDESTEP_FLOW_WAYS if it is not there. */
INLINE __u32 flow_way(const struct sidestep_flow_set *set, const __u64 key[FLOW_KEY_WORDS])
{
	__u32 way;

#pragma clang loop unroll(disable)
	for (way = 0; way < SIDESTEP_FLOW_WAYS; way++)
		if (flow_header_set(&set->flows[way], key))
			break;
	return way;
}

/* Returns the index of the record that holds a header set. */
INLINE __u32 header_set_record(const struct sidestep_learned *proxy, __u64 header_set)
{
	return SIDESTEP_LEARNED + 1 + (proxy->table - 1) * SIDESTEP_HEADER_SETS +
	       (__u32)(header_set & (SIDESTEP_HEADER_SETS - 1));
}

/* Returns true if the record still holds the version that the flow names. */
INLINE _Bool header_set_is_current(ENV *e, __u32 index, __u64 header_set)
{
	struct sidestep_learned *learned = env_learned(e, index);

	return learned && learned_version(learned) - (header_set >> FLOW_HEADER_SET_BITS) <
				  SIDESTEP_LEARNED_SLOTS - 1;
}

/* Returns a hash of the packet's outer headers. */
SUBPROGRAM __u64 header_set_hash(ENV *e, struct packet *p)
{
	__u64 h = 0;

	if (!p)
		return 0;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < LEARNED_WORDS; i++) {
		if (i * 8 >= learned_length(p))
			break;
		h = flow_mix(h, learned_word(e, p, i));
	}
	return h;
}

/*
 * Finds the packet's outer headers among the header sets of a table, whose first record is `first`.
 * Returns version and number as in sidestep_flow.header_set. Version 0: they are not there, and the
 * record of that number was unused for the longest time.
 */
SUBPROGRAM __u64 header_set_find(ENV *e, struct packet *p, __u32 first, __u64 hash)
{
	__u32 set = ((__u32)(hash >> 32) & (SIDESTEP_HEADER_SETS / SIDESTEP_HEADER_SET_WAYS - 1)) *
		    SIDESTEP_HEADER_SET_WAYS;
	__u64 oldest = ~0ull, version;
	__u32 best = set;

	if (!p)
		return 0;
#pragma clang loop unroll(disable)
	for (__u32 way = 0; way < SIDESTEP_HEADER_SET_WAYS; way++) {
		struct sidestep_learned *learned = env_learned(e, first + set + way);
		__u64 time;

		if (!learned)
			return 0;
		version = learned_version(learned);
		if (version && learned_headers(learned, version)->hash == (__u32)hash &&
		    learned_matches(e, p, first + set + way, version)) {
			*(volatile __u64 *)&learned->time = env_now(e);
			return version << FLOW_HEADER_SET_BITS | (set + way);
		}
		time = version ? learned->time : 0;
		if (time < oldest) {
			oldest = time;
			best = set + way;
		}
	}
	return best;
}

/* Locks a bucket. Returns false if another CPU keeps the lock. */
INLINE _Bool flow_lock(struct sidestep_flow_set *set)
{
#pragma clang loop unroll(disable)
	for (int i = 0; i < FLOW_LOCK_LOOKS; i++)
		if (!env_swap(&set->busy, 1))
			return 1;
	return 0;
}

/*
 * Returns the position to replace: an unused one, or the one that was unused for the longest time.
 * Equal ones take turns.
 */
INLINE __u32 flow_oldest(const struct sidestep_flow_set *set, __u32 tick)
{
	__u32 first = (__u32)set->evicted, oldest = 0, best = first;

#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < SIDESTEP_FLOW_WAYS; i++) {
		const struct sidestep_flow *flow =
			&set->flows[(first + i) & (SIDESTEP_FLOW_WAYS - 1)];
		/* Another CPU may have used the flow after this one read the clock. */
		__s32 age = (__s32)(tick - flow->used);
		__u32 since = !flow->header_set ? ~0u : age > 0 ? (__u32)age : 0;

		if (since > oldest) {
			oldest = since;
			best = first + i;
		}
	}
	return best & (SIDESTEP_FLOW_WAYS - 1);
}

/* Records a packet of the flow to the service. */
INLINE void flow_touch(ENV *e, const struct sidestep_learned *proxy, struct sidestep_flow *flow)
{
	__u64 now = env_now(e);
	struct sidestep_learned *learned;

	if (flow->used == (__u32)(now >> FLOW_TICK))
		return;
	*(volatile __u32 *)&flow->used = (__u32)(now >> FLOW_TICK);
	learned = env_learned(e, header_set_record(proxy, flow->header_set));
	if (learned)
		*(volatile __u64 *)&learned->time = now;
}

/*
 * Returns true if the packet at the cursor has nothing to learn: its flow has the same headers, or
 * others that are too recent to change. Also true for an invalid packet, which decap_inner() drops.
 */
SUBPROGRAM __u32 flow_is_known(ENV *e, struct packet *p, __u32 index)
{
	const struct sidestep_learned *proxy = env_learned(e, index);
	__u64 key[FLOW_KEY_WORDS] = {}, header_set;
	struct sidestep_flow_set *set;
	struct sidestep_flow *flow;
	__u32 way;

	if (!p || !proxy || !flow_key_inside(e, p, key))
		return 1;
	set = flow_set(e, proxy, key);
	if (!set)
		return 1;
	way = flow_way(set, key);
	if (way == SIDESTEP_FLOW_WAYS)
		return 0;
	flow = &set->flows[way & (SIDESTEP_FLOW_WAYS - 1)];
	header_set = *(const volatile __u64 *)&flow->header_set;
	flow_touch(e, proxy, flow);
	return header_set_is_current(e, header_set_record(proxy, header_set), header_set) &&
	       (learned_matches(e, p, header_set_record(proxy, header_set),
				header_set >> FLOW_HEADER_SET_BITS) ||
		!learned_has_age(e, proxy, flow->time));
}

/* Stores the header set of the flow of the packet at the cursor; adds the flow if it is new. */
SUBPROGRAM __u32 flow_store(ENV *e, struct packet *p, __u32 index, __u64 header_set)
{
	const struct sidestep_learned *proxy = env_learned(e, index);
	__u64 key[FLOW_KEY_WORDS] = {}, now = env_now(e);
	struct sidestep_flow_set *set;
	struct sidestep_flow *flow;
	__u32 way;

	if (!p || !proxy || !flow_key_inside(e, p, key))
		return 0;
	set = flow_set(e, proxy, key);
	/* If another CPU keeps the lock, the next packet of the flow tries again. */
	if (!set || !flow_lock(set))
		return 0;
	way = flow_way(set, key);
	if (way == SIDESTEP_FLOW_WAYS) {
		way = flow_oldest(set, (__u32)(now >> FLOW_TICK));
		set->evicted += set->flows[way & (SIDESTEP_FLOW_WAYS - 1)].header_set != 0;
	}
	flow = &set->flows[way & (SIDESTEP_FLOW_WAYS - 1)];
	*(volatile __u32 *)&flow->sequence = flow->sequence + 1;
	env_barrier();
	for (int i = 0; i < FLOW_KEY_WORDS; i++)
		*(volatile __u64 *)&flow->key[i] = key[i];
	*(volatile __u64 *)&flow->header_set = header_set;
	flow->time = now;
	flow->used = (__u32)(now >> FLOW_TICK);
	env_barrier();
	*(volatile __u32 *)&flow->sequence = flow->sequence + 1;
	env_swap(&set->busy, 0);
	return 1;
}

/*
 * draft-ietf-spring-srv6-service-programming-00 6.2.1 S17.1 per flow: learns the outer headers of
 * the packet at the cursor, if its flow has others.
 */
INLINE void learn_flow(ENV *e, struct packet *p, __u32 index, const struct sidestep_learned *proxy)
{
	const struct sidestep_learned *learned;
	__u64 header_set, hash;

	if (flow_is_known(e, p, index))
		return;
	hash = header_set_hash(e, p);
	header_set = header_set_find(e, p, header_set_record(proxy, 0), hash);
	if (!(header_set >> FLOW_HEADER_SET_BITS)) {
		learned = env_learned(e, header_set_record(proxy, header_set));
		if (!learned)
			return;
		header_set |= learned_write(e, p, header_set_record(proxy, header_set),
					    learned_version(learned), (__u32)hash)
			      << FLOW_HEADER_SET_BITS;
	}
	/* Version 0: another CPU writes that record, so the next packet of the flow tries again. */
	if (header_set >> FLOW_HEADER_SET_BITS)
		flow_store(e, p, index, header_set);
}

/*
 * Finds the header set of the current packet's flow and stores it in .policy and .learned. .learned
 * is 0 if there is none. `quoted` selects the flow of the packet that an ICMP error quotes.
 */
SUBPROGRAM verdict flow_learned(ENV *e, struct packet *p, __u32 index, __u32 quoted)
{
	const struct sidestep_learned *proxy = env_learned(e, index);
	__u64 key[FLOW_KEY_WORDS] = {}, header_set;
	const struct sidestep_flow *flow;
	struct sidestep_flow_set *set;
	__u32 way, sequence;

	if (!p || !proxy)
		return punt(unsupported);
	p->learned = 0;
	if (!(quoted ? flow_key_quoted(e, p->l3, p->version, key) :
		       flow_key(e, p->l3, p->version, key)))
		return VERDICT_CONTINUE;
	set = flow_set(e, proxy, key);
	if (!set)
		return punt(unsupported);
	way = flow_way(set, key);
	if (way == SIDESTEP_FLOW_WAYS)
		return VERDICT_CONTINUE;
	flow = &set->flows[way & (SIDESTEP_FLOW_WAYS - 1)];
	sequence = *(const volatile __u32 *)&flow->sequence;
	env_barrier();
	header_set = flow_header_set(flow, key);
	env_barrier();
	if (!header_set || (sequence & 1) || *(const volatile __u32 *)&flow->sequence != sequence)
		return VERDICT_CONTINUE;
	p->policy = header_set_record(proxy, header_set);
	if (header_set_is_current(e, p->policy, header_set))
		p->learned = header_set >> FLOW_HEADER_SET_BITS;
	return VERDICT_CONTINUE;
}

#endif
