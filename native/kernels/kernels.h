// The inner loops of the search, in one variant for each instruction set. All variants give the same bits.
//
// Call them as functions, kernels::dots(...): each name is a pointer of the table in use.
#pragma once

#include <cstdint>
#include <vector>

namespace kernels {

// ---- the 7-bit copy of the keys, for exact search ----
//
// The copy lies in panels of 16 slots. Number i of slot s is byte
//     (s / PANEL) * PANEL * width + (i / 4) * 64 + (s % PANEL) * 4 + i % 4,
// where width is the key dimension rounded up to a multiple of 8: a cache line holds 4 numbers of each slot of a panel.
constexpr int PANEL = 16;     // slots
constexpr int STEP = 4;       // panels that a scan takes at once: their number is a multiple of it
constexpr int TILE = 4;       // queries that are compared at once, here and by `distances`
constexpr int OFFSET = 64;    // a code c is stored as c + OFFSET: the instructions multiply unsigned by signed bytes
constexpr int SEGMENT = 128;  // numbers that AVX2 sums in 16 bits before it widens the sum

struct Panels {
    const uint8_t *codes;
    const float *inverse_scale, *residual;  // (count * PANEL,): see index/exact.h
    int count, width;
    const char *ahead;  // what is scanned next: fetched into the cache meanwhile
    int ahead_bytes;
};

// Up to TILE queries of the same scan.
struct Tile {
    const int8_t *codes[TILE];     // (width,)
    const uint32_t *starts[TILE];  // (segments,): what a slot's two 16-bit sums start from, to undo the OFFSET
    int32_t start[TILE];           // the same for one sum in 32 bits
    float threshold[TILE], reach[TILE];
    int queries;  // 1, 2 or 4
};

// ---- sign codes, for inverted lists ----
//
// 32 sign codes lie together (as in FAISS' FastScan): 16 bytes for each group of 4 bits (a nibble), codes 0 to 15 in the
// lower halves of the bytes, 16 to 31 in the upper.
constexpr int GROUP = 32;

// How many rows before its use a row is fetched (memory latency over the time of a row, by measurement): more at once
// would wait for each other. The farther distance fetches into the second-level cache, which has more requests in flight.
constexpr int64_t ROWS_AHEAD = 16, FAR_ROWS_AHEAD = 32;

struct Table {
    const char *name;

    // For each panel and each query of the tile: the slots that could be good enough, as bits PANEL * query + slot of
    // masks[panel], where
    //     sum >= threshold * inverse_scale[slot] - reach * residual[slot]
    // and the products of the codes, sums[panel][query][slot], where the query has any such slot; elsewhere anything.
    void (*scan)(const Panels &, const Tile &, int32_t (*sums)[TILE][PANEL], uint64_t *masks);

    // The inner product of two vectors, always summed in the same order.
    float (*dot)(const float *a, const float *b, int size);

    // Below, codes are rows of `width` bytes, a multiple of 32, in [-127, 127]; row ids[i] is meant, or row i where ids
    // is null.

    // out[i]: the inner product of the query's code and a row. out has room for 3 more.
    void (*dots)(const int8_t *query, const int8_t *codes, const int32_t *ids, int64_t n, int64_t width, int32_t *out);

    // The same in 16 bits, 256 * code + residual; each sum of two products is shifted right by `shift` to let the total
    // fit. out has room for 3 more.
    void (*whole_dots)(const int16_t *query, const int8_t *codes, const int8_t *residuals, const int32_t *ids, int64_t n,
                       int64_t width, int shift, int32_t *out);

    // Sums of table entries, for each of up to TILE queries: out[i] = sum over j of costs[16 * j + nibble j of sign code
    // i], at most 255. nibbles: 16, 32 or 64.
    void (*distances)(const uint8_t *const *costs, int queries, const uint8_t *signs, int64_t groups, int64_t nibbles,
                      uint8_t *const *out);

    // Groups with a code whose distance by the first half of its nibbles (32 or 64 in all) is not above the query's
    // limit: appends their numbers to out, which has room for all and one more, and adds how many they are to count.
    void (*near_groups)(const uint8_t *const *costs, int queries, const uint8_t *signs, int64_t groups, int64_t nibbles,
                        const uint8_t *limits, int32_t *const *out, int64_t *count);

    // How many distances are not above the limit, in every step-th group.
    int64_t (*count)(const uint8_t *distances, int64_t groups, int64_t step, int limit);

    // Writes which of n distances are not above the limit, and returns how many. out has room for n + 2.
    int64_t (*within)(const uint8_t *distances, int64_t n, int limit, int32_t *out);

    // out[i] = dots[i] * (scales[i] * scale)
    void (*scale)(const int32_t *dots, const float *scales, float scale, int64_t n, float *out);

    // A random rotation of a code: random flips of sign, then a Hadamard transform; rounds with other flips until there
    // are `bits` numbers. out has room for `bits` numbers and for width rounded up to a power of 2.
    void (*rotate)(const int8_t *code, int64_t width, int64_t bits, int32_t *out);

    // sum += weight * code
    void (*add)(int32_t *sum, const int8_t *code, int32_t weight, int64_t width);

    // What a code leaves, in 256ths: x * factor, rounded, less 256 * code, clamped to [-127, 127].
    void (*residual)(const float *x, int64_t n, const int8_t *code, float factor, int8_t *out);

    // The largest absolute value.
    int32_t (*farthest)(const int32_t *along, int64_t n);

    // Absolute values as distances: out[i] = 255 - |along[i]| * factor, where that product is never above 255.
    void (*farness)(const int32_t *along, int64_t n, float factor, uint8_t *out);
};

// The table in use: the best that this CPU can run, unless `use` was called.
extern Table table;

inline constexpr const auto &scan = table.scan;
inline constexpr const auto &dot = table.dot;
inline constexpr const auto &dots = table.dots;
inline constexpr const auto &whole_dots = table.whole_dots;
inline constexpr const auto &distances = table.distances;
inline constexpr const auto &near_groups = table.near_groups;
inline constexpr const auto &count = table.count;
inline constexpr const auto &within = table.within;
inline constexpr const auto &scale = table.scale;
inline constexpr const auto &rotate = table.rotate;
inline constexpr const auto &add = table.add;
inline constexpr const auto &residual = table.residual;
inline constexpr const auto &farthest = table.farthest;
inline constexpr const auto &farness = table.farness;

// The names of the variants that this CPU can run, the best one last.
std::vector<const char *> variants();

// Makes a variant the one in use; false where there is none of this name. For tests: nothing else may run meanwhile.
bool use(const char *name);

}  // namespace kernels
