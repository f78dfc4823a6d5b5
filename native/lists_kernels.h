// The inner loops of lists.cpp, for AVX2 and for any CPU; both give the same numbers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define TARGET_AVX2 __attribute__((target("avx2,popcnt")))
#endif

namespace kernels {

// The loops that compilers do well enough; inlined into a function for each variant.
#define INLINE inline __attribute__((always_inline))

INLINE float similarity_loop(const float *a, const float *b, int64_t n) {
    float lanes[8] = {};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++) lanes[j] += a[i + j] * b[i + j];
    for (; i < n; i++) lanes[0] += a[i] * b[i];
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

INLINE void distances_loop(const uint64_t *query, const uint64_t *signs, int64_t n, int64_t words, uint16_t *out) {
    if (words == 2) {
        const uint64_t a = query[0], b = query[1];
        for (int64_t i = 0; i < n; i++)
            out[i] = static_cast<uint16_t>(__builtin_popcountll(signs[2 * i] ^ a) + __builtin_popcountll(signs[2 * i + 1] ^ b));
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        int count = 0;
        for (int64_t j = 0; j < words; j++) count += __builtin_popcountll(signs[words * i + j] ^ query[j]);
        out[i] = static_cast<uint16_t>(count);
    }
}

INLINE float scale_loop(const int32_t *dots, const float *scales, float scale, int64_t n, float *out) {
    float most[8];
    for (float &m : most) m = -2;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++) {
            out[i + j] = static_cast<float>(dots[i + j]) * (scales[i + j] * scale);
            most[j] = out[i + j] > most[j] ? out[i + j] : most[j];
        }
    for (; i < n; i++) {
        out[i] = static_cast<float>(dots[i]) * (scales[i] * scale);
        most[0] = out[i] > most[0] ? out[i] : most[0];
    }
    return *std::max_element(most, most + 8);
}

INLINE void add_loop(int32_t *sum, const int8_t *code, int32_t weight, int64_t width) {
    for (int64_t i = 0; i < width; i++) sum[i] += weight * code[i];
}

// Where ids is null, the rows are those from codes on.
INLINE const int8_t *row(const int8_t *codes, const int32_t *ids, int64_t i, int64_t width) {
    return codes + (ids ? ids[i] : i) * width;
}

inline void dots_plain(const int8_t *query, const int8_t *codes, const int32_t *ids, int64_t n, int64_t width, int32_t *out) {
    for (int64_t i = 0; i < n; i++) {
        const int8_t *code = row(codes, ids, i, width);
        int32_t sum = 0;
        for (int64_t j = 0; j < width; j++) sum += query[j] * code[j];
        out[i] = sum;
    }
}

inline int64_t within_plain(const uint16_t *distance, int64_t n, int limit, int32_t *out) {
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++)
        if (distance[i] <= limit) out[found++] = static_cast<int32_t>(i);
    return found;
}

#ifdef TARGET_AVX2
TARGET_AVX2 inline __m256i dot_avx2(const int8_t *query, const int8_t *code, int64_t width) {
    __m256i sum = _mm256_setzero_si256();
    for (int64_t i = 0; i < width; i += 32) {
        const __m256i q = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(query + i));
        const __m256i c = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(code + i));
        // No code is -128, so that two products of a pair always fit into 16 bits.
        const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(c, q));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    return sum;
}

template <int64_t WIDTH>
TARGET_AVX2 inline void dots_avx2_of(const int8_t *query, const int8_t *codes, const int32_t *ids, int64_t n,
                                     int64_t any_width, int32_t *out) {
    const int64_t width = WIDTH ? WIDTH : any_width;
    for (int64_t i = 0; i < n; i += 4) {
        // Past the end, the last row once more.
        const __m256i a = _mm256_hadd_epi32(dot_avx2(query, row(codes, ids, i, width), width),
                                            dot_avx2(query, row(codes, ids, std::min(i + 1, n - 1), width), width));
        const __m256i b = _mm256_hadd_epi32(dot_avx2(query, row(codes, ids, std::min(i + 2, n - 1), width), width),
                                            dot_avx2(query, row(codes, ids, std::min(i + 3, n - 1), width), width));
        const __m256i s = _mm256_hadd_epi32(a, b);
        _mm_storeu_si128(reinterpret_cast<__m128i *>(out + i),
                         _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1)));
    }
}

TARGET_AVX2 inline void dots_avx2(const int8_t *query, const int8_t *codes, const int32_t *ids, int64_t n, int64_t width,
                                  int32_t *out) {
    switch (width) {
        case 64: return dots_avx2_of<64>(query, codes, ids, n, width, out);
        case 128: return dots_avx2_of<128>(query, codes, ids, n, width, out);
        case 256: return dots_avx2_of<256>(query, codes, ids, n, width, out);
        default: return dots_avx2_of<0>(query, codes, ids, n, width, out);
    }
}

TARGET_AVX2 inline int64_t within_avx2(const uint16_t *distance, int64_t n, int limit, int32_t *out) {
    const __m256i limits = _mm256_set1_epi16(static_cast<int16_t>(limit + 1));
    int64_t found = 0, i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m256i d = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(distance + i));
        // Two bits of the mask for each distance.
        auto mask = static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_cmpgt_epi16(limits, d)));
        for (mask &= 0x55555555u; mask; mask &= mask - 1) out[found++] = static_cast<int32_t>(i + __builtin_ctz(mask) / 2);
    }
    for (; i < n; i++)
        if (distance[i] <= limit) out[found++] = static_cast<int32_t>(i);
    return found;
}

TARGET_AVX2 inline float similarity_avx2(const float *a, const float *b, int64_t n) { return similarity_loop(a, b, n); }
TARGET_AVX2 inline float scale_avx2(const int32_t *dots, const float *scales, float scale, int64_t n, float *out) {
    return scale_loop(dots, scales, scale, n, out);
}
TARGET_AVX2 inline void distances_avx2(const uint64_t *query, const uint64_t *signs, int64_t n, int64_t words, uint16_t *out) {
    distances_loop(query, signs, n, words, out);
}
TARGET_AVX2 inline void add_avx2(int32_t *sum, const int8_t *code, int32_t weight, int64_t width) {
    add_loop(sum, code, weight, width);
}
#define PICK(name, plain, ...) (variant == Variant::avx2 ? name##_avx2(__VA_ARGS__) : plain(__VA_ARGS__))
#else
#define PICK(name, plain, ...) plain(__VA_ARGS__)
#endif

// The inner product of two vectors of n floats, summed in the same order by every variant.
inline float similarity(const float *a, const float *b, int64_t n) { return PICK(similarity, similarity_loop, a, b, n); }

// out[i]: in how many bits the i-th sign code differs from the query's.
inline void distances(const uint64_t *query, const uint64_t *signs, int64_t n, int64_t words, uint16_t *out) {
    PICK(distances, distances_loop, query, signs, n, words, out);
}

// out[i]: the inner product of the query's code with that of row ids[i], or i where ids is null. out has room for 3 more.
inline void dots(const int8_t *query, const int8_t *codes, const int32_t *ids, int64_t n, int64_t width, int32_t *out) {
    PICK(dots, dots_plain, query, codes, ids, n, width, out);
}

// out[i] = dots[i] * scales[i] * scale; returns the greatest of them.
inline float scale(const int32_t *dots, const float *scales, float scale, int64_t n, float *out) {
    return PICK(scale, scale_loop, dots, scales, scale, n, out);
}

// Writes to out which of n distances are not above the limit; returns how many.
inline int64_t within(const uint16_t *distance, int64_t n, int limit, int32_t *out) {
    return PICK(within, within_plain, distance, n, limit, out);
}

// sum += weight * code
inline void add(int32_t *sum, const int8_t *code, int32_t weight, int64_t width) { PICK(add, add_loop, sum, code, weight, width); }

#undef PICK
#undef INLINE
}  // namespace kernels
