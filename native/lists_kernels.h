// The inner loops of lists.cpp, for AVX2 and for any CPU; both give the same numbers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "cpu.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define TARGET_AVX2 __attribute__((target("avx2")))
#endif

namespace kernels {

constexpr int GROUP = 32;  // sign codes that stand together
constexpr int TILE = 4;    // queries that are compared with them at once

// Rows are on their way from memory while so many before them are read: more at once would have to wait for each other. Where
// there is much to read, on their way to the second level of the cache, which waits for more of them at once than the first.
constexpr int64_t ROWS_AHEAD = 16, FAR_ROWS_AHEAD = 32;

// The loops that compilers do well enough; inlined into a function for each variant.
#define INLINE inline __attribute__((always_inline))

// A random rotation: random flips, then a Hadamard transform; as many rounds, with other flips, as `bits` asks for.
// The last rounds of the transform, of each 8 numbers, are another function.
template <typename Eights>
INLINE void rotate_loop(const int8_t *__restrict code, int64_t width, int64_t bits, int32_t *__restrict out,
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

inline void eights_plain(int32_t *x, int64_t size) {
    for (int half = 4; half > 0; half /= 2)
        for (int64_t i = 0; i < size; i++) {
            if (i & half) continue;
            const int32_t a = x[i], b = x[i + half];
            x[i] = a + b;
            x[i + half] = a - b;
        }
}

inline void rotate_plain(const int8_t *code, int64_t width, int64_t bits, int32_t *out) {
    rotate_loop(code, width, bits, out, eights_plain);
}

INLINE void scale_loop(const int32_t *dots, const float *scales, float scale, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) out[i] = static_cast<float>(dots[i]) * (scales[i] * scale);
}

INLINE void add_loop(int32_t *sum, const int8_t *code, int32_t weight, int64_t width) {
    for (int64_t i = 0; i < width; i++) sum[i] += weight * code[i];
}

INLINE void rest_loop(const float *__restrict x, int64_t n, const int8_t *__restrict code, float factor,
                      int8_t *__restrict rest) {
    for (int64_t i = 0; i < n; i++) {
        const float whole = x[i] * factor;
        const int32_t left = static_cast<int32_t>(whole + (whole < 0 ? -0.5f : 0.5f)) - 256 * code[i];
        rest[i] = static_cast<int8_t>(std::min(std::max(left, -127), 127));
    }
}

INLINE int32_t farthest_loop(const int32_t *along, int64_t n) {
    int32_t most = 0;
    for (int64_t i = 0; i < n; i++) most = std::max(most, std::abs(along[i]));
    return most;
}

INLINE void farness_loop(const int32_t *__restrict along, int64_t n, float factor, uint8_t *__restrict out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = static_cast<uint8_t>(255 - static_cast<int32_t>(static_cast<float>(std::abs(along[i])) * factor));
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

inline void whole_dots_plain(const int16_t *query, const int8_t *codes, const int8_t *rests, const int32_t *ids, int64_t n,
                             int64_t width, int shift, int32_t *out) {
    for (int64_t i = 0; i < n; i++) {
        const int8_t *code = row(codes, ids, i, width), *rest = row(rests, ids, i, width);
        int32_t sum = 0;
        for (int64_t j = 0; j < width; j += 2)
            sum += (query[j] * (256 * code[j] + rest[j]) + query[j + 1] * (256 * code[j + 1] + rest[j + 1])) >> shift;
        out[i] = sum;
    }
}

inline void distances_plain(const uint8_t *const *costs, int queries, const uint8_t *signs, int64_t groups, int64_t nibbles,
                            uint8_t *const *out) {
    for (int64_t group = 0; group < groups; group++, signs += 16 * nibbles) {
        for (int i = 0; i < queries * GROUP; i++) {
            const int query = i / GROUP, code = i % GROUP;
            // The sums of even and of odd nibbles stop at 255 each, and so does their sum.
            int sums[2] = {};
            for (int64_t j = 0; j < nibbles; j++) {
                const int nibble = signs[16 * j + code % 16] >> (code / 16 * 4) & 15;
                sums[j % 2] = std::min(sums[j % 2] + costs[query][16 * j + nibble], 255);
            }
            out[query][group * GROUP + code] = static_cast<uint8_t>(std::min(sums[0] + sums[1], 255));
        }
    }
}

inline void near_groups_plain(const uint8_t *const *costs, int queries, const uint8_t *signs, int64_t groups, int64_t nibbles,
                              const uint8_t *limits, int32_t *const *out, int64_t *count) {
    for (int64_t group = 0; group < groups; group++, signs += 16 * nibbles)
        for (int query = 0; query < queries; query++) {
            uint8_t half[GROUP], *const here = half;
            distances_plain(&costs[query], 1, signs, 1, nibbles / 2, &here);
            out[query][count[query]] = static_cast<int32_t>(group);
            count[query] += *std::min_element(half, half + GROUP) <= limits[query];
        }
}

inline int64_t count_plain(const uint8_t *distance, int64_t groups, int64_t step, int limit) {
    int64_t found = 0;
    for (int64_t group = 0; group < groups; group += step)
        for (int i = 0; i < GROUP; i++) found += distance[group * GROUP + i] <= limit;
    return found;
}

inline int64_t within_plain(const uint8_t *distance, int64_t n, int limit, int32_t *out) {
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

// The sum of each.
TARGET_AVX2 inline __m128i sums_avx2(const __m256i (&of)[4]) {
    const __m256i s = _mm256_hadd_epi32(_mm256_hadd_epi32(of[0], of[1]), _mm256_hadd_epi32(of[2], of[3]));
    return _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
}

template <int LOCALITY>
INLINE void prefetch_row(const int8_t *row, int64_t width) {
    for (int64_t i = 0; i < width; i += 64) __builtin_prefetch(row + i, 0, LOCALITY);
}

template <int64_t WIDTH>
TARGET_AVX2 inline void dots_avx2_of(const int8_t *query, const int8_t *codes, const int32_t *ids, int64_t n,
                                     int64_t any_width, int32_t *out) {
    const int64_t width = WIDTH ? WIDTH : any_width;
    for (int64_t i = 0; i < n; i += 4) {
        __m256i sums[4];
#pragma GCC unroll 4
        for (int64_t j = 0; j < 4; j++) {  // past the end, the last row once more
            if (ids) prefetch_row<3>(row(codes, ids, std::min(i + j + ROWS_AHEAD, n - 1), width), width);
            sums[j] = dot_avx2(query, row(codes, ids, std::min(i + j, n - 1), width), width);
        }
        _mm_storeu_si128(reinterpret_cast<__m128i *>(out + i), sums_avx2(sums));
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

TARGET_AVX2 inline __m256i whole_dot_avx2(const int16_t *query, const int8_t *code, const int8_t *rest, int64_t width,
                                          __m128i shift) {
    __m256i sum = _mm256_setzero_si256();
    for (int64_t i = 0; i < width; i += 32) {
        const __m256i c = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(code + i));
        const __m256i r = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(rest + i));
        const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(query + i));
        const __m256i second = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(query + i + 16));
        // A rest below 0, taken as the lower byte of a number, is 256 more.
        const __m256i upper = _mm256_add_epi8(c, _mm256_cmpgt_epi8(_mm256_setzero_si256(), r));
        // The numbers 0 to 7 and 16 to 23, then 8 to 15 and 24 to 31.
        const __m256i a = _mm256_madd_epi16(_mm256_unpacklo_epi8(r, upper), _mm256_permute2x128_si256(first, second, 0x20));
        const __m256i b = _mm256_madd_epi16(_mm256_unpackhi_epi8(r, upper), _mm256_permute2x128_si256(first, second, 0x31));
        sum = _mm256_add_epi32(sum, _mm256_add_epi32(_mm256_sra_epi32(a, shift), _mm256_sra_epi32(b, shift)));
    }
    return sum;
}

template <int64_t WIDTH>
TARGET_AVX2 inline void whole_dots_avx2_of(const int16_t *query, const int8_t *codes, const int8_t *rests, const int32_t *ids,
                                           int64_t n, int64_t any_width, int any_shift, int32_t *out) {
    const int64_t width = WIDTH ? WIDTH : any_width;
    const __m128i shift = _mm_cvtsi32_si128(any_shift);
    for (int64_t i = 0; i < n; i += 4) {
        __m256i sums[4];
        for (int64_t j = 0; j < 4; j++) {
            const int64_t at = std::min(i + j, n - 1);  // past the end, the last row once more
            const int64_t ahead = std::min(i + j + FAR_ROWS_AHEAD, n - 1);
            prefetch_row<2>(row(codes, ids, ahead, width), width);
            prefetch_row<2>(row(rests, ids, ahead, width), width);
            sums[j] = whole_dot_avx2(query, row(codes, ids, at, width), row(rests, ids, at, width), width, shift);
        }
        _mm_storeu_si128(reinterpret_cast<__m128i *>(out + i), sums_avx2(sums));
    }
}

TARGET_AVX2 inline void whole_dots_avx2(const int16_t *query, const int8_t *codes, const int8_t *rests, const int32_t *ids,
                                        int64_t n, int64_t width, int shift, int32_t *out) {
    switch (width) {
        case 64: return whole_dots_avx2_of<64>(query, codes, rests, ids, n, width, shift, out);
        case 128: return whole_dots_avx2_of<128>(query, codes, rests, ids, n, width, shift, out);
        case 256: return whole_dots_avx2_of<256>(query, codes, rests, ids, n, width, shift, out);
        default: return whole_dots_avx2_of<0>(query, codes, rests, ids, n, width, shift, out);
    }
}

template <int QUERIES, int NIBBLES>
TARGET_AVX2 inline void distances_avx2_of(const uint8_t *const *costs, const uint8_t *signs, int64_t groups,
                                          uint8_t *const *out) {
    const __m256i mask = _mm256_set1_epi8(15);
    for (int64_t group = 0; group < groups; group++, signs += 16 * NIBBLES) {
        __m256i low[QUERIES], high[QUERIES];
        for (int query = 0; query < QUERIES; query++) low[query] = high[query] = _mm256_setzero_si256();
#pragma GCC unroll 4
        for (int j = 0; j < NIBBLES; j += 2) {
            const __m256i pair = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(signs + 16 * j));
            const __m256i lower = _mm256_and_si256(pair, mask), upper = _mm256_and_si256(_mm256_srli_epi16(pair, 4), mask);
            for (int query = 0; query < QUERIES; query++) {
                const __m256i cost = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(costs[query] + 16 * j));
                low[query] = _mm256_adds_epu8(low[query], _mm256_shuffle_epi8(cost, lower));
                high[query] = _mm256_adds_epu8(high[query], _mm256_shuffle_epi8(cost, upper));
            }
        }
        for (int query = 0; query < QUERIES; query++) {
            uint8_t *here = out[query] + group * GROUP;
            _mm_storeu_si128(reinterpret_cast<__m128i *>(here), _mm_adds_epu8(_mm256_castsi256_si128(low[query]),
                                                                             _mm256_extracti128_si256(low[query], 1)));
            _mm_storeu_si128(reinterpret_cast<__m128i *>(here + 16), _mm_adds_epu8(_mm256_castsi256_si128(high[query]),
                                                                                  _mm256_extracti128_si256(high[query], 1)));
        }
    }
}

template <int NIBBLES>
TARGET_AVX2 inline void distances_avx2_for(const uint8_t *const *costs, int queries, const uint8_t *signs, int64_t groups,
                                           uint8_t *const *out) {
    switch (queries) {
        case 1: return distances_avx2_of<1, NIBBLES>(costs, signs, groups, out);
        case 2: return distances_avx2_of<2, NIBBLES>(costs, signs, groups, out);
        case 3: return distances_avx2_of<3, NIBBLES>(costs, signs, groups, out);
        default: return distances_avx2_of<TILE, NIBBLES>(costs, signs, groups, out);
    }
}

TARGET_AVX2 inline void distances_avx2(const uint8_t *const *costs, int queries, const uint8_t *signs, int64_t groups,
                                       int64_t nibbles, uint8_t *const *out) {
    switch (nibbles) {
        case 16: return distances_avx2_for<16>(costs, queries, signs, groups, out);
        case 32: return distances_avx2_for<32>(costs, queries, signs, groups, out);
        default: return distances_avx2_for<64>(costs, queries, signs, groups, out);
    }
}

template <int QUERIES, int NIBBLES>
TARGET_AVX2 inline void near_groups_avx2_of(const uint8_t *const *costs, const uint8_t *signs, int64_t groups,
                                            const uint8_t *limits, int32_t *const *out, int64_t *count) {
    const __m256i mask = _mm256_set1_epi8(15);
    for (int64_t group = 0; group < groups; group++, signs += 16 * NIBBLES) {
        __m256i low[QUERIES], high[QUERIES];
#pragma GCC unroll 4
        for (int query = 0; query < QUERIES; query++) low[query] = high[query] = _mm256_setzero_si256();
#pragma GCC unroll 4
        for (int j = 0; j < NIBBLES / 2; j += 2) {
            const __m256i pair = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(signs + 16 * j));
            const __m256i lower = _mm256_and_si256(pair, mask), upper = _mm256_and_si256(_mm256_srli_epi16(pair, 4), mask);
#pragma GCC unroll 4
            for (int query = 0; query < QUERIES; query++) {
                const __m256i cost = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(costs[query] + 16 * j));
                low[query] = _mm256_adds_epu8(low[query], _mm256_shuffle_epi8(cost, lower));
                high[query] = _mm256_adds_epu8(high[query], _mm256_shuffle_epi8(cost, upper));
            }
        }
#pragma GCC unroll 4
        for (int query = 0; query < QUERIES; query++) {
            const __m128i first = _mm_adds_epu8(_mm256_castsi256_si128(low[query]), _mm256_extracti128_si256(low[query], 1));
            const __m128i second = _mm_adds_epu8(_mm256_castsi256_si128(high[query]), _mm256_extracti128_si256(high[query], 1));
            const __m128i limit = _mm_set1_epi8(static_cast<char>(limits[query])), least = _mm_min_epu8(first, second);
            // Without a branch: which way it goes is a matter of chance.
            out[query][count[query]] = static_cast<int32_t>(group);
            count[query] += _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(least, limit), least)) != 0;
        }
    }
}

template <int NIBBLES>
TARGET_AVX2 inline void near_groups_avx2_for(const uint8_t *const *costs, int queries, const uint8_t *signs, int64_t groups,
                                             const uint8_t *limits, int32_t *const *out, int64_t *count) {
    switch (queries) {
        case 1: return near_groups_avx2_of<1, NIBBLES>(costs, signs, groups, limits, out, count);
        case 2: return near_groups_avx2_of<2, NIBBLES>(costs, signs, groups, limits, out, count);
        case 3: return near_groups_avx2_of<3, NIBBLES>(costs, signs, groups, limits, out, count);
        default: return near_groups_avx2_of<TILE, NIBBLES>(costs, signs, groups, limits, out, count);
    }
}

TARGET_AVX2 inline void near_groups_avx2(const uint8_t *const *costs, int queries, const uint8_t *signs, int64_t groups,
                                         int64_t nibbles, const uint8_t *limits, int32_t *const *out, int64_t *count) {
    return nibbles == 32 ? near_groups_avx2_for<32>(costs, queries, signs, groups, limits, out, count)
                         : near_groups_avx2_for<64>(costs, queries, signs, groups, limits, out, count);
}

TARGET_AVX2 inline int64_t count_avx2(const uint8_t *distance, int64_t groups, int64_t step, int limit) {
    constexpr int MOST = 255;  // groups that are counted in bytes
    const __m256i limits = _mm256_set1_epi8(static_cast<char>(limit)), zero = _mm256_setzero_si256();
    __m256i found = zero;
    for (int64_t group = 0; group < groups;) {
        __m256i here = zero;
        for (int i = 0; i < MOST && group < groups; i++, group += step) {
            const __m256i d = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(distance + group * GROUP));
            here = _mm256_sub_epi8(here, _mm256_cmpeq_epi8(_mm256_min_epu8(d, limits), d));
        }
        found = _mm256_add_epi64(found, _mm256_sad_epu8(here, zero));
    }
    return _mm256_extract_epi64(found, 0) + _mm256_extract_epi64(found, 1) + _mm256_extract_epi64(found, 2) +
           _mm256_extract_epi64(found, 3);
}

// Which of 32 distances are not above the limits, as bits.
TARGET_AVX2 inline uint64_t within_group_avx2(const uint8_t *distance, __m256i limits) {
    const __m256i d = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(distance));
    return static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_min_epu8(d, limits), d)));
}

TARGET_AVX2 inline int64_t within_avx2(const uint8_t *distance, int64_t n, int limit, int32_t *out) {
    const __m256i limits = _mm256_set1_epi8(static_cast<char>(limit));
    int64_t found = 0, i = 0;
    for (; i + 64 <= n; i += 64) {
        uint64_t mask = within_group_avx2(distance + i, limits) | within_group_avx2(distance + i + 32, limits) << 32;
        // Where there are few, the first two are written whether they are there or not: a branch would be a guess.
        constexpr uint64_t last = uint64_t{1} << 63;  // so that there is always one to be found
        int64_t next = found + __builtin_popcountll(mask);
        out[found] = static_cast<int32_t>(i + __builtin_ctzll(mask | last));
        mask &= mask - 1;
        out[found + 1] = static_cast<int32_t>(i + __builtin_ctzll(mask | last));
        for (found += 2; found < next; found++) {
            mask &= mask - 1;
            out[found] = static_cast<int32_t>(i + __builtin_ctzll(mask));
        }
        found = next;
    }
    for (; i < n; i++)
        if (distance[i] <= limit) out[found++] = static_cast<int32_t>(i);
    return found;
}

TARGET_AVX2 inline void scale_avx2(const int32_t *dots, const float *scales, float scale, int64_t n, float *out) {
    scale_loop(dots, scales, scale, n, out);
}
// Of each two numbers a, b that are `half` apart: (b + a, a - b), where the second of a pair is the one that is negated.
TARGET_AVX2 inline void eights_avx2(int32_t *x, int64_t size) {
    const __m256i fours = _mm256_setr_epi32(1, 1, 1, 1, -1, -1, -1, -1), twos = _mm256_setr_epi32(1, 1, -1, -1, 1, 1, -1, -1);
    const __m256i ones = _mm256_setr_epi32(1, -1, 1, -1, 1, -1, 1, -1);
    for (int64_t i = 0; i < size; i += 8) {
        auto *const at = reinterpret_cast<__m256i *>(x + i);
        __m256i v = _mm256_loadu_si256(at);
        v = _mm256_add_epi32(_mm256_permute2x128_si256(v, v, 1), _mm256_sign_epi32(v, fours));
        v = _mm256_add_epi32(_mm256_shuffle_epi32(v, 0x4e), _mm256_sign_epi32(v, twos));
        v = _mm256_add_epi32(_mm256_shuffle_epi32(v, 0xb1), _mm256_sign_epi32(v, ones));
        _mm256_storeu_si256(at, v);
    }
}
TARGET_AVX2 inline void rotate_avx2(const int8_t *code, int64_t width, int64_t bits, int32_t *out) {
    rotate_loop(code, width, bits, out, eights_avx2);
}
TARGET_AVX2 inline void add_avx2(int32_t *sum, const int8_t *code, int32_t weight, int64_t width) {
    add_loop(sum, code, weight, width);
}
TARGET_AVX2 inline void rest_avx2(const float *x, int64_t n, const int8_t *code, float factor, int8_t *rest) {
    rest_loop(x, n, code, factor, rest);
}
TARGET_AVX2 inline int32_t farthest_avx2(const int32_t *along, int64_t n) { return farthest_loop(along, n); }
TARGET_AVX2 inline void farness_avx2(const int32_t *along, int64_t n, float factor, uint8_t *out) {
    farness_loop(along, n, factor, out);
}
#define PICK(name, plain, ...) (variant == Variant::avx2 ? name##_avx2(__VA_ARGS__) : plain(__VA_ARGS__))
#else
#define PICK(name, plain, ...) plain(__VA_ARGS__)
#endif

// A random rotation of a code, so that each of its numbers says as much as another. out has room for `bits` numbers and
// for width rounded up to a power of 2.
inline void rotate(const int8_t *code, int64_t width, int64_t bits, int32_t *out) { PICK(rotate, rotate_plain, code, width, bits, out); }

// Sums of costs, for each of up to TILE queries: out[i] = sum over j of costs[j][nibble j of sign code i], at most 255.
// 32 sign codes stand together: 16 bytes for each nibble, the codes 0 to 15 in the lower halves, 16 to 31 in the upper.
inline void distances(const uint8_t *const *costs, int queries, const uint8_t *signs, int64_t groups, int64_t nibbles,
                      uint8_t *const *out) {
    PICK(distances, distances_plain, costs, queries, signs, groups, nibbles, out);
}

// Which groups hold a code that is near by the first half of its nibbles: the sum of these costs is not above the query's
// limit. Adds their numbers to out, which has room for all and one more, and how many they are to count.
inline void near_groups(const uint8_t *const *costs, int queries, const uint8_t *signs, int64_t groups, int64_t nibbles,
                        const uint8_t *limits, int32_t *const *out, int64_t *count) {
    PICK(near_groups, near_groups_plain, costs, queries, signs, groups, nibbles, limits, out, count);
}

// How many distances are not above the limit, of those in every step-th group of 32.
inline int64_t count(const uint8_t *distance, int64_t groups, int64_t step, int limit) {
    return PICK(count, count_plain, distance, groups, step, limit);
}

// out[i]: the inner product of the query's code with that of row ids[i], or i where ids is null. out has room for 3 more.
inline void dots(const int8_t *query, const int8_t *codes, const int32_t *ids, int64_t n, int64_t width, int32_t *out) {
    PICK(dots, dots_plain, query, codes, ids, n, width, out);
}

// The same of the query, 256 * code + rest, with 256 * code + rest of these rows: the products in pairs, each less its last
// `shift` bits, so many that the sum fits.
inline void whole_dots(const int16_t *query, const int8_t *codes, const int8_t *rests, const int32_t *ids, int64_t n,
                       int64_t width, int shift, int32_t *out) {
    PICK(whole_dots, whole_dots_plain, query, codes, rests, ids, n, width, shift, out);
}

// out[i] = dots[i] * scales[i] * scale
inline void scale(const int32_t *dots, const float *scales, float scale, int64_t n, float *out) {
    PICK(scale, scale_loop, dots, scales, scale, n, out);
}

// Writes to out which of n distances are not above the limit; returns how many. out has room for n + 2.
inline int64_t within(const uint8_t *distance, int64_t n, int limit, int32_t *out) {
    return PICK(within, within_plain, distance, n, limit, out);
}

// sum += weight * code
inline void add(int32_t *sum, const int8_t *code, int32_t weight, int64_t width) { PICK(add, add_loop, sum, code, weight, width); }

// rest = x * factor, rounded, - 256 * code, all of them in [-127, 127]
inline void rest(const float *x, int64_t n, const int8_t *code, float factor, int8_t *rest) {
    PICK(rest, rest_loop, x, n, code, factor, rest);
}

// The largest of n numbers, without their signs.
inline int32_t farthest(const int32_t *along, int64_t n) { return PICK(farthest, farthest_loop, along, n); }

// Distances: 255 less each number without its sign, times the factor, which must not be more than 255.
inline void farness(const int32_t *along, int64_t n, float factor, uint8_t *out) {
    PICK(farness, farness_loop, along, n, factor, out);
}

#undef PICK
#undef INLINE
}  // namespace kernels
