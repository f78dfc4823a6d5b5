// NEON, for any 64-bit ARM CPU: what compilers do not vectorise well by themselves. All else is the plain variant's.
#if defined(__aarch64__) && defined(__GNUC__)
#include <arm_neon.h>

#include "loops.h"

// The extension for products of bytes, of most CPUs since about 2018 (all of Apple's). Compilers that cannot compile single
// functions for it have it where it is switched on for all.
#if defined(__ARM_FEATURE_DOTPROD)
#define DOTPROD
#elif !defined(__clang__)
#define DOTPROD __attribute__((target("arch=armv8.2-a+dotprod")))
#endif

namespace kernels::variant {
namespace {

void dots(const int16_t *query, const int16_t *codes, const int32_t *ids, int64_t n, int64_t width, int32_t *out) {
    for (int64_t i = 0; i < n; i++) {
        prefetch_row(row(codes, ids, std::min(i + ROWS_AHEAD, n - 1), width), width);
        const int16_t *code = row(codes, ids, i, width);
        int32x4_t low = {}, high = {};
        for (int64_t j = 0; j < width; j += 8) {
            const int16x8_t q = vld1q_s16(query + j), c = vld1q_s16(code + j);
            low = vmlal_s16(low, vget_low_s16(q), vget_low_s16(c));
            high = vmlal_high_s16(high, q, c);
        }
        out[i] = vaddvq_s32(vaddq_s32(low, high));
    }
}

struct Bytes {
    using Vector = uint8x16_t;
    static constexpr int NIBBLES = 1;
    INLINE static Vector zero() { return vdupq_n_u8(0); }
    INLINE static Vector load(const uint8_t *from) { return vld1q_u8(from); }
    INLINE static Vector low(Vector both) { return vandq_u8(both, vdupq_n_u8(15)); }
    INLINE static Vector high(Vector both) { return vshrq_n_u8(both, 4); }
    INLINE static Vector look_up(Vector table, Vector nibbles) { return vqtbl1q_u8(table, nibbles); }
    INLINE static Vector add(Vector a, Vector b) { return vqaddq_u8(a, b); }
    INLINE static void store(Vector low, Vector high, uint8_t *out) {
        vst1q_u8(out, low);
        vst1q_u8(out + 16, high);
    }
};

#ifdef DOTPROD
// A stored code, c + OFFSET, is at most 127, so it is the same as a signed byte.
template <int Q>
DOTPROD void scan_tile(const Panels &panels, const Tile &tile, int32_t (*sums)[TILE][PANEL], uint64_t *masks) {
    static constexpr uint32_t BITS[] = {1, 2, 4, 8};
    const auto *codes = reinterpret_cast<const int8_t *>(panels.codes);
    for (int p = 0; p < panels.count; p++) {
        int32x4_t sum[Q][4];
        UNROLL for (int q = 0; q < Q; q++) UNROLL for (int i = 0; i < 4; i++) sum[q][i] = vdupq_n_s32(tile.start[q]);
        for (int at = 0; at < panels.width; at += 4, codes += 4 * PANEL) {
            int8x16_t key[4];
            UNROLL for (int i = 0; i < 4; i++) key[i] = vld1q_s8(codes + 16 * i);
            UNROLL for (int q = 0; q < Q; q++) {
                int32_t four;
                std::memcpy(&four, tile.codes[q] + at, 4);
                const int8x16_t query = vreinterpretq_s8_s32(vdupq_n_s32(four));
                UNROLL for (int i = 0; i < 4; i++) sum[q][i] = vdotq_s32(sum[q][i], key[i], query);
            }
        }
        masks[p] = 0;
        UNROLL for (int q = 0; q < Q; q++) UNROLL for (int i = 0; i < 4; i++) {
            const float32x4_t scale = vld1q_f32(panels.inverse_scale + p * PANEL + 4 * i);
            const float32x4_t residual = vld1q_f32(panels.residual + p * PANEL + 4 * i);
            const float32x4_t least = vsubq_f32(vmulq_n_f32(scale, tile.threshold[q]), vmulq_n_f32(residual, tile.reach[q]));
            const uint64_t bits = vaddvq_u32(vandq_u32(vcgeq_f32(vcvtq_f32_s32(sum[q][i]), least), vld1q_u32(BITS)));
            vst1q_s32(sums[p][q] + 4 * i, sum[q][i]);
            masks[p] |= bits << (PANEL * q + 4 * i);
        }
    }
}

DOTPROD void scan(const Panels &panels, const Tile &tile, int32_t (*sums)[TILE][PANEL], uint64_t *masks) {
    (tile.queries == 1 ? scan_tile<1> : tile.queries == 2 ? scan_tile<2> : scan_tile<4>)(panels, tile, sums, masks);
}
#endif

}  // namespace

Table make_neon(Table table) {
    table.name = "neon";
    table.dots = dots;
    table.distances = distances<Bytes>;
    return table;
}

Table make_dotprod(Table table) {
#ifdef DOTPROD
    table.name = "dotprod";
    table.scan = scan;
#endif
    return table;
}

}  // namespace kernels::variant
#endif
