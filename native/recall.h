// What a memory does with the slots that its search found, and the gradient back to the query.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

struct Slots {
    float *keys;       // (capacity, key_size)
    int64_t *values;   // (capacity,): -1 in an empty slot
    int64_t *sources;  // (capacity,)
    int64_t key_size;
};

// What was scored for a query; its room is used again for the next.
class Ranking {
public:
    std::vector<int64_t> slots, values;
    std::vector<float> similarities;

    void resize(int64_t n) {
        slots.resize(n);
        values.resize(n);
        similarities.resize(n);
    }

private:
    friend struct Neighbours;
    std::vector<uint32_t> falling;       // falls as the similarity rises
    std::vector<uint64_t> order, other;  // this and which slot it is of

    void sort(size_t k);  // the nearest first, k of them at least; of equally similar slots the lowest
};

// The neighbours of n queries, each k long: nearest first, of equals the lowest slot first, then -1 where there are fewer.
struct Neighbours {
    int64_t *slots;
    float *similarities;  // -inf where there is none
    int64_t *values;      // -1
    float *weights;       // 0
    int64_t k;

    // Sorts what was scored for a query, and weighs the k best.
    void set(int64_t row, Ranking &, float inverse_temperature) const;
};

// Scores, sorts and weighs `found`, (n, m) with m at most k; -1 in it, empty slots and those founded by the source that the
// query excludes are left out. queries: (n, key_size). exclude: (n,), -1 for none, or null.
void recall(const Slots &memory, const float *queries, int64_t n, const int64_t *found, int64_t m,
            const int64_t *exclude, float inverse_temperature, int threads, const Neighbours &neighbours);

// What was asked, and what was found: one row for each of n queries.
struct Asked {
    const float *queries;       // (n, key_size), normalised
    const int64_t *slots;       // (n, k)
    const float *similarities;  // (n, k)
    const int64_t *values;      // (n, k)
    const int64_t *exclude;     // (n,), -1 for none, or null
    int64_t n, k;
};

// Keys as they were before they changed: `slots`, (count,), ascending, and their `keys`, (count, key_size).
struct Before {
    const int64_t *slots;
    const float *keys;
    int64_t count;
};

// Makes vectors, (n, size), of length 1; zero vectors stay zero. inverse_lengths, (n,): by what each was multiplied (2 for a
// zero vector, so that it has a gradient by which to leave), or null. Returns how many numbers are nan or infinite.
int64_t normalise(const float *vectors, int64_t n, int size, float *units, float *inverse_lengths);

// What the gradient of a recall of n queries starts from.
struct Recalled {
    const int64_t *slots;          // (n, k)
    const float *weights;          // (n, k)
    const float *units;            // (n, key_size): the normalised queries
    const float *inverse_lengths;  // (n,)
    int64_t n, k;
};

// Of what became of the recall: each may be null, for 0.
struct Gradients {
    const float *units;                    // (n, key_size)
    const float *similarities, *weights;  // (n, k)
};

// The gradient of the queries before they were normalised, (n, key_size).
void recall_gradient(const Slots &memory, const Before &before, const Recalled &recalled, const Gradients &of,
                     float inverse_temperature, int threads, float *of_queries);
