/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What Rust calls of the C headers, whose functions are inline. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../preload/options.h"

int sidestep_socket_build(struct sidestep_srh *srh, const struct in6_addr *segments, size_t count,
			  const uint32_t *hmac_key_id);
int sidestep_socket_apply(int fd, const struct sidestep_srh *srh);
int sidestep_socket_clear(int fd);
int sidestep_socket_parse(const char *text, struct options *options);
int sidestep_socket_want(const struct options *options, const struct in6_addr *to);
extern const size_t sidestep_socket_options_size;

const size_t sidestep_socket_options_size = sizeof(struct options);

int sidestep_socket_build(struct sidestep_srh *srh, const struct in6_addr *segments, size_t count,
			  const uint32_t *hmac_key_id)
{
	return sidestep_srh_build(srh, segments, count, hmac_key_id);
}

int sidestep_socket_apply(int fd, const struct sidestep_srh *srh)
{
	return sidestep_srh_apply(fd, srh);
}

int sidestep_socket_clear(int fd)
{
	return sidestep_srh_clear(fd);
}

int sidestep_socket_parse(const char *text, struct options *options)
{
	return options_parse(text, options);
}

int sidestep_socket_want(const struct options *options, const struct in6_addr *to)
{
	return options_want(options, to);
}
