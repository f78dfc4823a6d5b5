// NEON, for any 64-bit ARM CPU: what compilers do not vectorise well by themselves. All else is the plain variant's.
#if defined(__aarch64__) && defined(__GNUC__)
#include <arm_neon.h>

#include <cstring>

#include "loops.h"

// The extension for products of bytes, of most CPUs since about 2018 (all of Apple's). Compilers that cannot compile single
// functions for it have it where it is switched on for all.
#if defined(__ARM_FEATURE_DOTPROD)
#define DOTPROD
#elif !defined(__clang__)
#define DOTPROD __attribute__((target("arch=armv8.2-a+dotprod")))
#endif

namespace kernels::neon {
namespace {

INLINE int8x16_t four_times(const int8_t *numbers) {
    int32_t four;
    std::memcpy(&four, numbers, 4);
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

// Adds the products of 16 bytes, twice, to 8 sums of pairs: two products of bytes fit into 16 bits, 2 * 127 * 127 < 2^15.
INLINE void multiply(int32x4_t (&sum)[2], int8x16_t a, int8x16_t b, int8x16_t c, int8x16_t d) {
    sum[0] = vpadalq_s16(sum[0], vmlal_s8(vmull_s8(vget_low_s8(a), vget_low_s8(b)), vget_low_s8(c), vget_low_s8(d)));
    sum[1] = vpadalq_s16(sum[1], vmlal_high_s8(vmull_high_s8(a, b), c, d));
}

// Writes the sums of 4 slots, and sets the bits of those that reach the query's threshold.
INLINE void finish(const Panels &panels, const Tile &tile, int p, int q, int slot, int32x4_t sum, int32_t *out,
                   uint64_t &mask) {
    static constexpr uint32_t BITS[] = {1, 2, 4, 8};
    const float32x4_t scale = vld1q_f32(panels.inverse_scale + p * PANEL + slot);
    const float32x4_t residual = vld1q_f32(panels.residual + p * PANEL + slot);
    const float32x4_t least = vsubq_f32(vmulq_n_f32(scale, tile.threshold[q]), vmulq_n_f32(residual, tile.reach[q]));
    const uint64_t bits = vaddvq_u32(vandq_u32(vcgeq_f32(vcvtq_f32_s32(sum), least), vld1q_u32(BITS)));
    vst1q_s32(out + slot, sum);
    mask |= bits << (PANEL * q + slot);
}

// 8 slots of each panel at a time, so that all sums find room in the registers. A stored code, c + OFFSET, is at most 127,
// so it is the same as a signed byte.
template <int Q>
void scan_tile(const Panels &panels, const Tile &tile, int32_t (*sums)[TILE][PANEL], uint64_t *masks) {
    for (int p = 0; p < panels.count; p++) {
        const auto *panel = reinterpret_cast<const int8_t *>(panels.codes) + int64_t{p} * PANEL * panels.width;
        masks[p] = 0;
        for (int part = 0; part < PANEL; part += 8) {
            const int8_t *codes = panel + part * 4;
            int32x4_t sum[Q][2][2];
            UNROLL for (int q = 0; q < Q; q++) UNROLL for (int i = 0; i < 4; i++) sum[q][i / 2][i % 2] = vdupq_n_s32(0);
            for (int at = 0; at < panels.width; at += 8, codes += 8 * PANEL)
                UNROLL for (int i = 0; i < 2; i++) {
                    const int8x16_t first = vld1q_s8(codes + 16 * i), second = vld1q_s8(codes + 16 * i + 4 * PANEL);
                    UNROLL for (int q = 0; q < Q; q++) {
                        const int8_t *query = tile.codes[q] + at;
                        multiply(sum[q][i], first, four_times(query), second, four_times(query + 4));
                    }
                }
            UNROLL for (int q = 0; q < Q; q++) UNROLL for (int i = 0; i < 2; i++) {
                const int32x4_t total = vaddq_s32(vdupq_n_s32(tile.start[q]), vpaddq_s32(sum[q][i][0], sum[q][i][1]));
                finish(panels, tile, p, q, part + 4 * i, total, sums[p][q], masks[p]);
            }
        }
    }
}

void scan(const Panels &panels, const Tile &tile, int32_t (*sums)[TILE][PANEL], uint64_t *masks) {
    const auto each = tile.queries == 1 ? scan_tile<1> : tile.queries == 2 ? scan_tile<2> : scan_tile<4>;
    each(panels, tile, sums, masks);
}

float dot(const float *a, const float *b, int size) {
    float32x4_t sum[8] = {};
    for (; size >= 32; a += 32, b += 32, size -= 32)
        UNROLL for (int i = 0; i < 8; i++) sum[i] = vaddq_f32(sum[i], vmulq_f32(vld1q_f32(a + 4 * i), vld1q_f32(b + 4 * i)));
    if (size > 0) {
        float rest[2][32] = {};
        std::copy(a, a + size, rest[0]);
        std::copy(b, b + size, rest[1]);
        for (int i = 0; i < 8; i++)
            sum[i] = vaddq_f32(sum[i], vmulq_f32(vld1q_f32(rest[0] + 4 * i), vld1q_f32(rest[1] + 4 * i)));
    }
    const float32x4_t first = vaddq_f32(vaddq_f32(sum[0], sum[2]), vaddq_f32(sum[4], sum[6]));
    const float32x4_t four = vaddq_f32(first, vaddq_f32(vaddq_f32(sum[1], sum[3]), vaddq_f32(sum[5], sum[7])));
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

void dots(const int8_t *query, const int8_t *codes, const int32_t *ids, int64_t n, int64_t width, int32_t *out) {
    for (int64_t i = 0; i < n; i++) {
        if (ids) loops::prefetch_row<3>(loops::row(codes, ids, std::min(i + ROWS_AHEAD, n - 1), width), width);
        const int8_t *code = loops::row(codes, ids, i, width);
        int32x4_t sum[2] = {};
        for (int64_t j = 0; j < width; j += 32)
            multiply(sum, vld1q_s8(query + j), vld1q_s8(code + j), vld1q_s8(query + j + 16), vld1q_s8(code + j + 16));
        out[i] = vaddvq_s32(vaddq_s32(sum[0], sum[1]));
    }
}

void whole_dots(const int16_t *query, const int8_t *codes, const int8_t *residuals, const int32_t *ids, int64_t n,
                int64_t width, int shift, int32_t *out) {
    const int32x4_t right = vdupq_n_s32(-shift);
    for (int64_t i = 0; i < n; i++) {
        const int64_t ahead = std::min(i + FAR_ROWS_AHEAD, n - 1);
        loops::prefetch_row<2>(loops::row(codes, ids, ahead, width), width);
        loops::prefetch_row<2>(loops::row(residuals, ids, ahead, width), width);
        const int8_t *code = loops::row(codes, ids, i, width), *residual = loops::row(residuals, ids, i, width);
        int32x4_t sum = {};
        for (int64_t j = 0; j < width; j += 8) {
            const int16x8_t q = vld1q_s16(query + j);
            const int16x8_t whole = vaddw_s8(vshll_n_s8(vld1_s8(code + j), 8), vld1_s8(residual + j));
            const int32x4_t low = vmull_s16(vget_low_s16(q), vget_low_s16(whole)), high = vmull_high_s16(q, whole);
            sum = vaddq_s32(sum, vshlq_s32(vpaddq_s32(low, high), right));
        }
        out[i] = vaddvq_s32(sum);
    }
}

// The distances of a group by its first nibbles: codes 0 to 15, then 16 to 31.
template <int QUERIES>
INLINE void distances_of(const uint8_t *const *costs, const uint8_t *signs, int64_t nibbles, uint8x16_t (&out)[QUERIES][2]) {
    uint8x16_t sums[QUERIES][2][2] = {};  // of even and of odd nibbles
    for (int64_t j = 0; j < nibbles; j += 2)
        UNROLL for (int odd = 0; odd < 2; odd++) {
            const uint8x16_t both = vld1q_u8(signs + 16 * (j + odd));
            const uint8x16_t low = vandq_u8(both, vdupq_n_u8(15)), high = vshrq_n_u8(both, 4);
            UNROLL for (int query = 0; query < QUERIES; query++) {
                const uint8x16_t cost = vld1q_u8(costs[query] + 16 * (j + odd));
                sums[query][0][odd] = vqaddq_u8(sums[query][0][odd], vqtbl1q_u8(cost, low));
                sums[query][1][odd] = vqaddq_u8(sums[query][1][odd], vqtbl1q_u8(cost, high));
            }
        }
    UNROLL for (int query = 0; query < QUERIES; query++)
        UNROLL for (int half = 0; half < 2; half++) out[query][half] = vqaddq_u8(sums[query][half][0], sums[query][half][1]);
}

template <int QUERIES>
void distances_in(const uint8_t *const *costs, const uint8_t *signs, int64_t groups, int64_t nibbles, uint8_t *const *out) {
    for (int64_t group = 0; group < groups; group++, signs += 16 * nibbles) {
        uint8x16_t here[QUERIES][2];
        distances_of<QUERIES>(costs, signs, nibbles, here);
        for (int query = 0; query < QUERIES; query++)
            for (int half = 0; half < 2; half++) vst1q_u8(out[query] + group * GROUP + 16 * half, here[query][half]);
    }
}

void distances(const uint8_t *const *costs, int queries, const uint8_t *signs, int64_t groups, int64_t nibbles,
               uint8_t *const *out) {
    static constexpr decltype(&distances_in<1>) in[] = {distances_in<1>, distances_in<2>, distances_in<3>, distances_in<4>};
    in[queries - 1](costs, signs, groups, nibbles, out);
}

template <int QUERIES>
void near_groups_in(const uint8_t *const *costs, const uint8_t *signs, int64_t groups, int64_t nibbles,
                    const uint8_t *limits, int32_t *const *out, int64_t *count) {
    for (int64_t group = 0; group < groups; group++, signs += 16 * nibbles) {
        uint8x16_t here[QUERIES][2];
        distances_of<QUERIES>(costs, signs, nibbles / 2, here);
        for (int query = 0; query < QUERIES; query++) {
            out[query][count[query]] = static_cast<int32_t>(group);
            count[query] += vminvq_u8(vminq_u8(here[query][0], here[query][1])) <= limits[query];
        }
    }
}

void near_groups(const uint8_t *const *costs, int queries, const uint8_t *signs, int64_t groups, int64_t nibbles,
                 const uint8_t *limits, int32_t *const *out, int64_t *count) {
    static constexpr decltype(&near_groups_in<1>) in[] = {near_groups_in<1>, near_groups_in<2>, near_groups_in<3>,
                                                          near_groups_in<4>};
    in[queries - 1](costs, signs, groups, nibbles, limits, out, count);
}

#ifdef DOTPROD
template <int Q>
DOTPROD void scan_tile_dotprod(const Panels &panels, const Tile &tile, int32_t (*sums)[TILE][PANEL], uint64_t *masks) {
    const auto *codes = reinterpret_cast<const int8_t *>(panels.codes);
    for (int p = 0; p < panels.count; p++) {
        int32x4_t sum[Q][4];
        UNROLL for (int q = 0; q < Q; q++) UNROLL for (int i = 0; i < 4; i++) sum[q][i] = vdupq_n_s32(tile.start[q]);
        for (int at = 0; at < panels.width; at += 4, codes += 4 * PANEL) {
            int8x16_t key[4];
            UNROLL for (int i = 0; i < 4; i++) key[i] = vld1q_s8(codes + 16 * i);
            UNROLL for (int q = 0; q < Q; q++) {
                const int8x16_t query = four_times(tile.codes[q] + at);
                UNROLL for (int i = 0; i < 4; i++) sum[q][i] = vdotq_s32(sum[q][i], key[i], query);
            }
        }
        masks[p] = 0;
        UNROLL for (int q = 0; q < Q; q++)
            UNROLL for (int i = 0; i < 4; i++) finish(panels, tile, p, q, 4 * i, sum[q][i], sums[p][q], masks[p]);
    }
}

DOTPROD void scan_dotprod(const Panels &panels, const Tile &tile, int32_t (*sums)[TILE][PANEL], uint64_t *masks) {
    const auto each = tile.queries == 1   ? scan_tile_dotprod<1>
                      : tile.queries == 2 ? scan_tile_dotprod<2>
                                          : scan_tile_dotprod<4>;
    each(panels, tile, sums, masks);
}

DOTPROD void dots_dotprod(const int8_t *query, const int8_t *codes, const int32_t *ids, int64_t n, int64_t width,
                          int32_t *out) {
    for (int64_t i = 0; i < n; i++) {
        if (ids) loops::prefetch_row<3>(loops::row(codes, ids, std::min(i + ROWS_AHEAD, n - 1), width), width);
        const int8_t *code = loops::row(codes, ids, i, width);
        int32x4_t sum[2] = {};
        for (int64_t j = 0; j < width; j += 32)
            UNROLL for (int half = 0; half < 2; half++)
                sum[half] = vdotq_s32(sum[half], vld1q_s8(query + j + 16 * half), vld1q_s8(code + j + 16 * half));
        out[i] = vaddvq_s32(vaddq_s32(sum[0], sum[1]));
    }
}
#endif

}  // namespace

Table make(Table table) {
    table.name = "neon";
    table.scan = scan;
    table.dot = dot;
    table.dots = dots;
    table.whole_dots = whole_dots;
    table.distances = distances;
    table.near_groups = near_groups;
    return table;
}

#ifdef DOTPROD
Table make_dotprod(Table table) {
    table.name = "dotprod";
    table.scan = scan_dotprod;
    table.dots = dots_dotprod;
    return table;
}
#else
Table make_dotprod(Table table) { return table; }
#endif

}  // namespace kernels::neon
#endif
