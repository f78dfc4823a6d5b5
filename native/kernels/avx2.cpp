// AVX2, for any x86-64 CPU since about 2013 (Intel) or 2015 (AMD).
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

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

AVX2 INLINE __m256i dot_of(const int16_t *query, const int16_t *code, int64_t width) {
    __m256i sum = _mm256_setzero_si256();
    UNROLL for (int64_t i = 0; i < width; i += 16)
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(load(query + i), load(code + i)));
    return sum;
}

template <int64_t WIDTH>
AVX2 void dots_of(const int16_t *query, const int16_t *codes, const int32_t *ids, int64_t n, int64_t any_width,
                  int32_t *out) {
    const int64_t width = WIDTH ? WIDTH : any_width;
    for (int64_t i = 0; i < n; i += 4) {
        __m256i sums[4];
        UNROLL for (int64_t j = 0; j < 4; j++) {  // past the end, the last row once more
            loops::prefetch_row(loops::row(codes, ids, std::min(i + j + ROWS_AHEAD, n - 1), width), width);
            sums[j] = dot_of(query, loops::row(codes, ids, std::min(i + j, n - 1), width), width);
        }
        const __m256i s = _mm256_hadd_epi32(_mm256_hadd_epi32(sums[0], sums[1]), _mm256_hadd_epi32(sums[2], sums[3]));
        _mm_storeu_si128(reinterpret_cast<__m128i *>(out + i),
                         _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1)));
    }
}

AVX2 void dots(const int16_t *query, const int16_t *codes, const int32_t *ids, int64_t n, int64_t width, int32_t *out) {
    (width == 128 ? dots_of<128> : dots_of<0>)(query, codes, ids, n, width, out);
}

// Two nibbles of 32 codes at a time.
template <int QUERIES>
AVX2 void distances_in(const uint8_t *const *costs, const uint8_t *signs, int64_t groups, int64_t nibbles,
                       uint8_t *const *out) {
    const __m256i mask = _mm256_set1_epi8(15);
    for (int64_t group = 0; group < groups; group++, signs += 16 * nibbles) {
        __m256i low[QUERIES] = {}, high[QUERIES] = {};  // codes 0 to 15, and 16 to 31; in both halves
        UNROLL for (int64_t j = 0; j < nibbles; j += 2) {
            const __m256i pair = load(signs + 16 * j);
            const __m256i first = _mm256_and_si256(pair, mask), second = _mm256_and_si256(_mm256_srli_epi16(pair, 4), mask);
            UNROLL for (int query = 0; query < QUERIES; query++) {
                const __m256i cost = load(costs[query] + 16 * j);
                low[query] = _mm256_adds_epu8(low[query], _mm256_shuffle_epi8(cost, first));
                high[query] = _mm256_adds_epu8(high[query], _mm256_shuffle_epi8(cost, second));
            }
        }
        UNROLL for (int query = 0; query < QUERIES; query++)
            store(out[query] + group * GROUP, _mm256_adds_epu8(_mm256_permute2x128_si256(low[query], high[query], 0x20),
                                                               _mm256_permute2x128_si256(low[query], high[query], 0x31)));
    }
}

AVX2 void distances(const uint8_t *const *costs, int queries, const uint8_t *signs, int64_t groups, int64_t nibbles,
                    uint8_t *const *out) {
    static constexpr decltype(&distances_in<1>) in[] = {distances_in<1>, distances_in<2>, distances_in<3>, distances_in<4>};
    in[queries - 1](costs, signs, groups, nibbles, out);
}

AVX2 INLINE uint64_t within_bits(const uint8_t *distances, __m256i limits) {
    return static_cast<uint32_t>(
        _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_min_epu8(load(distances), limits), load(distances))));
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

AVX2 float dot(const float *a, const float *b, int size) { return loops::dot(a, b, size); }
AVX2 int64_t count(const uint8_t *distances, int64_t groups, int64_t step, int limit) {
    return loops::count(distances, groups, step, limit);
}
AVX2 void rotate(const int16_t *code, int64_t width, int64_t bits, int32_t *out) { loops::rotate(code, width, bits, out); }

}  // namespace

Table make() { return {"avx2", scan, dot, dots, distances, count, within, rotate}; }

}  // namespace kernels::avx2
#endif
