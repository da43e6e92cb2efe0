/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The proxy cache: outer headers that dynamic proxies (End.AD) have learned, read on all CPUs while one of them writes.
 *
 * Headers are written into the place behind the current ones, and then the version says so. A reader copies those of the
 * version that it saw; they were not touched meanwhile if the version is at most so much further that the writer has not
 * come round to their place again. So a reader never waits, and never gets half of one chain and half of another.
 */
#ifndef SIDESTEP_TABLE_LEARNED_H
#define SIDESTEP_TABLE_LEARNED_H

#include "../packet.h"
#include "../wire/ipv6.h"
#include "../wire/srh.h"

#define LEARNED_WORDS (SIDESTEP_LEARNED_MAX / 8)

INLINE __u64 learned_version(const struct sidestep_learned *learned)
{
	return *(const volatile __u64 *)&learned->version;
}

INLINE struct sidestep_headers *learned_headers(struct sidestep_learned *learned, __u64 version)
{
	return &learned->headers[version & (SIDESTEP_LEARNED_PLACES - 1)];
}

/* Whether what was read of the headers of `version` since is theirs. */
INLINE _Bool learned_untouched(const struct sidestep_learned *learned, __u64 version)
{
	env_barrier();
	return learned_version(learned) - version < SIDESTEP_LEARNED_PLACES - 1;
}

/*
 * Word `i` of the current packet's headers as they go on: without what is each packet's own (traffic class, flow label,
 * Payload Length). 0 in *readable: it cannot be read in place.
 */
INLINE __u64 learned_word(ENV *e, const struct packet *p, __u32 i, _Bool *readable)
{
	const __u8 *bytes = env_bytes(e, p->l3 + i * 8, 8);
	__u64 word;

	*readable = bytes != 0;
	if (!bytes)
		return 0;
	word = load64(bytes);
	if (i == 0)
		return (word & 0x00ff000000000000ull) | (__u64)(p->hop_limit - 1u) << 56 | 0x60;
	if (i == IPV6_DESTINATION / 8)
		return p->destination.hi;
	if (i == IPV6_DESTINATION / 8 + 1)
		return p->destination.lo;
	if (p->l3 + i * 8 == p->srh)
		return (word & ~(0xffull << (8 * SRH_SEGMENTS_LEFT))) | (__u64)p->segments_left
										<< (8 * SRH_SEGMENTS_LEFT);
	return word;
}

/* Compares the headers with those of the packet, or writes them. 0: they differ, or cannot be read in place. */
INLINE _Bool learned_each(ENV *e, const struct packet *p, struct sidestep_headers *headers, __u32 length, _Bool write)
{
	__u64 *words = (__u64 *)headers->bytes;

#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < LEARNED_WORDS; i++) {
		_Bool readable;
		__u64 word;

		if (i * 8 >= length)
			break;
		word = learned_word(e, p, i, &readable);
		if (!readable)
			return 0;
		if (write)
			words[i] = word;
		else if (words[i] != word)
			return 0;
	}
	return 1;
}

/*
 * draft-ietf-spring-srv6-service-programming-00 6.2.1 S17.1: what is before the cursor is learned if it is not what is
 * known already, and `age` has passed since that was learned. Continue, or the packet cannot be kept.
 */
SUBPROGRAM verdict learn_headers(ENV *e, struct packet *p, __u32 index)
{
	struct sidestep_learned *learned = env_learned(e, index);
	struct sidestep_headers *headers;
	__u64 version, now;
	__u32 length;
	_Bool whole;

	if (!p || !learned)
		return punt(unsupported);
	length = p->cursor - p->l3;
	if (length > SIDESTEP_LEARNED_MAX)
		return drop(learned_length);
	version = learned_version(learned);
	headers = learned_headers(learned, version);
	if (version && headers->length == length && learned_each(e, p, headers, length, 0))
		return VERDICT_CONTINUE;
	now = env_now(e);
	/* Another CPU may have learned after this one read the clock: that is not long ago, but less than nothing. */
	if (version && (__s64)(now - learned->time) < (__s64)(learned->age * 1000000000ull))
		return VERDICT_CONTINUE;
	/* Another CPU learns at this moment, or has since the look at the age: what comes next is compared again. */
	if (env_swap(&learned->busy, 1))
		return VERDICT_CONTINUE;
	if (learned_version(learned) != version) {
		env_swap(&learned->busy, 0);
		return VERDICT_CONTINUE;
	}
	version++;
	headers = learned_headers(learned, version);
	whole = learned_each(e, p, headers, length, 1);
	headers->length = length;
	learned->time = now;
	if (whole)
		env_swap(&learned->version, version);
	env_swap(&learned->busy, 0);
	return whole ? VERDICT_CONTINUE : punt(ext_chain);
}

INLINE verdict learn(ENV *e, struct packet *p, __u32 index)
{
	verdict v = learn_headers(e, p, index);

	if (v == VERDICT_CONTINUE)
		env_trace(e, SIDESTEP_TRACE_LEARN, index, p->cursor - p->l3, p->destination);
	return v;
}

#endif
