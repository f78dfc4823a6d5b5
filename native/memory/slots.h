// What a memory holds.
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

    // Each tensor of a number a slot, by the memory's name for it.
    struct Field {
        const char *name;
        int64_t *Slots::*numbers;
    };
    static constexpr Field FIELDS[] = {
        {"values", &Slots::values}, {"sources", &Slots::sources}, {"counts", &Slots::counts}, {"times", &Slots::times}};

    float *key(int64_t slot) const { return keys + slot * key_size; }
    // Whether the example that must not answer founded a slot; `excluded`: its id, or -1.
    bool is_excluded(int64_t slot, int64_t excluded) const { return excluded >= 0 && sources[slot] == excluded; }
    // Whether slot a comes before slot b among equally similar neighbours: the newest first.
    bool newer(int64_t a, int64_t b) const { return times[a] != times[b] ? times[a] > times[b] : a > b; }
};
