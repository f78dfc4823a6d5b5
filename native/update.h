// The paper's update.
#pragma once

#include <cstdint>

#include "clock.h"
#include "newest.h"
#include "recall.h"

// Queries, the first neighbour of each being its answer; and of each the right value and the example's id, (n,). Sources may
// be null.
struct Batch {
    Asked asked;
    const int64_t *targets, *sources;

    int64_t nearest(int64_t i) const { return asked.slots[i * asked.k]; }
    bool is_right(int64_t i) const { return asked.values[i * asked.k] == targets[i]; }
};

struct Updated {
    int64_t zeros, missed;  // queries without a direction, and those that need a slot of their own
    int64_t touched;        // slots confirmed and written
    bool logged;
    bool done;
};

// Whether more queries need a slot of their own than there are empty ones: then the update draws which to write over.
bool draws(const Clock &clock, const Batch &batch);

// Confirms the slots whose answer was right, and writes the other queries to slots of their own; where a slot is both, it is
// written. Where a query is a zero vector, or more miss than there are slots, nothing is done. The slots touched go to
// `touched`, (n,), ascending, and their keys as they were to `before`, (n, key_size), unless it is null.
// Chains may be null.
Updated update(const Slots &memory, const Clock &clock, const Chains *chains, const Batch &batch, double age_noise,
               uint64_t seed, int64_t *touched, float *before);
