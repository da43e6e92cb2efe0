/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The packet path, compiled natively. */
#include "step.h"

_Static_assert((int)OUTCOME_FORWARD == SIDESTEP_OUTCOME_FORWARD &&
		       (int)OUTCOME_PUNT == SIDESTEP_OUTCOME_PUNT &&
		       (int)OUTCOME_DROP == SIDESTEP_OUTCOME_DROP,
	       "the outcome that step() returns is the one that callers see");

static void begin(struct sidestep_native *frame)
{
	frame->traces = 0;
	frame->reports = 0;
	frame->first = frame->data;
}

struct sidestep_outcome sidestep_native_run(struct sidestep_native *frame)
{
	struct outcome outcome;
	struct sidestep_outcome out;

	begin(frame);
	env_fence(frame);
	outcome = step(frame);
	env_unfence(frame);
	out.kind = outcome.kind;
	out.ifindex = outcome.ifindex;
	out.reason = outcome.reason;
	return out;
}

struct sidestep_outcome sidestep_native_send(struct sidestep_native *frame, __u32 route)
{
	struct sidestep_outcome out = {SIDESTEP_OUTCOME_DROP, 0, 0};
	struct outcome outcome = {OUTCOME_DROP, 0, 0, 0, 0};
	struct packet p = {};
	verdict v;

	begin(frame);
	p.frame_length = env_length(frame);
	p.port_flags = SIDESTEP_PORT_SEG6 | SIDESTEP_PORT_FORWARD6 | PORT_PROBES;
	v = ipv6_read(frame, &p, ETH_LENGTH, p.frame_length, 0);
	if (v == VERDICT_CONTINUE)
		v = route_packet(frame, &p, route);
	if (VERDICT_KIND(v) == VERDICT_FORWARD)
		v = transmit(frame, &p, VERDICT_ARGUMENT(v), &outcome);
	if (VERDICT_KIND(v) == VERDICT_FORWARD) {
		out.kind = SIDESTEP_OUTCOME_FORWARD;
		out.ifindex = outcome.ifindex;
	} else {
		out.reason = VERDICT_ARGUMENT(v);
	}
	return out;
}
