// AVX2, for any x86-64 CPU since about 2013 (Intel) or 2015 (AMD).
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx2")))
#include "loops.h"

// Keeps a vector in one register. Left to itself the compiler copies the sums around and loads queries twice, which
// makes the loop slower by a fifth.
#define KEEP(vector) __asm__("" : "+x"(vector))

namespace kernels::variant {
namespace {

INLINE __m256i load(const void *from) { return _mm256_loadu_si256(static_cast<const __m256i *>(from)); }
INLINE void store(void *to, __m256i vector) { _mm256_storeu_si256(static_cast<__m256i *>(to), vector); }

// The products of a panel and Q queries over one segment, added to sums, or written there if it is the first one.
//
// maddubs adds pairs of products in 16 bits with saturation, which 2 * 127 * 127 never reaches. The sums of pairs wrap
// around instead; that is harmless, because the sum over a segment less its OFFSET part is known to fit (docs/exact-search.md).
// A function of its own, so that all sums find room in the registers.
template <int Q>
TARGET __attribute__((noinline)) void multiply(const uint8_t *codes, int width, const Tile &tile, int segment,
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
TARGET void scan_tile(const Panels &panels, const Tile &tile, int32_t (*sums)[TILE][PANEL], uint64_t *masks) {
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

TARGET void scan(const Panels &panels, const Tile &tile, int32_t (*sums)[TILE][PANEL], uint64_t *masks) {
    const auto each = tile.queries == 1 ? scan_tile<1> : tile.queries == 2 ? scan_tile<2> : scan_tile<4>;
    each(panels, tile, sums, masks);
}

INLINE __m256i dot_of(const int16_t *query, const int16_t *code, int64_t width) {
    __m256i sum = _mm256_setzero_si256();
    UNROLL for (int64_t i = 0; i < width; i += 16)
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(load(query + i), load(code + i)));
    return sum;
}

template <int64_t WIDTH>
TARGET void dots_of(const int16_t *query, const int16_t *codes, const int32_t *ids, int64_t n, int64_t any_width,
                  int32_t *out) {
    const int64_t width = WIDTH ? WIDTH : any_width;
    for (int64_t i = 0; i < n; i += 4) {
        __m256i sums[4];
        UNROLL for (int64_t j = 0; j < 4; j++) {  // past the end, the last row once more
            prefetch_row(row(codes, ids, std::min(i + j + ROWS_AHEAD, n - 1), width), width);
            sums[j] = dot_of(query, row(codes, ids, std::min(i + j, n - 1), width), width);
        }
        const __m256i s = _mm256_hadd_epi32(_mm256_hadd_epi32(sums[0], sums[1]), _mm256_hadd_epi32(sums[2], sums[3]));
        _mm_storeu_si128(reinterpret_cast<__m128i *>(out + i),
                         _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1)));
    }
}

TARGET void dots(const int16_t *query, const int16_t *codes, const int32_t *ids, int64_t n, int64_t width, int32_t *out) {
    (width == 128 ? dots_of<128> : dots_of<0>)(query, codes, ids, n, width, out);
}

struct Bytes {
    using Vector = __m256i;
    static constexpr int NIBBLES = 2;
    INLINE static Vector zero() { return _mm256_setzero_si256(); }
    INLINE static Vector load(const uint8_t *from) { return variant::load(from); }
    INLINE static Vector low(Vector both) { return _mm256_and_si256(both, _mm256_set1_epi8(15)); }
    INLINE static Vector high(Vector both) { return low(_mm256_srli_epi16(both, 4)); }
    INLINE static Vector look_up(Vector table, Vector nibbles) { return _mm256_shuffle_epi8(table, nibbles); }
    INLINE static Vector add(Vector a, Vector b) { return _mm256_adds_epu8(a, b); }
    INLINE static void store(Vector low, Vector high, uint8_t *out) {
        variant::store(out, add(_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31)));
    }
};

INLINE uint64_t within_bits(const uint8_t *distances, __m256i limits) {
    return static_cast<uint32_t>(
        _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_min_epu8(load(distances), limits), load(distances))));
}

TARGET int64_t within(const uint8_t *distances, int64_t n, int limit, int32_t *out) {
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

}  // namespace

Table make_avx2() { return {"avx2", scan, dot, dots, distances<Bytes>, count, within, rotate}; }

}  // namespace kernels::variant
#endif
