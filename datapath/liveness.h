/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Liveness of paths by Seamless BFD (RFC 7880, RFC 7881): the reflector, and answers to the probes of
 * this node. A probe for a reflector becomes its own answer, of the same length, and is looked up like
 * any packet. Neither the kernel nor the daemon takes part. The daemon sends the probes of this node;
 * the packet path notes when their answers arrive, so that a late daemon does not take a path for dead.
 */
#ifndef SIDESTEP_LIVENESS_H
#define SIDESTEP_LIVENESS_H

#include "packet.h"
#include "wire/ipv6.h"
#include "wire/udp.h"

/* Shortest interval that the reflector serves, in microseconds (RFC 5880 4.1). */
#define REFLECT_MIN_RX 1000u

/* Returns true for a packet to an address of this node that liveness() has to read. */
INLINE _Bool liveness_is_asked(const struct packet *p, const struct sidestep_route *r)
{
	return r->reason == PUNT_local && p->version == 6 && p->proto == PROTO_UDP &&
	       !(p->plan & ~(PLAN_STRIP | PLAN_ECN)) && !p->taken;
}

/* RFC 5880 6.8.6: returns true for a control packet that is valid before any session is known. */
INLINE _Bool bfd_is_valid(const __u8 *bfd, __u32 length)
{
	return (bfd[BFD_VERSION] & BFD_VERSION_MASK) == BFD_VERSION_1 && bfd[BFD_MULTIPLIER] &&
	       bfd[BFD_LENGTH_FIELD] >= BFD_LENGTH && bfd[BFD_LENGTH_FIELD] <= length &&
	       !(bfd[BFD_STATE] & (BFD_AUTHENTICATION | BFD_MULTIPOINT)) &&
	       load32(bfd + BFD_MY_DISCRIMINATOR);
}

/*
 * Takes the answer to a probe of this node: notes when it arrived, and its state. RFC 7880 7.3.3: it
 * has the discriminators of both ends, and Demand is clear.
 */
INLINE verdict session_answer(ENV *e, __u32 index, const __u8 *ip, const __u8 *udp)
{
	struct sidestep_session *session = env_session(e, index);
	const __u8 *bfd = udp + UDP_LENGTH;
	struct address source = load_address(ip + IPV6_SOURCE);
	__u8 state = bfd[BFD_STATE] >> BFD_STATE_SHIFT;
	__u32 remote = load32(bfd + BFD_MY_DISCRIMINATOR);
	_Bool loopback;

	if (!session)
		return punt(local);
	loopback = session->remote == session->discriminator;
	/* FRR answers from any of its addresses, so the discriminators decide. */
	if (be32(remote) != session->remote)
		return drop(bfd);
	if (loopback && (source.hi != ((const volatile __u64 *)session->source)[0] ||
			 source.lo != ((const volatile __u64 *)session->source)[1]))
		return drop(bfd);
	if (load16(udp + UDP_DESTINATION_PORT) == BFD_ECHO_PORT) {
		if (!loopback)
			return drop(bfd);
	} else if (loopback || load16(udp + UDP_SOURCE_PORT) != SBFD_PORT ||
		   (bfd[BFD_STATE] & BFD_DEMAND)) {
		return drop(bfd);
	}
	/* RFC 7880 7.2.3: a reflector has no other state. */
	if (state != BFD_STATE_UP >> BFD_STATE_SHIFT && state != BFD_STATE_ADMIN_DOWN)
		return drop(bfd);
	session->answered = (env_now(e) & ~(__u64)SIDESTEP_ANSWER_STATE) | state;
	session->answers++;
	return drop(probe_answer);
}

/*
 * Decides about a UDP packet to an address of this node. An answer to a probe of this node ends here. A
 * probe of S-BFD is planned to return to its source: the verdict is a lookup, with the counter slot of
 * the reflector. All others stay with the kernel, also those for a discriminator that is not of
 * Sidestep.
 */
SUBPROGRAM verdict liveness(ENV *e, struct packet *p)
{
	const struct sidestep_port *port = env_port(e, env_ifindex(e));
	const struct sidestep_route *r;
	struct address key = {0, 0};
	const __u8 *ip, *udp, *bfd;
	__u32 index, length;
	__u16 from, to;
	_Bool valid;

	if (!p || !port || !port->discriminators)
		return punt(local);
	udp = env_bytes(e, p->cursor, UDP_LENGTH + BFD_LENGTH);
	ip = env_bytes(e, p->l3, IPV6_LENGTH);
	if (!udp || !ip)
		return punt(local);
	from = load16(udp + UDP_SOURCE_PORT);
	to = load16(udp + UDP_DESTINATION_PORT);
	if (to != SBFD_PORT && to != BFD_ECHO_PORT && from != SBFD_PORT)
		return punt(local);
	bfd = udp + UDP_LENGTH;
	key.hi = load32(bfd + BFD_YOUR_DISCRIMINATOR);
	index = env_fib_lookup(e, port->discriminators, key);
	r = env_route(e, index);
	if (!index || !r)
		return punt(local);
	/* RFC 8200 8.1: UDP over IPv6 has a checksum. */
	length = be16(load16(udp + UDP_LENGTH_FIELD));
	valid = length >= UDP_LENGTH + BFD_LENGTH && p->cursor + length <= p->end &&
		load16(udp + UDP_CHECKSUM) && bfd_is_valid(bfd, length - UDP_LENGTH);
	if (r->action == SIDESTEP_ROUTE_SESSION)
		return valid ? session_answer(e, r->policy, ip, udp) : drop(bfd);
	if (r->action != SIDESTEP_ROUTE_REFLECT || to != SBFD_PORT)
		return punt(local);
	/*
	 * RFC 7881 3: an answer comes from the reflector's port. RFC 7880 7.2.2: a probe has Demand
	 * set, and an answer has not. An answer is therefore never answered.
	 */
	if (!valid || from == SBFD_PORT || !(bfd[BFD_STATE] & BFD_DEMAND))
		return drop(bfd);
	p->plan |= r->inner ? PLAN_REFLECT : PLAN_REFLECT | PLAN_REFLECT_ADMIN_DOWN;
	p->taken |= TAKEN_REFLECTED;
	p->destination = load_address(ip + IPV6_SOURCE);
	p->hop_limit = 255;
	p->hops = 0;
	env_trace(e, SIDESTEP_TRACE_REFLECT, be32((__u32)key.hi), index, p->destination);
	return VERDICT_LOOKUP | r->counter;
}

/*
 * Makes the answer of the probe (RFC 7880 7.2.3), after the plan has given the packet its size. The sum
 * of all 16-bit words changes only by the state and the interval, because all others change places.
 */
SUBPROGRAM int reflect_write(ENV *e, const struct packet *p)
{
	__u32 at, first, was, interval, mine;
	struct address source;
	__u8 *ip, *udp, *bfd;
	__u8 state;
	__u16 port;

	if (!p)
		return -1;
	at = p->frame_length - (p->end - p->l3);
	ip = env_bytes(e, at, IPV6_LENGTH);
	udp = env_bytes(e, at + IPV6_LENGTH, UDP_LENGTH + BFD_LENGTH);
	if (!ip || !udp)
		return -1;
	source = load_address(ip + IPV6_SOURCE);
	store_address(ip + IPV6_SOURCE, load_address(ip + IPV6_DESTINATION));
	store_address(ip + IPV6_DESTINATION, source);
	ip[IPV6_HOP_LIMIT] = 255;
	port = load16(udp + UDP_SOURCE_PORT);
	store16(udp + UDP_SOURCE_PORT, load16(udp + UDP_DESTINATION_PORT));
	store16(udp + UDP_DESTINATION_PORT, port);
	bfd = udp + UDP_LENGTH;
	mine = load32(bfd + BFD_MY_DISCRIMINATOR);
	store32(bfd + BFD_MY_DISCRIMINATOR, load32(bfd + BFD_YOUR_DISCRIMINATOR));
	store32(bfd + BFD_YOUR_DISCRIMINATOR, mine);
	first = load32(bfd);
	interval = load32(bfd + BFD_MIN_RX);
	state = bfd[BFD_STATE] & BFD_POLL ? BFD_FINAL : 0;
	if (p->plan & PLAN_REFLECT_ADMIN_DOWN) {
		bfd[BFD_VERSION] = BFD_VERSION_1 | BFD_DIAG_ADMIN_DOWN;
		bfd[BFD_STATE] = (__u8)(BFD_STATE_ADMIN_DOWN | state);
	} else {
		bfd[BFD_VERSION] = BFD_VERSION_1;
		bfd[BFD_STATE] = (__u8)(BFD_STATE_UP | state);
	}
	store32(bfd + BFD_MIN_RX, be32(REFLECT_MIN_RX));
	was = first;
	first = load32(bfd);
	at += IPV6_LENGTH + UDP_CHECKSUM;
	if (env_update_checksum(e, at, was, first) < 0)
		return -1;
	return env_update_checksum(e, at, interval, be32(REFLECT_MIN_RX));
}

#endif
