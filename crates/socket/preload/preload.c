/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Preload library of `sidestep exec`. When the program sets the destination of a TCP or UDP socket,
 * the library sets or removes the header on the socket, and then continues the call.
 *
 * Nothing is kept of sockets. The kernel's state determines whether a socket has the header. A
 * routing header that the program set itself is kept. A socket that cannot get the header does not
 * send: the call fails with the reason.
 *
 * The library never writes to standard output, and errno is that of the original call.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "options.h"

/* Exit status for a program that cannot be run, as in sh. */
#define EXIT_CANNOT_RUN 126

static struct options options;
/* Whether the environment variable is set and valid. */
static bool asked;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int (*real_connect)(int, const struct sockaddr *, socklen_t);
static ssize_t (*real_sendto)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
static ssize_t (*real_sendmsg)(int, const struct msghdr *, int);
static int (*real_sendmmsg)(int, struct mmsghdr *, unsigned int, int);

/*
 * Held shared while a datagram is sent by a socket whose header is right for its destination.
 * Held exclusively while a header is changed for a datagram. If a signal handler sends while its
 * thread holds the lock, it continues without the lock.
 */
static pthread_rwlock_t changing = PTHREAD_RWLOCK_INITIALIZER;
static __thread int held __attribute__((tls_model("initial-exec")));

static void after_fork(void)
{
	/* Another thread of the parent may have held the lock. */
	if (!held)
		changing = (pthread_rwlock_t)PTHREAD_RWLOCK_INITIALIZER;
}

/*
 * ISO C has no conversion between pointers to functions and to objects; POSIX allows it for
 * dlsym.
 */
static void next(void *function, const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	memcpy(function, &found, sizeof(found));
}

static void start(void)
{
	const char *text = getenv(OPTIONS_VARIABLE);

	next(&real_connect, "connect");
	next(&real_sendto, "sendto");
	next(&real_sendmsg, "sendmsg");
	next(&real_sendmmsg, "sendmmsg");
	if (!text)
		return;
	if (options_parse(text, &options) != OPTIONS_OK) {
		/* Exit, because the packets of the program would not take the requested path. */
		fprintf(stderr, "sidestep exec: invalid value of %s: %s\n", OPTIONS_VARIABLE, text);
		_exit(EXIT_CANNOT_RUN);
	}
	pthread_atfork(NULL, NULL, after_fork);
	asked = true;
}

__attribute__((constructor)) static void prepare(void)
{
	int before = errno;

	pthread_once(&once, start);
	errno = before;
}

/* Returns IPPROTO_TCP, IPPROTO_UDP, and so on, or -1 if the descriptor is not a socket. */
static int protocol_of(int fd)
{
	int protocol = -1;
	socklen_t length = sizeof(protocol);

	return getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0 ? protocol : -1;
}

/* Returns the IPv6 address of a destination, or NULL. The family of the socket is checked later. */
static const struct in6_addr *address_in(const void *name, socklen_t length)
{
	sa_family_t family;

	/* As in Linux (SIN6_LEN_RFC2133), the scope may be missing. */
	if (!asked || !name || length < offsetof(struct sockaddr_in6, sin6_scope_id))
		return NULL;
	memcpy(&family, name, sizeof(family));
	return family == AF_INET6 ? &((const struct sockaddr_in6 *)name)->sin6_addr : NULL;
}

/* State of a socket. */
enum header { HEADER_NONE, HEADER_OURS, HEADER_OTHER };

static enum header on_socket(int fd)
{
	struct sidestep_srh srh;

	/* If the header cannot be read, the socket does not get one. */
	if (sidestep_srh_get(fd, &srh) != 0)
		return HEADER_OTHER;
	if (srh.length == 0)
		return HEADER_NONE;
	if (srh.length == options.srh.length &&
	    memcmp(srh.bytes, options.srh.bytes, srh.length) == 0)
		return HEADER_OURS;
	return HEADER_OTHER;
}

/* Required state of a socket for a destination, and the necessary change. */
enum change { CHANGE_NONE, CHANGE_SET, CHANGE_CLEAR };

static enum change change_for(int fd, bool want)
{
	enum header header = on_socket(fd);

	if (want && header == HEADER_NONE)
		return CHANGE_SET;
	return !want && header == HEADER_OURS ? CHANGE_CLEAR : CHANGE_NONE;
}

static int carry_out(int fd, enum change change)
{
	switch (change) {
	case CHANGE_SET:
		return sidestep_srh_apply(fd, &options.srh);
	case CHANGE_CLEAR:
		return sidestep_srh_clear(fd);
	case CHANGE_NONE:
		break;
	}
	return 0;
}

int connect(int fd, const struct sockaddr *name, socklen_t length)
{
	int before = errno, protocol;
	const struct in6_addr *to;

	prepare();
	to = address_in(name, length);
	protocol = to ? protocol_of(fd) : -1;
	if ((protocol == IPPROTO_TCP || protocol == IPPROTO_UDP) &&
	    carry_out(fd, change_for(fd, options_want(&options, to))) != 0)
		return -1;
	errno = before;
	return real_connect(fd, name, length);
}

/*
 * Returns the destination of a datagram. Returns NULL if the call gives none, or for TCP, which
 * connect has handled. With MSG_FASTOPEN the call itself connects.
 */
static const struct in6_addr *destination(int fd, const void *name, socklen_t length, int flags)
{
	const struct in6_addr *to = address_in(name, length);
	int protocol = to ? protocol_of(fd) : -1;

	return protocol == IPPROTO_UDP || (protocol == IPPROTO_TCP && (flags & MSG_FASTOPEN)) ?
		       to :
		       NULL;
}

/* State of a call in progress that sends. */
struct sending {
	int fd;
	bool locked;
	enum change undo;
};

/* Also runs if the thread is cancelled during the call. */
static void end_sending(void *of)
{
	struct sending *sending = of;
	int before = errno;

	/*
	 * Ignore errors: the same change worked before, and the socket may have been closed
	 * meanwhile.
	 */
	(void)carry_out(sending->fd, sending->undo);
	if (sending->locked) {
		held--;
		pthread_rwlock_unlock(&changing);
	}
	errno = before;
}

/*
 * Prepares a socket for one destination. A socket that gets the header keeps it, unless the
 * socket is connected and had the right state for its peer. A socket that loses the header gets
 * it back after the call. Returns 0, or -1 with errno.
 */
static int begin_sending(struct sending *sending, int fd, int flags, bool want)
{
	enum change change;
	struct sockaddr_storage peer;
	socklen_t length = sizeof(peer);

	*sending = (struct sending){.fd = fd, .undo = CHANGE_NONE};
	/* TCP connects here, which may block for a long time. */
	if (flags & MSG_FASTOPEN)
		return carry_out(fd, change_for(fd, want));
	sending->locked = !held && pthread_rwlock_rdlock(&changing) == 0;
	held += sending->locked;
	change = change_for(fd, want);
	if (change == CHANGE_NONE)
		return 0;
	if (sending->locked) {
		pthread_rwlock_unlock(&changing);
		sending->locked = pthread_rwlock_wrlock(&changing) == 0;
		held -= !sending->locked;
		/* Another thread may have changed the header meanwhile. */
		change = change_for(fd, want);
	}
	if (carry_out(fd, change) != 0) {
		end_sending(sending);
		return -1;
	}
	if (change == CHANGE_CLEAR)
		sending->undo = CHANGE_SET;
	else if (change == CHANGE_SET && getpeername(fd, (struct sockaddr *)&peer, &length) == 0)
		sending->undo = CHANGE_CLEAR;
	return 0;
}

ssize_t sendto(int fd, const void *data, size_t size, int flags, const struct sockaddr *name,
	       socklen_t length)
{
	int before = errno;
	const struct in6_addr *to;
	struct sending sending;
	ssize_t sent;

	prepare();
	to = destination(fd, name, length, flags);
	if (!to) {
		errno = before;
		return real_sendto(fd, data, size, flags, name, length);
	}
	if (begin_sending(&sending, fd, flags, options_want(&options, to)) != 0)
		return -1;
	errno = before;
	pthread_cleanup_push(end_sending, &sending);
	sent = real_sendto(fd, data, size, flags, name, length);
	pthread_cleanup_pop(1);
	return sent;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	int before = errno;
	const struct in6_addr *to;
	struct sending sending;
	ssize_t sent;

	prepare();
	to = message ? destination(fd, message->msg_name, message->msg_namelen, flags) : NULL;
	if (!to) {
		errno = before;
		return real_sendmsg(fd, message, flags);
	}
	if (begin_sending(&sending, fd, flags, options_want(&options, to)) != 0)
		return -1;
	errno = before;
	pthread_cleanup_push(end_sending, &sending);
	sent = real_sendmsg(fd, message, flags);
	pthread_cleanup_pop(1);
	return sent;
}

/* The necessary change for a message of sendmmsg. */
enum way { WAY_AS_IT_IS, WAY_WITH, WAY_WITHOUT };

static enum way way_of(int fd, const struct mmsghdr *message, int flags)
{
	const struct msghdr *header = &message->msg_hdr;
	const struct in6_addr *to = destination(fd, header->msg_name, header->msg_namelen, flags);

	if (!to)
		return WAY_AS_IT_IS;
	return options_want(&options, to) ? WAY_WITH : WAY_WITHOUT;
}

/* Sends messages that need the same change. */
static int send_run(int fd, struct mmsghdr *messages, unsigned int count, int flags, enum way way)
{
	struct sending sending;
	int before = errno, sent;

	if (way == WAY_AS_IT_IS)
		return real_sendmmsg(fd, messages, count, flags);
	if (begin_sending(&sending, fd, flags, way == WAY_WITH) != 0)
		return -1;
	errno = before;
	pthread_cleanup_push(end_sending, &sending);
	sent = real_sendmmsg(fd, messages, count, flags);
	pthread_cleanup_pop(1);
	return sent;
}

int sendmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags)
{
	unsigned int first = 0;
	int before = errno;

	prepare();
	if (!asked || !messages || count == 0) {
		errno = before;
		return real_sendmmsg(fd, messages, count, flags);
	}
	do {
		enum way way = way_of(fd, &messages[first], flags);
		unsigned int end = first + 1;
		int sent;

		while (end < count && way_of(fd, &messages[end], flags) == way)
			end++;
		errno = before;
		sent = send_run(fd, &messages[first], end - first, flags, way);
		/* As sendmmsg(2): an error counts only if nothing was sent. */
		if (sent < 0)
			return first > 0 ? (int)first : -1;
		first += (unsigned int)sent;
		if (first < end)
			break;
	} while (first < count);
	return (int)first;
}
