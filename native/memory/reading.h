// Readers: from what a recall found to probabilities over values, see rarecall/reading.py.
#pragma once

#include <cstdint>

#include "recall.h"

// Vectors that queries are multiplied with, and what is added then, for each class.
struct Classes {
    const int64_t *rows;     // (capacity,): the class of each slot; null where there are no vectors
    const float *vectors;    // (count, key_size)
    const float *offsets;    // (count,)
    int64_t capacity, count;
};

struct Reader {
    bool sums;                          // whether all neighbours of a class vote for it, or the nearest
    float inverse_temperature, weight;  // of votes
    float slope, offset;                // of the log-odds of being known, by the best score
    float same, same_odds;              // from which similarity on the nearest is the question, and its log-odds then
};

// Reads the neighbours of each query: the `most` best values and their probabilities, (n, most), -1 and 0 beyond the last; and
// the probability of being known, (n,). Returns the largest number of values of a query. Throws std::out_of_range where `found`
// names a slot that is not there.
int64_t read(const Found &, const Classes &, const Reader &, int64_t most, int threads, int64_t *values, float *probabilities,
             float *known);
