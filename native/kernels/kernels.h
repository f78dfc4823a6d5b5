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

// ---- 16-bit codes and sign codes, for inverted lists ----
//
// 32 sign codes lie together (as in FAISS' FastScan): 16 bytes for each group of 4 bits (a nibble), codes 0 to 15 in the
// lower halves of the bytes, 16 to 31 in the upper.
constexpr int GROUP = 32;

// How many rows before its use a row is fetched: memory latency over the time of a row, by measurement.
constexpr int64_t ROWS_AHEAD = 16;

struct Table {
    const char *name;

    // For each panel and each query of the tile: the slots that could be good enough, as bits PANEL * query + slot of
    // masks[panel], where
    //     sum >= threshold * inverse_scale[slot] - reach * residual[slot]
    // and the products of the codes, sums[panel][query][slot], where the query has any such slot; elsewhere anything.
    void (*scan)(const Panels &, const Tile &, int32_t (*sums)[TILE][PANEL], uint64_t *masks);

    // The inner product of two vectors, always summed in the same order.
    float (*dot)(const float *a, const float *b, int size);

    // out[i]: the inner product of the query's code and row ids[i] of `codes`, rows of `width` numbers, a multiple of 32. It
    // must fit into 32 bits. out has room for 3 more.
    void (*dots)(const int16_t *query, const int16_t *codes, const int32_t *ids, int64_t n, int64_t width, int32_t *out);

    // Sums of table entries, for each of up to TILE queries: out[i] = sum over j of costs[16 * j + nibble j of sign code
    // i], at most 255. nibbles: a multiple of 4.
    void (*distances)(const uint8_t *const *costs, int queries, const uint8_t *signs, int64_t groups, int64_t nibbles,
                      uint8_t *const *out);

    // How many distances are not above the limit, in every step-th group.
    int64_t (*count)(const uint8_t *distances, int64_t groups, int64_t step, int limit);

    // Writes which of n distances are not above the limit, and returns how many. out has room for n + 2.
    int64_t (*within)(const uint8_t *distances, int64_t n, int limit, int32_t *out);

    // A random rotation of a code: random flips of sign, then a Hadamard transform; rounds with other flips until there
    // are `bits` numbers. out has room for `bits` numbers and twice width rounded up to a power of 2.
    void (*rotate)(const int16_t *code, int64_t width, int64_t bits, int32_t *out);
};

// The table in use: the best that this CPU can run, unless `use` was called.
extern Table table;

inline constexpr const auto &scan = table.scan;
inline constexpr const auto &dot = table.dot;
inline constexpr const auto &dots = table.dots;
inline constexpr const auto &distances = table.distances;
inline constexpr const auto &count = table.count;
inline constexpr const auto &within = table.within;
inline constexpr const auto &rotate = table.rotate;

// The names of the variants that this CPU can run, the best one last.
std::vector<const char *> variants();

// Makes a variant the one in use; false where there is none of this name. For tests: nothing else may run meanwhile.
bool use(const char *name);

}  // namespace kernels
