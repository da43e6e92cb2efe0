/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Loads and stores of unaligned bytes, and the byte order of the wire. BPF on the supported machines allows unaligned
 * access, so there a load is one instruction; natively it is a memcpy that the compiler folds into one.
 */
#ifndef SIDESTEP_WIRE_BYTES_H
#define SIDESTEP_WIRE_BYTES_H

#include <linux/types.h>

#define INLINE static inline __attribute__((always_inline, unused))
/*
 * A function that the BPF verifier checks on its own, once, instead of once for each path that leads to it: without
 * these it passes a million instructions. Its arguments are the packet, scalars, and memory that may be NULL for all it
 * knows.
 */
#ifdef __bpf__
#define SUBPROGRAM __attribute__((noinline))
#else
#define SUBPROGRAM INLINE
#endif
/* An argument of a subprogram that has to be passed although its body does not need it. */
#define KEEP(argument) __asm__ volatile("" : : "r"(argument))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the flow hash and the header words are written for little-endian machines"
#endif

#ifdef __bpf__
#define SIDESTEP_LOAD_STORE(bits)                                                                                      \
	INLINE __u##bits load##bits(const void *p)                                                                     \
	{                                                                                                              \
		return *(const __u##bits *)p;                                                                          \
	}                                                                                                              \
	INLINE void store##bits(void *p, __u##bits value)                                                              \
	{                                                                                                              \
		*(__u##bits *)p = value;                                                                               \
	}
#else
#define SIDESTEP_LOAD_STORE(bits)                                                                                      \
	INLINE __u##bits load##bits(const void *p)                                                                     \
	{                                                                                                              \
		__u##bits value;                                                                                       \
		__builtin_memcpy(&value, p, sizeof(value));                                                            \
		return value;                                                                                          \
	}                                                                                                              \
	INLINE void store##bits(void *p, __u##bits value)                                                              \
	{                                                                                                              \
		__builtin_memcpy(p, &value, sizeof(value));                                                            \
	}
#endif
SIDESTEP_LOAD_STORE(8)
SIDESTEP_LOAD_STORE(16)
SIDESTEP_LOAD_STORE(32)
SIDESTEP_LOAD_STORE(64)

/* Network order to host order and back. */
#define be16(x) ((__u16)__builtin_bswap16(x))
#define be32(x) __builtin_bswap32(x)
#define be64(x) __builtin_bswap64(x)

/* The bytes of a constant as they lie on the wire. */
#define BE16_CONST(x) ((__u16)((((x) & 0xffu) << 8) | (((x) >> 8) & 0xffu)))

/* An IPv6 address, or an IPv4 address in the first word. Network order. */
struct address {
	__u64 hi, lo; /* bytes 0-7, 8-15 as they lie in memory */
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
