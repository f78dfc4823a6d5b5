// AVX-512 with VNNI (Intel since Ice Lake, AMD since Zen 4): the exact scan, whose products it sums in 32 bits at once, and
// sign codes. What waits for memory is AVX2's.
#if defined(__x86_64__) && defined(__GNUC__)
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 warns of its own header (its bug 105593)
#endif
#include <immintrin.h>

#include "loops.h"

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vnni")))
// Keeps a vector in one register: GCC copies every sum back and forth otherwise.
#define KEEP(vector) __asm__("" : "+v"(vector))

namespace kernels::avx512 {
namespace {

// P panels and Q queries at a time: P * Q sums, P keys and a query are in registers.
template <int P, int Q>
AVX512 void scan_tile(const Panels &panels, const Tile &tile, int32_t (*sums)[TILE][PANEL], uint64_t *masks) {
    const int share = panels.ahead_bytes / (panels.count / P);
    const int64_t width = panels.width;
    for (int p = 0; p < panels.count; p += P) {
        for (int byte = 0; byte < share; byte += 64) _mm_prefetch(panels.ahead + p / P * share + byte, _MM_HINT_T0);
        const uint8_t *codes = panels.codes + p * PANEL * width;
        __m512i sum[P][Q];
        UNROLL for (int i = 0; i < P; i++) UNROLL for (int q = 0; q < Q; q++) sum[i][q] = _mm512_set1_epi32(tile.start[q]);
        for (int64_t at = 0; at < width; at += 4) {
            __m512i key[P];
            UNROLL for (int i = 0; i < P; i++) key[i] = _mm512_loadu_si512(codes + (i * width + at) * PANEL);
            UNROLL for (int q = 0; q < Q; q++) {
                int32_t four;
                std::memcpy(&four, tile.codes[q] + at, 4);
                const __m512i query = _mm512_set1_epi32(four);
                UNROLL for (int i = 0; i < P; i++) {
                    __m512i added = _mm512_dpbusd_epi32(sum[i][q], key[i], query);
                    KEEP(added);
                    sum[i][q] = added;
                }
            }
        }
        UNROLL for (int i = 0; i < P; i++) {
            const __m512 scale = _mm512_loadu_ps(panels.inverse_scale + (p + i) * PANEL);
            const __m512 residual = _mm512_loadu_ps(panels.residual + (p + i) * PANEL);
            masks[p + i] = 0;
            UNROLL for (int q = 0; q < Q; q++) {
                const __m512 least = _mm512_sub_ps(_mm512_mul_ps(_mm512_set1_ps(tile.threshold[q]), scale),
                                                   _mm512_mul_ps(_mm512_set1_ps(tile.reach[q]), residual));
                const uint64_t mask = _mm512_cmp_ps_mask(_mm512_cvtepi32_ps(sum[i][q]), least, _CMP_GE_OQ);
                masks[p + i] |= mask << (PANEL * q);
                _mm512_storeu_si512(sums[p + i][q], sum[i][q]);
            }
        }
    }
}

AVX512 void scan(const Panels &panels, const Tile &tile, int32_t (*sums)[TILE][PANEL], uint64_t *masks) {
    // Where no other tile passes over these panels, memory is the limit, and it is read fastest from beginning to end.
    const bool once = panels.ahead_bytes >= panels.count * PANEL * panels.width;
    const auto each = tile.queries == 1 ? scan_tile<1, 1>
                      : tile.queries == 2 ? scan_tile<1, 2>
                      : once              ? scan_tile<1, 4>
                                          : scan_tile<STEP, 4>;
    each(panels, tile, sums, masks);
}

// Four nibbles of 32 codes at a time. Sums that stop at 255 are the same in any order.
template <int QUERIES>
AVX512 void distances_in(const uint8_t *const *costs, const uint8_t *signs, int64_t groups, int64_t nibbles,
                         uint8_t *const *out) {
    const __m512i mask = _mm512_set1_epi8(15);
    for (int64_t group = 0; group < groups; group++, signs += 16 * nibbles) {
        __m512i sums[QUERIES][2];  // codes 0 to 15, and 16 to 31; in all four quarters
        UNROLL for (int query = 0; query < QUERIES; query++) sums[query][0] = sums[query][1] = _mm512_setzero_si512();
        UNROLL for (int64_t j = 0; j < nibbles; j += 4) {
            const __m512i four = _mm512_loadu_si512(signs + 16 * j);
            const __m512i low = _mm512_and_si512(four, mask), high = _mm512_and_si512(_mm512_srli_epi16(four, 4), mask);
            UNROLL for (int query = 0; query < QUERIES; query++) {
                const __m512i cost = _mm512_loadu_si512(costs[query] + 16 * j);
                sums[query][0] = _mm512_adds_epu8(sums[query][0], _mm512_shuffle_epi8(cost, low));
                sums[query][1] = _mm512_adds_epu8(sums[query][1], _mm512_shuffle_epi8(cost, high));
            }
        }
        UNROLL for (int query = 0; query < QUERIES; query++) {
            __m256i half[2];
            UNROLL for (int i = 0; i < 2; i++)
                half[i] = _mm256_adds_epu8(_mm512_castsi512_si256(sums[query][i]),
                                           _mm512_extracti64x4_epi64(sums[query][i], 1));
            _mm256_storeu_si256(reinterpret_cast<__m256i *>(out[query] + group * GROUP),
                                _mm256_adds_epu8(_mm256_permute2x128_si256(half[0], half[1], 0x20),
                                                 _mm256_permute2x128_si256(half[0], half[1], 0x31)));
        }
    }
}

AVX512 void distances(const uint8_t *const *costs, int queries, const uint8_t *signs, int64_t groups, int64_t nibbles,
                      uint8_t *const *out) {
    static constexpr decltype(&distances_in<1>) in[] = {distances_in<1>, distances_in<2>, distances_in<3>, distances_in<4>};
    in[queries - 1](costs, signs, groups, nibbles, out);
}

}  // namespace

Table make(Table table) {
    table.name = "avx512";
    table.scan = scan;
    table.distances = distances;
    return table;
}

}  // namespace kernels::avx512
#endif
