// A recall: what queries were, what they found, and the gradient back to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "../index/index.h"
#include "array.h"
#include "neighbours.h"
#include "slots.h"

// Everything about n queries in one block of memory, of which tensors are made where they are asked for: to make a tensor
// takes about as long as to search for one query.
struct Found {
    Found(int64_t n, int64_t key_size, int64_t k, int64_t hint_count, bool excludes);

    int64_t n, key_size, k, hint_count;
    std::shared_ptr<Array<char>> block;  // what all of these are in; a tensor made of it holds it too
    int64_t *slots, *values;             // (n, k)
    float *similarities, *weights;       // (n, k)
    float *units, *inverse_lengths;      // (n, key_size): the queries made of length 1; (n,): by what they were multiplied
    int32_t *hints;                      // (n, hint_count), see Index
    int64_t *exclude;                    // (n,), or null

    Neighbours neighbours() const { return {slots, similarities, values, weights, k}; }
    Queries queries() const { return {units, exclude, n}; }
    Asked asked() const { return {queries(), k, hint_count > 0 ? hints : nullptr}; }

    // The rows where `mask`, (n,), is true.
    Found select(const bool *mask) const;
};

// Makes vectors, (n, size), of length 1; zero vectors stay zero. inverse_lengths, (n,): by what each was multiplied (2 for a
// zero vector, so that it has a gradient by which to leave), or null. Returns how many numbers are nan or infinite.
int64_t normalise(const float *vectors, int64_t n, int64_t size, float *units, float *inverse_lengths);

// Keys as they were before they changed: `slots`, (count,), ascending, and their `keys`, (count, key_size).
struct Before {
    const int64_t *slots;
    const float *keys;
    int64_t count;
};

// Gradients of what became of a recall; each may be null, for 0.
struct Gradients {
    const float *units;                   // (n, key_size)
    const float *similarities, *weights;  // (n, k)
};

// From these to the gradient of the queries before they were normalised, (n, key_size). keys: (capacity, key_size). Throws
// std::out_of_range where `found` names a slot that is not there.
void recall_gradient(const float *keys, int64_t capacity, const Before &, const Found &, const Gradients &,
                     float inverse_temperature, int threads, float *of_queries);
