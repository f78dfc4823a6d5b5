// AVX-512 with VNNI (Intel since Ice Lake, AMD since Zen 4): the exact scan, whose products it sums in 32 bits at once. All
// else is AVX2's.
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#include <cstring>

#include "loops.h"

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vnni")))
// Keeps a vector in one register: GCC copies every sum back and forth otherwise.
#define KEEP(vector) __asm__("" : "+v"(vector))

namespace kernels {

namespace avx2 {
Table make();
}

namespace avx512 {
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
                // With a mask of all, or GCC 12 warns of its own header.
                const __m512 reached = _mm512_maskz_cvtepi32_ps(0xFFFF, sum[i][q]);
                const uint64_t mask = _mm512_cmp_ps_mask(reached, least, _CMP_GE_OQ);
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

}  // namespace

Table make() {
    Table table = avx2::make();
    table.name = "avx512";
    table.scan = scan;
    return table;
}

}  // namespace avx512
}  // namespace kernels
#endif
