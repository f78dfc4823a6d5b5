// Quantised vectors: int8 codes, and sign codes with tables to compare them.
//
// A vector is code * scale, with numbers of 8 bits; a residual adds 8 more bits to each: (code + residual / 256) *
// scale.
//
// A sign code holds the signs of the rotated vector, as in RaBitQ (Gao and Long, "RaBitQ: Quantizing High-Dimensional
// Vectors with a Theoretical Error Bound for Approximate Nearest Neighbor Search", SIGMOD 2024). It is scanned with a
// table per 4 bits, as in FastScan (André, Kermarrec and Le Scouarnec, "Cache Locality Is Not Enough: High-Performance
// Nearest Neighbor Search with Product Quantization Fast Scan", VLDB 2015). Ours differs: the rotation is random flips
// and a Hadamard transform, of integers, so that every CPU gives the same bits; no error bound is used, but a fixed
// number of the best is compared again by int8 codes.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "../kernels/kernels.h"
#include "../memory/array.h"

using kernels::TILE;

inline void prefetch(const void *start, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const char *>(start) + i);
}

// Sizes of the codes of vectors of key_size numbers.
struct CodeSize {
    int64_t key_size;
    int64_t width = (key_size + 31) / 32 * 32;  // bytes of a code or residual: 0 past key_size
    int64_t bits = width <= 128 ? 128 : 256;    // of a sign code: more of them cost more time and tell longer keys apart

    int64_t nibbles() const { return bits / 4; }
    int64_t group_bytes() const { return kernels::GROUP * bits / 8; }  // of the sign codes that stand together
};

// The codes of many vectors: those of one place each.
struct Codes {
    Array<int8_t> codes;   // (n, width)
    Array<float> scales;   // (n,)
    Array<uint8_t> signs;  // (n / GROUP, nibbles, 16): see kernels::distances

    Codes(int64_t n, const CodeSize &size)
        : codes(whole_groups(n) * size.width), scales(whole_groups(n)), signs(whole_groups(n) * size.bits / 8) {}

    static int64_t whole_groups(int64_t n) { return (n + kernels::GROUP - 1) / kernels::GROUP * kernels::GROUP; }
};

// The standard deviation of the inner product of two codes, of vectors of length 1: of each number they leave out anything
// from -1/2 to 1/2 of their scales.
inline float code_deviation(float scale, float other_scale) {
    return std::sqrt((scale * scale + other_scale * other_scale) / 12);
}

// Writes the code of a vector, and returns its scale.
float quantise(const float *vector, const CodeSize &, int8_t *code);

// The same for a sum of codes, scaled to length 1. length: of the sum, or null.
float quantise_normalised(const int32_t *sum, int64_t width, int8_t *code, double *length = nullptr);

void quantise_residual(const float *vector, const CodeSize &, const int8_t *code, float scale, int8_t *residual);

namespace signs {

// Writes the sign code of a code at place i. rotated: scratch.
void set(uint8_t *signs, int64_t i, const CodeSize &, const int8_t *code, std::vector<int32_t> &rotated);

// Copies the sign code at place i of `from` to place j of `to`.
void copy(const uint8_t *from, int64_t i, uint8_t *to, int64_t j, int64_t bits);

// The least limit that lets at least `count` of these distances in, looking at every step-th group only.
int limit_for(const uint8_t *distances, int64_t groups, int64_t step, double count);

// A query's costs for each value of each nibble of a sign code: the sum of the numbers of its rotated code whose signs
// differ.
struct Table {
    alignas(64) uint8_t costs[64 * 16];  // (nibbles, 16)
    int32_t total;                       // the cost of the opposite of the query
    std::vector<int32_t> rotated;

    // The cost that hardly any key exceeds that is as similar as this: on average it is in proportion to 1 - similarity, as
    // in RaBitQ; `deviations` is how far from the average it may be.
    int limit(const CodeSize &, float similarity, float deviations) const;

    void set(const CodeSize &, const int8_t *code);
};

}  // namespace signs
