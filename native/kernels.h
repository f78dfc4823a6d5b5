// The inner loops of the exact search, in a variant for each kind of CPU. All variants give the same bits.
#pragma once

#include <cstdint>

// The copy of the keys lies in panels of 8 slots, 4 numbers of each slot together: number i of the slot s is byte
// (s / 8) * 8 * width + (i / 4) * 32 + (s % 8) * 4 + i % 4, where width is key_size rounded up to a multiple of 8.
constexpr int PANEL = 8;     // slots
constexpr int STEP = 4;      // panels that a kernel takes at once: the copy has a multiple of them
constexpr int TILE = 4;      // queries that a kernel takes at once
constexpr int OFFSET = 64;   // a code c is stored as c + OFFSET, because one side of the product must be unsigned
constexpr int SEGMENT = 128; // numbers that are summed up in 16 bits before the sum is widened

// Up to TILE queries, as the scan takes them.
struct Tile {
    const int8_t *codes[TILE];      // (width / 4, 8, 4): every 4 codes 8 times, as they meet the slots of a panel
    const uint32_t *starts[TILE];   // (segments,): what the two 16 bit sums of a slot start from, to undo the OFFSET
    float threshold[TILE], reach[TILE];
    int queries;                    // 1, 2 or 4
};

struct Kernels {
    // For each of `panels` panels (a multiple of STEP) and each query of the tile: the products of the codes as
    // sums[panel][query][slot], and the slots that could be good enough as bits 8 * query + slot of masks[panel]:
    //     sum >= threshold * inverse_scale[slot] - reach * residual[slot]
    // Meanwhile the bytes `ahead`, which are needed next, come into the cache.
    void (*scan)(const uint8_t *codes, const float *inverse_scale, const float *residual, int panels, int width,
                 const Tile &tile, const char *ahead, int ahead_bytes, int32_t (*sums)[TILE][PANEL], uint32_t *masks);
    // The product of two vectors, always summed in the same order.
    float (*dot)(const float *a, const float *b, int size);
};

const Kernels &kernels();
