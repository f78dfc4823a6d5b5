// Loops that variants share. A file compiles them for the instruction set that it calls TARGET, before it includes this: on
// each function instead of -mavx2 on the file, since functions of the standard library that are compiled there must run on
// any CPU; the linker may take them for the other files too.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels.h"

#ifndef TARGET
#define TARGET
#endif
#define INLINE TARGET inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

namespace kernels::variant {
namespace {  // each file has its own

// 32 sums side by side, added up as a tree: an order that vectors of any length can follow.
TARGET inline float dot(const float *a, const float *b, int size) {
    typedef float Eight __attribute__((vector_size(32)));  // of a CPU with shorter vectors the compiler takes several
    Eight sums[4] = {}, x, y;
    for (; size >= 32; a += 32, b += 32, size -= 32)
        UNROLL for (int i = 0; i < 4; i++) {
            std::memcpy(&x, a + 8 * i, 32);
            std::memcpy(&y, b + 8 * i, 32);
            sums[i] += x * y;
        }
    float rest[32];
    std::memcpy(rest, sums, sizeof rest);
    for (int i = 0; i < size; i++) rest[i] += a[i] * b[i];
    for (int i = 0; i < 8; i++) rest[i] = (rest[i] + rest[8 + i]) + (rest[16 + i] + rest[24 + i]);
    for (int half = 4; half > 0; half /= 2)
        for (int i = 0; i < half; i++) rest[i] += rest[half + i];
    return rest[0];
}

TARGET inline int64_t count(const uint8_t *distances, int64_t groups, int64_t step, int limit) {
    constexpr int MOST = 255;  // groups that are counted in bytes
    int64_t found = 0;
    for (int64_t group = 0; group < groups;) {
        uint8_t here[GROUP] = {};
        for (int n = 0; n < MOST && group < groups; n++, group += step)
            for (int i = 0; i < GROUP; i++) here[i] += distances[group * GROUP + i] <= static_cast<uint8_t>(limit);
        for (const uint8_t each : here) found += each;
    }
    return found;
}

// Each round of the Hadamard transform is the same loop, from one half of the room into the other (Pease 1968).
TARGET inline void rotate(const int16_t *__restrict code, int64_t width, int64_t bits, int32_t *__restrict out) {
    int64_t size = 32;
    while (size < width) size *= 2;
    const bool odd = __builtin_ctzll(size) % 2;
    for (int64_t start = 0; start < bits; start += size) {
        // After the last round, the numbers are where they belong.
        int32_t *x = out + start + (odd ? size : 0), *y = out + start + (odd ? 0 : size);
        for (int64_t i = 0; i < width; i++) {
            uint32_t random = static_cast<uint32_t>(start + i + 1) * 0x9e3779b1u;
            random = (random ^ (random >> 15)) * 0x85ebca77u;
            const int32_t flip = static_cast<int32_t>(random) >> 31;  // 0 or -1
            x[i] = (code[i] ^ flip) - flip;
        }
        std::fill(x + width, x + size, 0);
        for (int64_t round = size; round > 1; round /= 2, std::swap(x, y)) {
            const int32_t *__restrict from = x;
            int32_t *__restrict to = y;
            for (int64_t i = 0; i < size / 2; i++) {
                to[2 * i] = from[i] + from[i + size / 2];
                to[2 * i + 1] = from[i] - from[i + size / 2];
            }
        }
    }
}

INLINE const int16_t *row(const int16_t *codes, const int32_t *ids, int64_t i, int64_t width) {
    return codes + ids[i] * width;
}

INLINE void prefetch_row(const int16_t *row, int64_t width) {
    for (int64_t i = 0; i < width; i += 32) __builtin_prefetch(row + i);
}

// Bytes has what is done with a vector of bytes, 16 for each of Bytes::NIBBLES nibbles of 32 codes. Sums that stop at 255 are
// the same in any order.
template <typename Bytes, int QUERIES>
TARGET void distances_of(const uint8_t *const *costs, const uint8_t *signs, int64_t groups, int64_t nibbles,
                         uint8_t *const *out) {
    for (int64_t group = 0; group < groups; group++, signs += 16 * nibbles) {
        typename Bytes::Vector low[QUERIES], high[QUERIES];  // codes 0 to 15, and 16 to 31; once for each nibble
        UNROLL for (int query = 0; query < QUERIES; query++) low[query] = high[query] = Bytes::zero();
        UNROLL for (int64_t j = 0; j < nibbles; j += Bytes::NIBBLES) {
            const auto both = Bytes::load(signs + 16 * j), first = Bytes::low(both), second = Bytes::high(both);
            UNROLL for (int query = 0; query < QUERIES; query++) {
                const auto cost = Bytes::load(costs[query] + 16 * j);
                low[query] = Bytes::add(low[query], Bytes::look_up(cost, first));
                high[query] = Bytes::add(high[query], Bytes::look_up(cost, second));
            }
        }
        UNROLL for (int query = 0; query < QUERIES; query++)
            Bytes::store(low[query], high[query], out[query] + group * GROUP);
    }
}

template <typename Bytes>
TARGET void distances(const uint8_t *const *costs, int queries, const uint8_t *signs, int64_t groups, int64_t nibbles,
                      uint8_t *const *out) {
    const auto of = queries == 1   ? distances_of<Bytes, 1>
                    : queries == 2 ? distances_of<Bytes, 2>
                    : queries == 3 ? distances_of<Bytes, 3>
                                   : distances_of<Bytes, 4>;
    of(costs, signs, groups, nibbles, out);
}

}  // namespace
}  // namespace kernels::variant
