// Quantised vectors of length 1: 16-bit codes, and sign codes with tables to compare them.
//
// A vector is code / UNIT. The scale is the same for all, so that codes are added and multiplied as they are: sums of them
// are exact, and the inner product of two, which is never more than UNIT^2, fits into 32 bits.
//
// A sign code holds the signs of the rotated vector, as in RaBitQ (Gao and Long, "RaBitQ: Quantizing High-Dimensional
// Vectors with a Theoretical Error Bound for Approximate Nearest Neighbor Search", SIGMOD 2024). It is scanned with a
// table per 4 bits, as in FastScan (André, Kermarrec and Le Scouarnec, "Cache Locality Is Not Enough: High-Performance
// Nearest Neighbor Search with Product Quantization Fast Scan", VLDB 2015). Ours differs: the rotation is random flips
// and a Hadamard transform, of integers, so that every CPU gives the same bits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../kernels/kernels.h"
#include "../memory/array.h"

using kernels::TILE;

constexpr int32_t UNIT = 32767;
constexpr float OF_PRODUCT = 1.0f / UNIT / UNIT;  // what 1 is worth in the inner product of two codes
// The standard deviation of the inner product of two codes: they leave out anything from -1/2 to 1/2 of each number.
constexpr float CODE_DEVIATION = 0.41f / UNIT;

inline void prefetch(const void *start, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const char *>(start) + i);
}

// Sizes of the codes of vectors of key_size numbers.
struct CodeSize {
    int64_t key_size;
    int64_t width = (key_size + 31) / 32 * 32;  // numbers of a code: 0 past key_size
    int64_t bits = width <= 128 ? 128 : 256;    // of a sign code: more of them cost more time and tell longer keys apart

    int64_t nibbles() const { return bits / 4; }
    int64_t group_bytes() const { return kernels::GROUP * bits / 8; }  // of the sign codes that stand together
};

// Writes the code of a vector.
void quantise(const float *vector, const CodeSize &, int16_t *code);

// Writes the code of a sum of codes, scaled to length 1, and returns the length of the sum.
double quantise_sum(const int32_t *sum, int64_t width, int16_t *code);

// A code, rotated, in room of the calling thread's own: at least `bits` numbers.
int32_t *rotated(const int16_t *code, int64_t width, int64_t bits);

// Sign codes in groups of kernels::GROUP, see kernels::distances.
class Signs {
  public:
    Signs(int64_t n, const CodeSize &size)
        : size_(size), groups_((n + kernels::GROUP - 1) / kernels::GROUP * size.group_bytes()) {}

    const uint8_t *group(int64_t i) const { return groups_.data() + i * size_.group_bytes(); }
    void set(int64_t i, const int16_t *code);
    // Copies the sign code at place i of `from` to place j.
    void copy(const Signs &from, int64_t i, int64_t j);

  private:
    CodeSize size_;
    Array<uint8_t> groups_;
};

// The codes of many vectors: those of one place each.
struct Codes {
    Codes(int64_t n, const CodeSize &size) : width(size.width), codes(n * width), signs(n, size) {}

    int64_t width;
    Array<int16_t> codes;  // (n, width)
    Signs signs;

    int16_t *code(int64_t i) { return codes.data() + i * width; }
    const int16_t *code(int64_t i) const { return codes.data() + i * width; }
    void copy(int64_t from, int64_t to) {
        std::memcpy(code(to), code(from), width * sizeof(int16_t));
        signs.copy(signs, from, to);
    }
};

// A query's costs for each value of each nibble of a sign code: the sum of the numbers of its rotated code whose signs
// differ.
struct CostTable {
    alignas(64) uint8_t costs[64 * 16];  // (nibbles, 16)
    int32_t total;                       // the cost of the opposite of the query

    void set(const CodeSize &, const int16_t *code);

    // The cost that hardly any key exceeds that is as similar as this: on average it is in proportion to 1 - similarity, as
    // in RaBitQ; `deviations` is how far from the average it may be.
    int limit(const CodeSize &, float similarity, float deviations) const;
};
