/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Unaligned loads and stores, and network byte order. A load is one instruction: BPF on the
 * supported machines allows unaligned access, and natively the compiler folds the memcpy.
 */
#ifndef SIDESTEP_WIRE_BYTES_H
#define SIDESTEP_WIRE_BYTES_H

#include <linux/types.h>

/*
 * INLINE: a function that the verifier checks at each call, with its arguments. The native target
 * is a sixth of the size and compiles in a tenth of the time if the compiler chooses.
 *
 * SUBPROGRAM: a function that the BPF verifier checks once, not once for each path to it. Without
 * subprograms the verifier exceeds a million instructions. Arguments are the packet, scalars, and
 * pointers that may be NULL.
 */
#ifdef __bpf__
#define INLINE static inline __attribute__((always_inline, unused))
#define SUBPROGRAM __attribute__((noinline))
#else
#define INLINE static inline __attribute__((unused))
#define SUBPROGRAM INLINE
#endif
/* Keeps an argument of a subprogram that the body does not use. */
#define KEEP(argument) __asm__ volatile("" : : "r"(argument))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the flow hash and the header words are written for little-endian machines"
#endif

#ifdef __bpf__
#define SIDESTEP_LOAD_STORE(bits)                                                                  \
	INLINE __u##bits load##bits(const void *p)                                                 \
	{                                                                                          \
		return *(const __u##bits *)p;                                                      \
	}                                                                                          \
	INLINE void store##bits(void *p, __u##bits value)                                          \
	{                                                                                          \
		*(__u##bits *)p = value;                                                           \
	}
#else
#define SIDESTEP_LOAD_STORE(bits)                                                                  \
	INLINE __u##bits load##bits(const void *p)                                                 \
	{                                                                                          \
		__u##bits value;                                                                   \
		__builtin_memcpy(&value, p, sizeof(value));                                        \
		return value;                                                                      \
	}                                                                                          \
	INLINE void store##bits(void *p, __u##bits value)                                          \
	{                                                                                          \
		__builtin_memcpy(p, &value, sizeof(value));                                        \
	}
#endif
SIDESTEP_LOAD_STORE(8)
SIDESTEP_LOAD_STORE(16)
SIDESTEP_LOAD_STORE(32)
SIDESTEP_LOAD_STORE(64)

/* Network order to host order and vice versa. */
#define be16(x) ((__u16)__builtin_bswap16(x))
#define be32(x) __builtin_bswap32(x)
#define be64(x) __builtin_bswap64(x)

/* A constant in network order. */
#define BE16_CONST(x) ((__u16)((((x) & 0xffu) << 8) | (((x) >> 8) & 0xffu)))

/*
 * RFC 1624: updates the checksum after a change of one 16-bit word. All arguments are in network
 * order.
 */
INLINE __u16 checksum_update(__u16 checksum, __u16 from, __u16 to)
{
	__u32 sum = (__u16)~checksum + (__u32)(__u16)~from + to;

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u16)~sum;
}

/* An IPv6 address, or an IPv4 address in the first word, in network order. */
struct address {
	__u64 hi, lo; /* bytes 0-7 and 8-15 as they lie in memory */
};

INLINE struct address load_address(const void *p)
{
	struct address address = {load64(p), load64((const __u8 *)p + 8)};
	return address;
}

INLINE void store_address(void *p, struct address address)
{
	store64(p, address.hi);
	store64((__u8 *)p + 8, address.lo);
}

INLINE _Bool address_is_zero(struct address address)
{
	return (address.hi | address.lo) == 0;
}

#endif
