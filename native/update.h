// The paper's update.
#pragma once

#include <cstdint>

#include "recall.h"

// What an update does to the keys, before anything is changed.
struct Plan {
    int64_t *confirmed;  // (n,): the slots whose answer was right, ascending
    float *keys;         // (n, key_size): what becomes of their keys
    int64_t *missed;     // (n,): the queries that need a slot of their own
    int64_t confirmed_count, missed_count, zeros;  // zeros: queries without a direction
};

// nearest: (n,), the slot of each query's answer; answers and targets: (n,), its value and the right one.
void plan(const Slots &memory, const float *queries, const int64_t *nearest, const int64_t *answers,
          const int64_t *targets, int64_t n, Plan &plan);

// Writes what was planned: the keys of the confirmed slots, and the missed queries with their targets and sources to the
// slots `written`, (missed_count,), after those.
void write(const Plan &plan, const float *queries, const int64_t *targets, const int64_t *sources_given,
           const int64_t *written, int key_size, float *keys, int64_t *values, int64_t *sources);
