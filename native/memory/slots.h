// What a memory holds, and what is asked of it.
#pragma once

#include <cstdint>

// The slots of a memory as one call sees them: pointers into its tensors, never kept past the call.
struct Slots {
    int64_t capacity = 0, key_size = 0;
    float *keys = nullptr;       // (capacity, key_size): of length 1, 0 in an empty slot
    int64_t *values = nullptr;   // (capacity,): -1 in an empty slot
    int64_t *sources = nullptr;  // (capacity,): the example that founded the slot, -1 where none was given
    int64_t *counts = nullptr;   // (capacity,): how many examples the slot stands for, 0 in an empty slot
    int64_t *times = nullptr;    // (capacity,): the update that touched the slot last, -1 in an empty slot
    int64_t *now = nullptr;      // (): updates so far
    int64_t used = 0;            // no slot from this one on is filled

    // Calls visit(name, numbers) for each tensor of a number a slot, by the memory's name for it.
    template <typename Visit>
    void each_field(const Visit &visit) {
        visit("values", values);
        visit("sources", sources);
        visit("counts", counts);
        visit("times", times);
    }

    const float *key(int64_t slot) const { return keys + slot * key_size; }
    // Whether slot a comes before slot b among equally similar neighbours: the newest first.
    bool newer(int64_t a, int64_t b) const { return times[a] != times[b] ? times[a] > times[b] : a > b; }
};

// Normalised queries.
struct Queries {
    const float *units = nullptr;      // (n, key_size)
    const int64_t *exclude = nullptr;  // (n,): the source that must not answer, -1 for none; or null
    int64_t n = 0;

    int64_t excluded(int64_t row) const { return exclude ? exclude[row] : -1; }
};
