// Loops that compilers vectorise well enough: inlined into a function of each variant, for its instruction set.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "kernels.h"

#define INLINE inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

namespace kernels::loops {

// The random flips and the transform, but for its last three rounds: eights(x, size) does those, within each 8 numbers.
template <typename Eights>
INLINE void rotate(const int8_t *__restrict code, int64_t width, int64_t bits, int32_t *__restrict out,
                   const Eights &eights) {
    int64_t size = 32;
    while (size < width) size *= 2;
    for (int64_t start = 0; start < bits; start += size) {
        int32_t *x = out + start;
        for (int64_t i = 0; i < width; i++) {
            uint32_t random = static_cast<uint32_t>(start + i + 1) * 0x9e3779b1u;
            random = (random ^ (random >> 15)) * 0x85ebca77u;
            const int32_t flip = static_cast<int32_t>(random) >> 31;  // 0 or -1
            x[i] = (code[i] ^ flip) - flip;
        }
        std::fill(x + width, x + size, 0);
        for (int64_t half = size / 2; half > 4; half /= 2)
            for (int64_t left = 0; left < size; left += 2 * half)
                for (int64_t i = left; i < left + half; i++) {
                    const int32_t a = x[i], b = x[i + half];
                    x[i] = a + b;
                    x[i + half] = a - b;
                }
        eights(x, size);
    }
}

INLINE void scale(const int32_t *dots, const float *scales, float scale, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) out[i] = static_cast<float>(dots[i]) * (scales[i] * scale);
}

INLINE void add(int32_t *sum, const int8_t *code, int32_t weight, int64_t width) {
    for (int64_t i = 0; i < width; i++) sum[i] += weight * code[i];
}

INLINE void residual(const float *__restrict x, int64_t n, const int8_t *__restrict code, float factor,
                     int8_t *__restrict out) {
    for (int64_t i = 0; i < n; i++) {
        const float whole = x[i] * factor;
        const int32_t left = static_cast<int32_t>(whole + (whole < 0 ? -0.5f : 0.5f)) - 256 * code[i];
        out[i] = static_cast<int8_t>(std::min(std::max(left, -127), 127));
    }
}

INLINE int32_t farthest(const int32_t *along, int64_t n) {
    int32_t most = 0;
    for (int64_t i = 0; i < n; i++) most = std::max(most, std::abs(along[i]));
    return most;
}

INLINE void farness(const int32_t *__restrict along, int64_t n, float factor, uint8_t *__restrict out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = static_cast<uint8_t>(255 - static_cast<int32_t>(static_cast<float>(std::abs(along[i])) * factor));
}

INLINE const int8_t *row(const int8_t *codes, const int32_t *ids, int64_t i, int64_t width) {
    return codes + (ids ? ids[i] : i) * width;
}

template <int LOCALITY>
INLINE void prefetch_row(const int8_t *row, int64_t width) {
    for (int64_t i = 0; i < width; i += 64) __builtin_prefetch(row + i, 0, LOCALITY);
}

}  // namespace kernels::loops
