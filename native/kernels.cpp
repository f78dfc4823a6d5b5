#include "kernels.h"

#include <algorithm>

#include "cpu.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

namespace {

// ---- plain C++ ----

void scan_plain(const uint8_t *codes, const float *inverse_scale, const float *residual, int panels, int width,
                const Tile &tile, const char *, int, int32_t (*sums)[TILE][PANEL], uint32_t *masks) {
    for (int p = 0; p < panels; p++, codes += PANEL * width) {
        masks[p] = 0;
        for (int q = 0; q < tile.queries; q++) {
            int32_t sum[PANEL] = {};
            for (int i = 0; i < width; i += 4)
                for (int s = 0; s < PANEL; s++)
                    for (int j = 0; j < 4; j++)
                        sum[s] += (codes[i * PANEL + s * 4 + j] - OFFSET) * tile.codes[q][i * PANEL + s * 4 + j];
            for (int s = 0; s < PANEL; s++) {
                sums[p][q][s] = sum[s];
                float least = tile.threshold[q] * inverse_scale[p * PANEL + s] - tile.reach[q] * residual[p * PANEL + s];
                masks[p] |= uint32_t(float(sum[s]) >= least) << (8 * q + s);
            }
        }
    }
}

// 32 sums side by side, added up as a tree: an order that vectors of any length can follow.
float dot_plain(const float *a, const float *b, int size) {
    float sums[32] = {};
    for (; size >= 32; a += 32, b += 32, size -= 32)
        for (int i = 0; i < 32; i++) sums[i] += a[i] * b[i];
    for (int i = 0; i < size; i++) sums[i] += a[i] * b[i];
    for (int i = 0; i < 8; i++) sums[i] = (sums[i] + sums[8 + i]) + (sums[16 + i] + sums[24 + i]);
    for (int half = 4; half > 0; half /= 2)
        for (int i = 0; i < half; i++) sums[i] += sums[half + i];
    return sums[0];
}

// ---- AVX2 ----

#if defined(__x86_64__) && defined(__GNUC__)
#define AVX2 __attribute__((target("avx2")))
// Keeps a vector in one register. Left to itself the compiler copies the sums around and loads queries twice, which
// makes the loop slower by a fifth.
#define KEEP(vector) __asm__("" : "+x"(vector))

AVX2 inline __attribute__((always_inline)) __m256i load(const void *from) {
    return _mm256_loadu_si256(static_cast<const __m256i *>(from));
}

// The products of P panels and Q queries over one segment, added to sums, or written there if it is the first one.
//
// maddubs adds pairs of products in 16 bits with saturation, which 2 * 127 * 127 never reaches. The sums of pairs wrap
// around instead; that is harmless, because the sum over a segment less its OFFSET part is known to fit (exact.cpp).
// A function of its own, so that all sums find room in the registers.
template <int P, int Q>
AVX2 __attribute__((noinline)) void multiply(const uint8_t *codes, int width, const Tile &tile, int segment,
                                             int32_t (*sums)[TILE][PANEL]) {
    __m256i sum[P][Q];
#pragma GCC unroll 8
    for (int q = 0; q < Q; q++)
#pragma GCC unroll 8
        for (int p = 0; p < P; p++) sum[p][q] = _mm256_set1_epi32(int(tile.starts[q][segment]));
    const int start = segment * SEGMENT, end = std::min(start + SEGMENT, width);
    for (int i = start; i < end; i += 8) {
        __m256i key[2][P];
#pragma GCC unroll 8
        for (int p = 0; p < P; p++) {
            key[0][p] = load(codes + (p * width + i) * PANEL);
            key[1][p] = load(codes + (p * width + i + 4) * PANEL);
        }
#pragma GCC unroll 8
        for (int q = 0; q < Q; q++) {
            __m256i first = load(tile.codes[q] + i * PANEL), second = load(tile.codes[q] + (i + 4) * PANEL);
            KEEP(first);
            KEEP(second);
#pragma GCC unroll 8
            for (int half = 0; half < 2; half++)
#pragma GCC unroll 8
                for (int p = 0; p < P; p++) {
                    __m256i added = _mm256_add_epi16(sum[p][q], _mm256_maddubs_epi16(key[half][p], half ? second : first));
                    KEEP(added);
                    sum[p][q] = added;
                }
        }
    }
    __m256i ones = _mm256_set1_epi16(1);
    KEEP(ones);  // not before the loop
#pragma GCC unroll 8
    for (int p = 0; p < P; p++)
#pragma GCC unroll 8
        for (int q = 0; q < Q; q++) {
            __m256i wide = _mm256_madd_epi16(sum[p][q], ones);
            if (segment > 0) wide = _mm256_add_epi32(wide, load(sums[p][q]));
            _mm256_storeu_si256(reinterpret_cast<__m256i *>(sums[p][q]), wide);
        }
}

template <int P, int Q>
AVX2 void scan_tile(const uint8_t *codes, const float *inverse_scale, const float *residual, int panels, int width,
                    const Tile &tile, const char *ahead, int ahead_bytes, int32_t (*sums)[TILE][PANEL], uint32_t *masks) {
    const int share = ahead_bytes / (panels / P);
    for (int p = 0; p < panels; p += P) {
        for (int byte = 0; byte < share; byte += 64) _mm_prefetch(ahead + p / P * share + byte, _MM_HINT_T0);
        for (int segment = 0; segment * SEGMENT < width; segment++)
            multiply<P, Q>(codes + int64_t(p) * PANEL * width, width, tile, segment, sums + p);
    }
    for (int p = 0; p < panels; p++) {
        const __m256 scale = _mm256_loadu_ps(inverse_scale + p * PANEL), rest = _mm256_loadu_ps(residual + p * PANEL);
        masks[p] = 0;
        for (int q = 0; q < Q; q++) {
            const __m256 least = _mm256_sub_ps(_mm256_mul_ps(_mm256_set1_ps(tile.threshold[q]), scale),
                                               _mm256_mul_ps(_mm256_set1_ps(tile.reach[q]), rest));
            const __m256 sum = _mm256_cvtepi32_ps(load(sums[p][q]));
            masks[p] |= uint32_t(_mm256_movemask_ps(_mm256_cmp_ps(sum, least, _CMP_GE_OQ))) << (8 * q);
        }
    }
}

AVX2 void scan_avx2(const uint8_t *codes, const float *inverse_scale, const float *residual, int panels, int width,
                    const Tile &tile, const char *ahead, int ahead_bytes, int32_t (*sums)[TILE][PANEL], uint32_t *masks) {
    // With few queries the memory is the limit, and that is read fastest from beginning to end.
    auto *scan = tile.queries == 1 ? scan_tile<1, 1> : tile.queries == 2 ? scan_tile<1, 2> : scan_tile<2, 4>;
    scan(codes, inverse_scale, residual, panels, width, tile, ahead, ahead_bytes, sums, masks);
}

AVX2 float dot_avx2(const float *a, const float *b, int size) {
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
    __m256 eight = _mm256_add_ps(_mm256_add_ps(sum[0], sum[1]), _mm256_add_ps(sum[2], sum[3]));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
#endif

}  // namespace

const Kernels &kernels() {
    static constexpr Kernels plain = {scan_plain, dot_plain};
#if defined(__x86_64__) && defined(__GNUC__)
    static constexpr Kernels avx2 = {scan_avx2, dot_avx2};
    if (variant == Variant::avx2) return avx2;
#endif
    return plain;
}
