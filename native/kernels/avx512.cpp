// AVX-512 with VNNI (Intel since Ice Lake, AMD since Zen 4): the exact scan, whose products it sums in 32 bits at once, and
// sign codes. What waits for memory is AVX2's.
#if defined(__x86_64__) && defined(__GNUC__)
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 warns of its own header (its bug 105593)
#endif
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vnni")))
#include "loops.h"

// Keeps a vector in one register: GCC copies every sum back and forth otherwise.
#define KEEP(vector) __asm__("" : "+v"(vector))

namespace kernels::variant {
namespace {

// P panels and Q queries at a time: P * Q sums, P keys and a query are in registers.
template <int P, int Q>
TARGET void scan_tile(const Panels &panels, const Tile &tile, int32_t (*sums)[TILE][PANEL], uint64_t *masks) {
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

TARGET void scan(const Panels &panels, const Tile &tile, int32_t (*sums)[TILE][PANEL], uint64_t *masks) {
    // Where no other tile passes over these panels, memory is the limit, and it is read fastest from beginning to end.
    const bool once = panels.ahead_bytes >= panels.count * PANEL * panels.width;
    const auto each = tile.queries == 1 ? scan_tile<1, 1>
                      : tile.queries == 2 ? scan_tile<1, 2>
                      : once              ? scan_tile<1, 4>
                                          : scan_tile<STEP, 4>;
    each(panels, tile, sums, masks);
}

struct Bytes {
    using Vector = __m512i;
    static constexpr int NIBBLES = 4;
    INLINE static Vector zero() { return _mm512_setzero_si512(); }
    INLINE static Vector load(const uint8_t *from) { return _mm512_loadu_si512(from); }
    INLINE static Vector low(Vector both) { return _mm512_and_si512(both, _mm512_set1_epi8(15)); }
    INLINE static Vector high(Vector both) { return low(_mm512_srli_epi16(both, 4)); }
    INLINE static Vector look_up(Vector table, Vector nibbles) { return _mm512_shuffle_epi8(table, nibbles); }
    INLINE static Vector add(Vector a, Vector b) { return _mm512_adds_epu8(a, b); }
    INLINE static void store(Vector low, Vector high, uint8_t *out) {
        const __m256i a = _mm256_adds_epu8(_mm512_castsi512_si256(low), _mm512_extracti64x4_epi64(low, 1));
        const __m256i b = _mm256_adds_epu8(_mm512_castsi512_si256(high), _mm512_extracti64x4_epi64(high, 1));
        const __m256i sum = _mm256_adds_epu8(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(out), sum);
    }
};

}  // namespace

Table make_avx512(Table table) {
    table.name = "avx512";
    table.scan = scan;
    table.distances = distances<Bytes>;
    return table;
}

}  // namespace kernels::variant
#endif
