// The neighbours of queries: sorted, and weighed by a softmax.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

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

// Room for the neighbours of n queries, k each: nearest first, of equals the newest, then -1 where there are fewer.
struct Neighbours {
    int64_t *slots = nullptr;
    float *similarities = nullptr;  // -inf where there is none
    int64_t *values = nullptr;      // -1
    float *weights = nullptr;       // 0
    int64_t k = 0;

    // Sorts what was scored for a query, and weighs the k best.
    void set(const Slots &memory, int64_t row, Ranking &, float inverse_temperature) const;
};

// Sorts and weighs what several searches found for n queries and scored: (n, m) each, slot -1 where there is none. Of equally
// similar slots the newest comes first, of these the one in the later column.
struct Scored {
    const int64_t *slots;
    const float *similarities;
    int64_t *values, *times;
    int64_t n, m;
};
void rank_scored(const Scored &, float inverse_temperature, const Neighbours &);

// Scores, sorts and weighs `found`, (n, m) with m at most k: the slots of a search that is not the extension's own. -1 in
// it, empty slots and excluded ones are left out; every other number must be a slot.
void rank_given(const Slots &, const Queries &, const int64_t *found, int64_t m, float inverse_temperature, int threads,
                const Neighbours &);
