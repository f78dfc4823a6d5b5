// The neighbours of queries: sorted, and weighed by a softmax.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "slots.h"

// What was scored for a query; its room is used again for the next.
class Ranking {
  public:
    std::vector<int64_t> slots;
    std::vector<float> similarities;

    void resize(int64_t n) {
        slots.resize(n);
        similarities.resize(n);
    }

  private:
    friend struct Neighbours;
    std::vector<uint32_t> falling;       // falls as the similarity rises
    std::vector<uint64_t> order, other;  // `falling`, and the row it is of

    void sort(const Slots &memory, size_t k);  // the k nearest first; of equally similar slots the newest
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
