// AVX2, for any x86-64 CPU since about 2013 (Intel) or 2015 (AMD).
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#include <cstring>

#include "loops.h"

// On each function instead of -mavx2 on the file: functions of the standard library that are compiled here must run on any
// CPU, since the linker may take them for the other files too.
#define AVX2 __attribute__((target("avx2")))
// Keeps a vector in one register. Left to itself the compiler copies the sums around and loads queries twice, which
// makes the loop slower by a fifth.
#define KEEP(vector) __asm__("" : "+x"(vector))

namespace kernels::avx2 {
namespace {

AVX2 INLINE __m256i load(const void *from) { return _mm256_loadu_si256(static_cast<const __m256i *>(from)); }
AVX2 INLINE void store(void *to, __m256i vector) { _mm256_storeu_si256(static_cast<__m256i *>(to), vector); }
AVX2 INLINE __m128i lower(__m256i vector) { return _mm256_castsi256_si128(vector); }
AVX2 INLINE __m128i upper(__m256i vector) { return _mm256_extracti128_si256(vector, 1); }

// The products of a panel and Q queries over one segment, added to sums, or written there if it is the first one.
//
// maddubs adds pairs of products in 16 bits with saturation, which 2 * 127 * 127 never reaches. The sums of pairs wrap
// around instead; that is harmless, because the sum over a segment less its OFFSET part is known to fit (index/exact.cpp).
// A function of its own, so that all sums find room in the registers.
template <int Q>
AVX2 __attribute__((noinline)) void multiply(const uint8_t *codes, int width, const Tile &tile, int segment,
                                             int32_t (*sums)[PANEL]) {
    __m256i sum[Q][2];
    UNROLL for (int q = 0; q < Q; q++) sum[q][0] = sum[q][1] = _mm256_set1_epi32(static_cast<int>(tile.starts[q][segment]));
    const int start = segment * SEGMENT, end = std::min(start + SEGMENT, width);
    for (int i = start; i < end; i += 8)
        UNROLL for (int j = 0; j < 8; j += 4) {
            const __m256i key[2] = {load(codes + (i + j) * PANEL), load(codes + (i + j) * PANEL + 32)};
            UNROLL for (int q = 0; q < Q; q++) {
                int32_t four;
                std::memcpy(&four, tile.codes[q] + i + j, 4);
                const __m256i query = _mm256_set1_epi32(four);
                UNROLL for (int half = 0; half < 2; half++) {
                    __m256i added = _mm256_add_epi16(sum[q][half], _mm256_maddubs_epi16(key[half], query));
                    KEEP(added);
                    sum[q][half] = added;
                }
            }
        }
    __m256i ones = _mm256_set1_epi16(1);
    KEEP(ones);  // not before the loop
    UNROLL for (int q = 0; q < Q; q++) UNROLL for (int half = 0; half < 2; half++) {
        __m256i wide = _mm256_madd_epi16(sum[q][half], ones);
        if (segment > 0) wide = _mm256_add_epi32(wide, load(sums[q] + 8 * half));
        store(sums[q] + 8 * half, wide);
    }
}

template <int Q>
AVX2 void scan_tile(const Panels &panels, const Tile &tile, int32_t (*sums)[TILE][PANEL], uint64_t *masks) {
    const int share = panels.ahead_bytes / panels.count;
    for (int p = 0; p < panels.count; p++) {
        for (int byte = 0; byte < share; byte += 64) _mm_prefetch(panels.ahead + p * share + byte, _MM_HINT_T0);
        for (int segment = 0; segment * SEGMENT < panels.width; segment++)
            multiply<Q>(panels.codes + int64_t{p} * PANEL * panels.width, panels.width, tile, segment, sums[p]);
        masks[p] = 0;
        for (int part = 0; part < PANEL; part += 8) {
            const __m256 scale = _mm256_loadu_ps(panels.inverse_scale + p * PANEL + part);
            const __m256 residual = _mm256_loadu_ps(panels.residual + p * PANEL + part);
            for (int q = 0; q < Q; q++) {
                const __m256 least = _mm256_sub_ps(_mm256_mul_ps(_mm256_set1_ps(tile.threshold[q]), scale),
                                                   _mm256_mul_ps(_mm256_set1_ps(tile.reach[q]), residual));
                const __m256 reached = _mm256_cmp_ps(_mm256_cvtepi32_ps(load(sums[p][q] + part)), least, _CMP_GE_OQ);
                masks[p] |= static_cast<uint64_t>(_mm256_movemask_ps(reached)) << (PANEL * q + part);
            }
        }
    }
}

AVX2 void scan(const Panels &panels, const Tile &tile, int32_t (*sums)[TILE][PANEL], uint64_t *masks) {
    const auto each = tile.queries == 1 ? scan_tile<1> : tile.queries == 2 ? scan_tile<2> : scan_tile<4>;
    each(panels, tile, sums, masks);
}

AVX2 float dot(const float *a, const float *b, int size) {
    __m256 sum[4] = {};
    for (; size >= 32; a += 32, b += 32, size -= 32)
        for (int i = 0; i < 4; i++)
            sum[i] = _mm256_add_ps(sum[i], _mm256_mul_ps(_mm256_loadu_ps(a + 8 * i), _mm256_loadu_ps(b + 8 * i)));
    if (size > 0) {
        float rest[2][32] = {};
        std::copy(a, a + size, rest[0]);
        std::copy(b, b + size, rest[1]);
        for (int i = 0; i < 4; i++)
            sum[i] = _mm256_add_ps(sum[i],
                                   _mm256_mul_ps(_mm256_loadu_ps(rest[0] + 8 * i), _mm256_loadu_ps(rest[1] + 8 * i)));
    }
    const __m256 eight = _mm256_add_ps(_mm256_add_ps(sum[0], sum[1]), _mm256_add_ps(sum[2], sum[3]));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

AVX2 INLINE __m256i dot_of(const int8_t *query, const int8_t *code, int64_t width) {
    __m256i sum = _mm256_setzero_si256();
    for (int64_t i = 0; i < width; i += 32) {
        const __m256i q = load(query + i), c = load(code + i);
        // No code is -128, so the two products of a pair always fit into 16 bits.
        const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(c, q));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    return sum;
}

// Writes the sum of each of four vectors.
AVX2 INLINE void store_sums(const __m256i (&of)[4], int32_t *out) {
    const __m256i s = _mm256_hadd_epi32(_mm256_hadd_epi32(of[0], of[1]), _mm256_hadd_epi32(of[2], of[3]));
    _mm_storeu_si128(reinterpret_cast<__m128i *>(out), _mm_add_epi32(lower(s), upper(s)));
}

template <int64_t WIDTH>
AVX2 void dots_of(const int8_t *query, const int8_t *codes, const int32_t *ids, int64_t n, int64_t any_width, int32_t *out) {
    const int64_t width = WIDTH ? WIDTH : any_width;
    for (int64_t i = 0; i < n; i += 4) {
        __m256i sums[4];
        UNROLL for (int64_t j = 0; j < 4; j++) {  // past the end, the last row once more
            if (ids) loops::prefetch_row<3>(loops::row(codes, ids, std::min(i + j + ROWS_AHEAD, n - 1), width), width);
            sums[j] = dot_of(query, loops::row(codes, ids, std::min(i + j, n - 1), width), width);
        }
        store_sums(sums, out + i);
    }
}

AVX2 void dots(const int8_t *query, const int8_t *codes, const int32_t *ids, int64_t n, int64_t width, int32_t *out) {
    const auto of = width == 64 ? dots_of<64> : width == 128 ? dots_of<128> : width == 256 ? dots_of<256> : dots_of<0>;
    of(query, codes, ids, n, width, out);
}

AVX2 INLINE __m256i whole_dot_of(const int16_t *query, const int8_t *code, const int8_t *residual, int64_t width,
                                 __m128i shift) {
    __m256i sum = _mm256_setzero_si256();
    for (int64_t i = 0; i < width; i += 32) {
        const __m256i c = load(code + i), r = load(residual + i), first = load(query + i), second = load(query + i + 16);
        // A residual below 0, taken as the lower byte of a number, is 256 more.
        const __m256i high = _mm256_add_epi8(c, _mm256_cmpgt_epi8(_mm256_setzero_si256(), r));
        // The numbers 0 to 7 and 16 to 23, then 8 to 15 and 24 to 31.
        const __m256i a = _mm256_madd_epi16(_mm256_unpacklo_epi8(r, high), _mm256_permute2x128_si256(first, second, 0x20));
        const __m256i b = _mm256_madd_epi16(_mm256_unpackhi_epi8(r, high), _mm256_permute2x128_si256(first, second, 0x31));
        sum = _mm256_add_epi32(sum, _mm256_add_epi32(_mm256_sra_epi32(a, shift), _mm256_sra_epi32(b, shift)));
    }
    return sum;
}

template <int64_t WIDTH>
AVX2 void whole_dots_of(const int16_t *query, const int8_t *codes, const int8_t *residuals, const int32_t *ids, int64_t n,
                        int64_t any_width, int any_shift, int32_t *out) {
    const int64_t width = WIDTH ? WIDTH : any_width;
    const __m128i shift = _mm_cvtsi32_si128(any_shift);
    for (int64_t i = 0; i < n; i += 4) {
        __m256i sums[4];
        for (int64_t j = 0; j < 4; j++) {
            const int64_t at = std::min(i + j, n - 1);  // past the end, the last row once more
            const int64_t ahead = std::min(i + j + FAR_ROWS_AHEAD, n - 1);
            loops::prefetch_row<2>(loops::row(codes, ids, ahead, width), width);
            loops::prefetch_row<2>(loops::row(residuals, ids, ahead, width), width);
            const int8_t *code = loops::row(codes, ids, at, width), *residual = loops::row(residuals, ids, at, width);
            sums[j] = whole_dot_of(query, code, residual, width, shift);
        }
        store_sums(sums, out + i);
    }
}

AVX2 void whole_dots(const int16_t *query, const int8_t *codes, const int8_t *residuals, const int32_t *ids, int64_t n,
                     int64_t width, int shift, int32_t *out) {
    const auto of = width == 64 ? whole_dots_of<64> : width == 128 ? whole_dots_of<128> : width == 256 ? whole_dots_of<256>
                                                                                                      : whole_dots_of<0>;
    of(query, codes, residuals, ids, n, width, shift, out);
}

// The distances of a group by its first NIBBLES nibbles, two at a time.
template <int QUERIES, int NIBBLES>
AVX2 INLINE void distances_of(const uint8_t *const *costs, const uint8_t *signs, __m256i (&out)[QUERIES]) {
    const __m256i mask = _mm256_set1_epi8(15);
    __m256i low[QUERIES], high[QUERIES];  // codes 0 to 15, and 16 to 31; in both halves
    UNROLL for (int query = 0; query < QUERIES; query++) low[query] = high[query] = _mm256_setzero_si256();
    UNROLL for (int j = 0; j < NIBBLES; j += 2) {
        const __m256i pair = load(signs + 16 * j);
        const __m256i first = _mm256_and_si256(pair, mask), second = _mm256_and_si256(_mm256_srli_epi16(pair, 4), mask);
        UNROLL for (int query = 0; query < QUERIES; query++) {
            const __m256i cost = load(costs[query] + 16 * j);
            low[query] = _mm256_adds_epu8(low[query], _mm256_shuffle_epi8(cost, first));
            high[query] = _mm256_adds_epu8(high[query], _mm256_shuffle_epi8(cost, second));
        }
    }
    UNROLL for (int query = 0; query < QUERIES; query++)
        out[query] = _mm256_adds_epu8(_mm256_permute2x128_si256(low[query], high[query], 0x20),
                                      _mm256_permute2x128_si256(low[query], high[query], 0x31));
}

#define TARGET AVX2
#include "groups_x86.h"

AVX2 int64_t count(const uint8_t *distances, int64_t groups, int64_t step, int limit) {
    constexpr int MOST = 255;  // groups that are counted in bytes
    const __m256i limits = _mm256_set1_epi8(static_cast<char>(limit)), zero = _mm256_setzero_si256();
    __m256i found = zero;
    for (int64_t group = 0; group < groups;) {
        __m256i here = zero;
        for (int i = 0; i < MOST && group < groups; i++, group += step)
            here = _mm256_sub_epi8(here, not_above(load(distances + group * GROUP), limits));
        found = _mm256_add_epi64(found, _mm256_sad_epu8(here, zero));
    }
    return _mm256_extract_epi64(found, 0) + _mm256_extract_epi64(found, 1) + _mm256_extract_epi64(found, 2) +
           _mm256_extract_epi64(found, 3);
}

AVX2 INLINE uint64_t within_bits(const uint8_t *distances, __m256i limits) {
    return static_cast<uint32_t>(_mm256_movemask_epi8(not_above(load(distances), limits)));
}

AVX2 int64_t within(const uint8_t *distances, int64_t n, int limit, int32_t *out) {
    const __m256i limits = _mm256_set1_epi8(static_cast<char>(limit));
    int64_t found = 0, i = 0;
    for (; i + 64 <= n; i += 64) {
        uint64_t mask = within_bits(distances + i, limits) | within_bits(distances + i + 32, limits) << 32;
        // There are few mostly. The first two are written whether they are there or not: a branch would be mispredicted.
        constexpr uint64_t last = uint64_t{1} << 63;  // so that there is always a bit to be found
        const int64_t next = found + __builtin_popcountll(mask);
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
        if (distances[i] <= limit) out[found++] = static_cast<int32_t>(i);
    return found;
}

// Of each two numbers a, b that are 4, 2, then 1 apart: (a + b, a - b). The second of a pair is negated, then added.
AVX2 void eights(int32_t *x, int64_t size) {
    const __m256i fours = _mm256_setr_epi32(1, 1, 1, 1, -1, -1, -1, -1);
    const __m256i twos = _mm256_setr_epi32(1, 1, -1, -1, 1, 1, -1, -1);
    const __m256i ones = _mm256_setr_epi32(1, -1, 1, -1, 1, -1, 1, -1);
    for (int64_t i = 0; i < size; i += 8) {
        __m256i v = load(x + i);
        v = _mm256_add_epi32(_mm256_permute2x128_si256(v, v, 1), _mm256_sign_epi32(v, fours));
        v = _mm256_add_epi32(_mm256_shuffle_epi32(v, 0x4e), _mm256_sign_epi32(v, twos));
        v = _mm256_add_epi32(_mm256_shuffle_epi32(v, 0xb1), _mm256_sign_epi32(v, ones));
        store(x + i, v);
    }
}

AVX2 void scale(const int32_t *dots, const float *scales, float scale, int64_t n, float *out) {
    loops::scale(dots, scales, scale, n, out);
}
AVX2 void rotate(const int8_t *code, int64_t width, int64_t bits, int32_t *out) {
    loops::rotate(code, width, bits, out, eights);
}
AVX2 void add(int32_t *sum, const int8_t *code, int32_t weight, int64_t width) { loops::add(sum, code, weight, width); }
AVX2 void residual(const float *x, int64_t n, const int8_t *code, float factor, int8_t *out) {
    loops::residual(x, n, code, factor, out);
}
AVX2 int32_t farthest(const int32_t *along, int64_t n) { return loops::farthest(along, n); }
AVX2 void farness(const int32_t *along, int64_t n, float factor, uint8_t *out) { loops::farness(along, n, factor, out); }

}  // namespace

Table make() {
    return {"avx2", scan,  dot,    dots, whole_dots, distances, near_groups, count,
            within, scale, rotate, add,  residual,   farthest,  farness};
}

}  // namespace kernels::avx2
#endif
