/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * DPDK's prefix tables behind plain functions, with the loops that are measured. Built into a shared object of its own
 * where libdpdk is installed, so that the program itself needs no DPDK. Addresses as they lie in a packet; next hop 0:
 * no route.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_fib6.h>
#include <rte_lpm6.h>
#include <rte_malloc.h>

/* Addresses per bulk lookup: a burst of packets. */
#define BULK 64

typedef uint8_t address[16];

/* Returns a negative value on failure. */
int dpdk_start(int argc, char **argv)
{
	return rte_eal_init(argc, argv);
}

const char *dpdk_error(void)
{
	return rte_strerror(rte_errno);
}

/* Returns the allocated bytes of DPDK's memory. */
uint64_t dpdk_memory(void)
{
	struct rte_malloc_socket_stats stats = {0};

	rte_malloc_get_socket_stats(0, &stats);
	return stats.heap_allocsz_bytes;
}

static const char *next_name(void)
{
	static char name[32];
	static unsigned int number;

	snprintf(name, sizeof(name), "bench-%u", number++);
	return name;
}

/* Copies an address, with a data dependency of both words on the last result. `zero` is 0. */
static void follow(const address from, uint32_t last, uint64_t zero, address to)
{
	uint64_t words[2];

	memcpy(words, from, sizeof(words));
	words[0] ^= last & zero;
	words[1] ^= last & zero;
	memcpy(to, words, sizeof(words));
}

/* --- rte_fib6 --------------------------------------------------------------------------------------------------- */
void *fib6_open(uint32_t routes, uint32_t tbl8)
{
	struct rte_fib6_conf conf = {.type = RTE_FIB6_TRIE, .max_routes = (int)routes};

	conf.trie.nh_sz = RTE_FIB6_TRIE_4B;
	conf.trie.num_tbl8 = tbl8;
	return rte_fib6_create(next_name(), 0, &conf);
}

void fib6_close(void *fib)
{
	rte_fib6_free(fib);
}

int fib6_insert(void *fib, const uint8_t *prefix, uint8_t length, uint32_t hop)
{
	return rte_fib6_add(fib, prefix, length, hop);
}

int fib6_remove(void *fib, const uint8_t *prefix, uint8_t length)
{
	return rte_fib6_delete(fib, prefix, length);
}

int fib6_use_vectors(void *fib, int yes)
{
	return rte_fib6_select_lookup(fib, yes ? RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512 :
						 RTE_FIB6_LOOKUP_TRIE_SCALAR);
}

uint32_t fib6_independent(void *fib, address *addresses, uint32_t count)
{
	uint32_t sum = 0;
	uint64_t hop;

	for (uint32_t i = 0; i < count; i++) {
		rte_fib6_lookup_bulk(fib, &addresses[i], &hop, 1);
		sum += (uint32_t)hop;
	}
	return sum;
}

uint32_t fib6_dependent(void *fib, address *addresses, uint32_t count, uint64_t zero)
{
	uint32_t sum = 0;
	uint64_t hop = 0;
	address next[1];

	for (uint32_t i = 0; i < count; i++) {
		follow(addresses[i], (uint32_t)hop, zero, next[0]);
		rte_fib6_lookup_bulk(fib, next, &hop, 1);
		sum += (uint32_t)hop;
	}
	return sum;
}

uint32_t fib6_bulk(void *fib, address *addresses, uint32_t count)
{
	uint64_t hops[BULK];
	uint32_t sum = 0;

	for (uint32_t i = 0; i + BULK <= count; i += BULK) {
		rte_fib6_lookup_bulk(fib, &addresses[i], hops, BULK);
		for (uint32_t k = 0; k < BULK; k++)
			sum += (uint32_t)hops[k];
	}
	return sum;
}

void fib6_answers(void *fib, address *addresses, uint32_t count, uint32_t *answers)
{
	uint64_t hops[BULK];

	for (uint32_t i = 0; i < count; i += BULK) {
		uint32_t n = count - i < BULK ? count - i : BULK;

		rte_fib6_lookup_bulk(fib, &addresses[i], hops, (int)n);
		for (uint32_t k = 0; k < n; k++)
			answers[i + k] = (uint32_t)hops[k];
	}
}

/* --- rte_lpm6 --------------------------------------------------------------------------------------------------- */
void *lpm6_open(uint32_t routes, uint32_t tbl8)
{
	struct rte_lpm6_config config = {.max_rules = routes, .number_tbl8s = tbl8};

	return rte_lpm6_create(next_name(), 0, &config);
}

void lpm6_close(void *lpm)
{
	rte_lpm6_free(lpm);
}

int lpm6_insert(void *lpm, const uint8_t *prefix, uint8_t length, uint32_t hop)
{
	return rte_lpm6_add(lpm, prefix, length, hop);
}

int lpm6_remove(void *lpm, const uint8_t *prefix, uint8_t length)
{
	return rte_lpm6_delete(lpm, prefix, length);
}

static uint32_t lpm6_lookup(void *lpm, const uint8_t *address)
{
	uint32_t hop;

	return rte_lpm6_lookup(lpm, address, &hop) ? 0 : hop;
}

uint32_t lpm6_independent(void *lpm, address *addresses, uint32_t count)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < count; i++)
		sum += lpm6_lookup(lpm, addresses[i]);
	return sum;
}

uint32_t lpm6_dependent(void *lpm, address *addresses, uint32_t count, uint64_t zero)
{
	uint32_t sum = 0, hop = 0;
	address next;

	for (uint32_t i = 0; i < count; i++) {
		follow(addresses[i], hop, zero, next);
		hop = lpm6_lookup(lpm, next);
		sum += hop;
	}
	return sum;
}

uint32_t lpm6_bulk(void *lpm, address *addresses, uint32_t count)
{
	int32_t hops[BULK];
	uint32_t sum = 0;

	for (uint32_t i = 0; i + BULK <= count; i += BULK) {
		rte_lpm6_lookup_bulk_func(lpm, &addresses[i], hops, BULK);
		for (uint32_t k = 0; k < BULK; k++)
			sum += (uint32_t)hops[k];
	}
	return sum;
}

void lpm6_answers(void *lpm, address *addresses, uint32_t count, uint32_t *answers)
{
	for (uint32_t i = 0; i < count; i++)
		answers[i] = lpm6_lookup(lpm, addresses[i]);
}
