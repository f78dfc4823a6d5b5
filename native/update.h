// The paper's update.
#pragma once

#include <cstdint>

#include "clock.h"
#include "newest.h"
#include "recall.h"

// The batch: n queries, (n, key_size), and what is known of each, (n,).
struct Batch {
    const float *queries;
    const int64_t *nearest, *answers;  // the slot of its answer, and that slot's value: every stride-th
    int64_t stride;
    const int64_t *targets, *sources;  // the right value, and the example's id; sources may be null
    int64_t n;
};

struct Updated {
    int64_t zeros, missed;  // queries without a direction, and those that need a slot of their own
    int64_t touched;        // slots confirmed and written
    bool logged;
};

// Whether more queries need a slot of their own than there are empty ones: then the update draws which to write over.
bool draws(const Clock &clock, const Batch &batch);

// Confirms the slots whose answer was right, and writes the other queries to slots of their own; where a slot is both, it is
// written. Where a query is a zero vector, or more miss than there are slots, nothing is done. The slots touched go to
// `touched`, (n,), ascending, and their keys as they were to `before`, (n, key_size), unless it is null.
// Chains may be null.
Updated update(const Slots &memory, const Clock &clock, const Chains *chains, const Batch &batch, double age_noise,
               uint64_t seed, int64_t *touched, float *before);
