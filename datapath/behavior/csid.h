/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * NEXT-C-SID (RFC 9800 4.1): the destination address is a container, Locator-Block | C-SID |
 * Argument. If the Argument is not 0, it contains the next C-SID, which moves up to the block. The
 * packet needs no SRH for this.
 */
#ifndef SIDESTEP_BEHAVIOR_CSID_H
#define SIDESTEP_BEHAVIOR_CSID_H

#include "../packet.h"

/* An address as a number: bits 127-64 and 63-0. */
struct address_bits {
	__u64 high, low;
};

INLINE struct address_bits address_shift_left(struct address_bits a, __u32 bits)
{
	struct address_bits out;

	/* C does not define a shift by 64 or more. */
	if (bits >= 64) {
		a.high = a.low;
		a.low = 0;
		bits -= 64;
	}
	bits &= 63;
	out.high = bits ? a.high << bits | a.low >> (64 - bits) : a.high;
	out.low = a.low << bits;
	return out;
}

/* Returns a mask of the first `bits` bits, 0 to 128. */
INLINE struct address_bits address_mask(__u32 bits)
{
	struct address_bits mask = {~0ull, ~0ull};

	if (bits >= 128)
		return mask;
	if (!bits)
		mask.high = mask.low = 0;
	return address_shift_left(mask, 128 - bits);
}

/*
 * RFC 9800 4.1.1 S01 to S08. Returns 1 if the next C-SID of the container became the destination.
 * Returns 0 if the Argument is 0: the SID is then processed without this flavor.
 */
INLINE int csid_next(ENV *e, struct packet *p, const struct sidestep_route *r)
{
	struct address_bits address = {be64(p->destination.hi), be64(p->destination.lo)};
	struct address_bits block = address_mask(r->block_bits);
	struct address_bits locator = address_mask((__u32)r->block_bits + r->function_bits);
	struct address_bits shifted;

	if (!(r->flags & SIDESTEP_ROUTE_NEXT_CSID) ||
	    !((address.high & ~locator.high) | (address.low & ~locator.low)))
		return 0;
	shifted = address_shift_left(address, r->function_bits);
	/*
	 * With a short function, the shift moves bits of the block within the block. The mask
	 * removes them.
	 */
	address.high = (address.high & block.high) | (shifted.high & ~block.high);
	address.low = (address.low & block.low) | (shifted.low & ~block.low);
	p->destination.hi = be64(address.high);
	p->destination.lo = be64(address.low);
	p->plan |= PLAN_DESTINATION;
	env_trace(e, SIDESTEP_TRACE_CSID, r->block_bits, r->function_bits, p->destination);
	return 1;
}

#endif
