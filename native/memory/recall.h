// A recall: what queries were and what they found; its loss, and the gradients back to the queries.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "array.h"
#include "book.h"
#include "slots.h"

// What was scored for a query; its room is used again for the next.
class Ranking {
  public:
    std::vector<int64_t> slots;
    std::vector<float> similarities;
    std::vector<uint64_t> order;  // made by `sort`: row(order[0]) is the nearest

    void resize(int64_t n) {
        slots.resize(n);
        similarities.resize(n);
    }
    void add(int64_t slot, float similarity) {
        slots.push_back(slot);
        similarities.push_back(similarity);
    }

    static uint32_t row(uint64_t each) { return static_cast<uint32_t>(each); }

    // Puts the k nearest first, and perhaps some more; of equally similar slots a before b, if before(a, b).
    template <typename Before>
    void sort(size_t k, const Before &before) {
        const int shift = sort_roughly(k);
        for (size_t first = 0, end; first < order.size(); first = end) {
            for (end = first + 1; end < order.size() && order[end] >> shift == order[first] >> shift; end++) continue;
            if (end == first + 1) continue;
            std::sort(order.begin() + first, order.begin() + end, [&](uint64_t a, uint64_t b) {
                const float of_a = similarities[row(a)], of_b = similarities[row(b)];
                return of_a != of_b ? of_a > of_b : before(slots[row(a)], slots[row(b)]);
            });
        }
    }

  private:
    std::vector<int32_t> fixed;  // similarities in fixed point
    std::vector<uint64_t> other;

    int sort_roughly(size_t k);
};

// Everything about n queries in one block of memory, of which tensors are made where they are asked for: to make a tensor
// takes about as long as to search for one query.
struct Found {
    Found(int64_t n, int64_t key_size, int64_t k, int64_t hint_count, bool excludes);

    int64_t n, key_size, k, hint_count;
    bool excludes;
    std::shared_ptr<Array<char>> block;  // what all of these are in; a tensor made of it holds it too
    // (n, k): the neighbours, nearest first, of equals the newest; -1, -inf, -1 and 0 where there are fewer.
    int64_t *slots, *values;
    float *similarities, *weights;
    float *units, *inverse_lengths;  // (n, key_size): the queries made of length 1; (n,): by what they were multiplied
    int32_t *hints;                  // (n, hint_count): see Index; null where there are none
    int64_t *exclude;                // (n,): the source that must not answer, -1 for none; or null

    // Calls visit(name, field, width) for each of these, (n, width), by the name that Python has for it.
    template <typename Visit>
    void each_field(const Visit &visit) const {
        visit("slots", &Found::slots, k);
        visit("values", &Found::values, k);
        visit("similarities", &Found::similarities, k);
        visit("weights", &Found::weights, k);
        visit("query", &Found::units, key_size);
        visit("inverse_lengths", &Found::inverse_lengths, 1);
        visit("hints", &Found::hints, hint_count);
        visit("exclude", &Found::exclude, excludes);
    }

    const float *unit(int64_t row) const { return units + row * key_size; }
    int64_t excluded(int64_t row) const { return exclude ? exclude[row] : -1; }

    // The rows where `mask`, (n,), is true.
    Found select(const bool *mask) const;

    // Sorts what was scored for a query, weighs the k best by a softmax, and writes them.
    void set(const Slots &, int64_t row, Ranking &, float inverse_temperature);
};

// Makes vectors, (n, size), of length 1; zero vectors stay zero. inverse_lengths, (n,): by what each was multiplied (2 for a
// zero vector, so that it has a gradient by which to leave), or null. Returns how many numbers are nan or infinite.
int64_t normalise(const float *vectors, int64_t n, int64_t size, float *units, float *inverse_lengths);

// Scores, sorts and weighs `candidates`, (n, m) with m at most k: the slots of a search that is not the extension's own. -1
// in it, empty slots and excluded ones are left out; every other number must be a slot.
void rank_given(const Slots &, const int64_t *candidates, int64_t m, float inverse_temperature, int threads, Found &);

// Sorts and weighs what several searches found for the same queries and scored: (n, m), in place of slots of a memory. Of
// `all` values and times are read; `names`: the slots that they are, -1 where there is none. Of equally similar ones the
// newest comes first, of these the later one.
void rank_scored(const Slots &all, const int64_t *names, const float *similarities, int64_t m, float inverse_temperature,
                 Found &);

// Returns the mean of relu(q . K[n_b] - q . K[n_p] + margin) over the queries that have both a positive and a negative; 0
// where none has. targets: (n,). mask: (n,), false where a query takes no part, or null. gradient: (n, key_size), of the mean
// by the queries before they were normalised, or null. Throws std::out_of_range where `found` names a slot that is not there.
float margin_loss(const Slots &, const Book &, const Found &, const int64_t *targets, const bool *mask, float margin,
                  float *gradient);

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
