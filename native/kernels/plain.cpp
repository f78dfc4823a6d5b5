// Standard C++: what all variants must give.
#include "loops.h"

namespace kernels::variant {
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

void dots(const int16_t *query, const int16_t *codes, const int32_t *ids, int64_t n, int64_t width, int32_t *out) {
    for (int64_t i = 0; i < n; i++) {
        const int16_t *code = row(codes, ids, i, width);
        uint32_t sum = 0;  // a part of it may not fit into 31 bits
        for (int64_t j = 0; j < width; j++) sum += static_cast<uint32_t>(query[j] * code[j]);
        out[i] = static_cast<int32_t>(sum);
    }
}

void distances(const uint8_t *const *costs, int queries, const uint8_t *signs, int64_t groups, int64_t nibbles,
               uint8_t *const *out) {
    for (int64_t group = 0; group < groups; group++, signs += 16 * nibbles)
        for (int i = 0; i < queries * GROUP; i++) {
            const int query = i / GROUP, code = i % GROUP;
            int sum = 0;
            for (int64_t j = 0; j < nibbles; j++)
                sum += costs[query][16 * j + (signs[16 * j + code % 16] >> (code / 16 * 4) & 15)];
            out[query][group * GROUP + code] = static_cast<uint8_t>(std::min(sum, 255));
        }
}

int64_t within(const uint8_t *distances, int64_t n, int limit, int32_t *out) {
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++) {  // without a branch, which would be mispredicted
        out[found] = static_cast<int32_t>(i);
        found += distances[i] <= limit;
    }
    return found;
}

}  // namespace

Table make_plain() { return {"plain", scan, dot, dots, distances, count, within, rotate}; }

}  // namespace kernels::variant
