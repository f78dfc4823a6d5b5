// Exact search: a copy of the keys in 7 bits is scanned first; what could be among the k best is scored in float32.
#pragma once

#include <cstdint>

#include "recall.h"

// The copy of the keys. Slots are rounded up to whole steps of the kernels; those that no key was written to, or that
// were emptied, have the residual EMPTY and are never found.
struct Copy {
    uint8_t *codes;         // (slots, width), in panels
    float *inverse_scale;   // (slots,): 1 / s, where a key is s * its codes + what was lost
    float *residual;        // (slots,): how long that is at the most, in units of s
    float *longest;         // (): no key, and no key as copied, is longer than this
    int64_t key_size;
};

// No slot from `used` on was ever written.
struct Memory : Slots {
    int64_t used;
};

// Copies the keys of `count` slots (all from 0 on where `slots` is null).
void copy_keys(const Copy &copy, const Memory &memory, const int64_t *slots, int64_t count, int threads);

// found: (n, k): for each query the k slots of the largest products (of equals the lowest) in any order, then -1 where
// there are fewer; scores: (n, k): their products. exclude: (n,) or null: slots of this source are left out, none where it is -1.
void find(const Copy &copy, const Memory &memory, const float *queries, const int64_t *exclude, int64_t n, int64_t k,
          int threads, int64_t *found, float *scores);
