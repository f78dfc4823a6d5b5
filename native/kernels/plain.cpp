// Standard C++: what all variants must give.
#include "loops.h"

namespace kernels::plain {
namespace {

void scan(const Panels &panels, const Tile &tile, int32_t (*sums)[TILE][PANEL], uint64_t *masks) {
    const uint8_t *codes = panels.codes;
    for (int p = 0; p < panels.count; p++, codes += PANEL * panels.width) {
        masks[p] = 0;
        for (int q = 0; q < tile.queries; q++) {
            int32_t *const sum = sums[p][q];
            std::fill_n(sum, PANEL, tile.start[q]);
            for (int i = 0; i < panels.width; i += 4)
                for (int s = 0; s < PANEL; s++)
                    for (int j = 0; j < 4; j++) sum[s] += codes[i * PANEL + s * 4 + j] * tile.codes[q][i + j];
            for (int s = 0; s < PANEL; s++) {
                const float least = tile.threshold[q] * panels.inverse_scale[p * PANEL + s] -
                                    tile.reach[q] * panels.residual[p * PANEL + s];
                masks[p] |= uint64_t{static_cast<float>(sum[s]) >= least} << (PANEL * q + s);
            }
        }
    }
}

// 32 sums side by side, added up as a tree: an order that vectors of any length can follow.
float dot(const float *a, const float *b, int size) {
    float sums[32] = {};
    for (; size >= 32; a += 32, b += 32, size -= 32)
        for (int i = 0; i < 32; i++) sums[i] += a[i] * b[i];
    for (int i = 0; i < size; i++) sums[i] += a[i] * b[i];
    for (int i = 0; i < 8; i++) sums[i] = (sums[i] + sums[8 + i]) + (sums[16 + i] + sums[24 + i]);
    for (int half = 4; half > 0; half /= 2)
        for (int i = 0; i < half; i++) sums[i] += sums[half + i];
    return sums[0];
}

void dots(const int8_t *query, const int8_t *codes, const int32_t *ids, int64_t n, int64_t width, int32_t *out) {
    for (int64_t i = 0; i < n; i++) {
        const int8_t *code = loops::row(codes, ids, i, width);
        int32_t sum = 0;
        for (int64_t j = 0; j < width; j++) sum += query[j] * code[j];
        out[i] = sum;
    }
}

void whole_dots(const int16_t *query, const int8_t *codes, const int8_t *residuals, const int32_t *ids, int64_t n,
                int64_t width, int shift, int32_t *out) {
    for (int64_t i = 0; i < n; i++) {
        const int8_t *code = loops::row(codes, ids, i, width), *residual = loops::row(residuals, ids, i, width);
        auto product = [&](int64_t j) { return query[j] * (256 * code[j] + residual[j]); };
        int32_t sum = 0;
        for (int64_t j = 0; j < width; j += 2) sum += (product(j) + product(j + 1)) >> shift;
        out[i] = sum;
    }
}

void distances(const uint8_t *const *costs, int queries, const uint8_t *signs, int64_t groups, int64_t nibbles,
               uint8_t *const *out) {
    for (int64_t group = 0; group < groups; group++, signs += 16 * nibbles)
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

void near_groups(const uint8_t *const *costs, int queries, const uint8_t *signs, int64_t groups, int64_t nibbles,
                 const uint8_t *limits, int32_t *const *out, int64_t *count) {
    for (int64_t group = 0; group < groups; group++, signs += 16 * nibbles)
        for (int query = 0; query < queries; query++) {
            uint8_t half[GROUP], *const here = half;
            distances(&costs[query], 1, signs, 1, nibbles / 2, &here);
            out[query][count[query]] = static_cast<int32_t>(group);
            count[query] += *std::min_element(half, half + GROUP) <= limits[query];
        }
}

int64_t count(const uint8_t *distances, int64_t groups, int64_t step, int limit) {
    int64_t found = 0;
    for (int64_t group = 0; group < groups; group += step)
        for (int i = 0; i < GROUP; i++) found += distances[group * GROUP + i] <= limit;
    return found;
}

int64_t within(const uint8_t *distances, int64_t n, int limit, int32_t *out) {
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++)
        if (distances[i] <= limit) out[found++] = static_cast<int32_t>(i);
    return found;
}

void eights(int32_t *x, int64_t size) {
    for (int half = 4; half > 0; half /= 2)
        for (int64_t i = 0; i < size; i++) {
            if (i & half) continue;
            const int32_t a = x[i], b = x[i + half];
            x[i] = a + b;
            x[i + half] = a - b;
        }
}

void rotate(const int8_t *code, int64_t width, int64_t bits, int32_t *out) {
    loops::rotate(code, width, bits, out, eights);
}

}  // namespace

Table make() {
    return {"plain", scan,         dot,    dots,       whole_dots,      distances,       near_groups,   count,
            within,  loops::scale, rotate, loops::add, loops::residual, loops::farthest, loops::farness};
}

}  // namespace kernels::plain
