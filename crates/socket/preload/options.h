/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Configuration that `sidestep exec` passes to the preload library in one environment variable,
 * which child processes inherit:
 *
 *     segs=A,B,...  [ hmac=KEYID ]  [ to=PREFIX,PREFIX,... ]
 *
 * Words are separated by one space, in this order.
 */
#ifndef SIDESTEP_OPTIONS_H
#define SIDESTEP_OPTIONS_H

#include <arpa/inet.h>
#include <stdbool.h>
#include "../include/sidestep_srh.h"

#define OPTIONS_VARIABLE "SIDESTEP_EXEC"
/* LIMIT: prefixes of `to`. */
#define OPTIONS_PREFIXES 64

struct options_prefix {
	struct in6_addr address;
	unsigned int length;
};

struct options {
	struct sidestep_srh srh;
	size_t prefix_count; /* none: all destinations */
	struct options_prefix prefixes[OPTIONS_PREFIXES];
};

/* Parse error. */
enum options_result {
	OPTIONS_OK,
	OPTIONS_WORD,     /* not the words of the grammar */
	OPTIONS_SEGMENTS, /* not a list of segments that can be put on a socket */
	OPTIONS_HMAC,     /* not a number of 32 bits */
	OPTIONS_PREFIX,   /* not a list of prefixes */
};

/* Reads a decimal number up to `max` and steps over it. */
static inline bool options_number(const char **text, unsigned long max, unsigned long *number)
{
	const char *start = *text;

	for (*number = 0; **text >= '0' && **text <= '9'; (*text)++) {
		*number = *number * 10 + (unsigned long)(**text - '0');
		if (*number > max)
			return false;
	}
	return *text != start;
}

/* Reads an address, which ends at a character of `ends`, and steps over it. */
static inline bool options_address(const char **text, const char *ends, struct in6_addr *address)
{
	char word[INET6_ADDRSTRLEN];
	size_t length = strcspn(*text, ends);

	if (length >= sizeof(word))
		return false;
	memcpy(word, *text, length);
	word[length] = 0;
	*text += length;
	return inet_pton(AF_INET6, word, address) == 1;
}

/* Steps over a literal, if it is next. */
static inline bool options_skip(const char **text, const char *literal)
{
	size_t length = strlen(literal);

	if (strncmp(*text, literal, length) != 0)
		return false;
	*text += length;
	return true;
}

static inline enum options_result options_prefixes(const char **text, struct options *options)
{
	do {
		unsigned long length;
		struct options_prefix *prefix = &options->prefixes[options->prefix_count];

		if (options->prefix_count == OPTIONS_PREFIXES ||
		    !options_address(text, "/", &prefix->address) || !options_skip(text, "/") ||
		    !options_number(text, 128, &length))
			return OPTIONS_PREFIX;
		prefix->length = (unsigned int)length;
		options->prefix_count++;
	} while (options_skip(text, ","));
	return OPTIONS_OK;
}

/* Parses the text. `options` is valid only if the result is OPTIONS_OK. */
static inline enum options_result options_parse(const char *text, struct options *options)
{
	struct in6_addr segments[SIDESTEP_SRH_SEGMENTS_MAX];
	size_t count = 0;
	unsigned long number;
	uint32_t key_id, *hmac_key_id = NULL;

	options->prefix_count = 0;
	if (!options_skip(&text, "segs="))
		return OPTIONS_WORD;
	do {
		if (count == SIDESTEP_SRH_SEGMENTS_MAX ||
		    !options_address(&text, ", ", &segments[count]))
			return OPTIONS_SEGMENTS;
		count++;
	} while (options_skip(&text, ","));
	if (options_skip(&text, " hmac=")) {
		if (!options_number(&text, UINT32_MAX, &number))
			return OPTIONS_HMAC;
		key_id = (uint32_t)number;
		hmac_key_id = &key_id;
	}
	if (options_skip(&text, " to=") && options_prefixes(&text, options) != OPTIONS_OK)
		return OPTIONS_PREFIX;
	if (*text)
		return OPTIONS_WORD;
	return sidestep_srh_build(&options->srh, segments, count, hmac_key_id) == 0 ?
		       OPTIONS_OK :
		       OPTIONS_SEGMENTS;
}

static inline bool options_in_prefix(const struct options_prefix *prefix,
				     const struct in6_addr *address)
{
	unsigned int bytes = prefix->length / 8, bits = prefix->length % 8;
	unsigned char mask = (unsigned char)(0xff00 >> bits);

	return memcmp(&prefix->address, address, bytes) == 0 &&
	       (bits == 0 ||
		((prefix->address.s6_addr[bytes] ^ address->s6_addr[bytes]) & mask) == 0);
}

/*
 * Returns whether packets to this address get the header. Never for addresses that a router does
 * not forward, and for IPv4: unspecified (which connect(2) treats as this host), loopback,
 * link-local, multicast, IPv4-mapped.
 */
static inline bool options_want(const struct options *options, const struct in6_addr *to)
{
	size_t at;

	if (IN6_IS_ADDR_UNSPECIFIED(to) || IN6_IS_ADDR_LOOPBACK(to) || IN6_IS_ADDR_LINKLOCAL(to) ||
	    IN6_IS_ADDR_MULTICAST(to) || IN6_IS_ADDR_V4MAPPED(to))
		return false;
	for (at = 0; at < options->prefix_count; at++) {
		if (options_in_prefix(&options->prefixes[at], to))
			return true;
	}
	return options->prefix_count == 0;
}

#endif
