/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The packet path, compiled natively. */
#include "step.h"

_Static_assert((int)OUTCOME_FORWARD == SIDESTEP_OUTCOME_FORWARD &&
		       (int)OUTCOME_PUNT == SIDESTEP_OUTCOME_PUNT &&
		       (int)OUTCOME_DROP == SIDESTEP_OUTCOME_DROP,
	       "the outcome that step() returns is the one that callers see");

struct sidestep_outcome sidestep_native_run(struct sidestep_native *frame)
{
	struct outcome outcome;
	struct sidestep_outcome out;

	frame->traces = 0;
	frame->reports = 0;
	frame->first = frame->data;
	env_fence(frame);
	outcome = step(frame);
	env_unfence(frame);
	out.kind = outcome.kind;
	out.ifindex = outcome.ifindex;
	out.reason = outcome.reason;
	return out;
}
