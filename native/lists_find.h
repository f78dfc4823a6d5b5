// Reading lists: a Finder looks for one query, a thread has TILE of them.
#pragma once

#include <cstdint>
#include <vector>

#include "lists.h"
#include "lists_kernels.h"

using kernels::TILE;

inline void prefetch(const void *start, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const char *>(start) + i);
}

// Codes of the vector x of n numbers: x = code * scale, all of them in [-127, 127]; up to width filled with 0.
float quantise(const float *x, int64_t n, int64_t width, int8_t *code);

// What the codes leave: x = (code + rest / 256) * scale.
void quantise_rest(const float *x, int64_t n, int64_t width, const int8_t *code, float scale, int8_t *rest);

// What a query pays for each nibble of a sign code: the numbers of its rotated code at the signs that differ.
struct Costs {
    std::vector<int32_t> rotated;
    alignas(64) uint8_t costs[64 * 16];  // (bits / 4, 16)

    void set(const Lists &, const int8_t *code);
};

struct Near {
    float similarity;
    int32_t id;
    bool operator<(const Near &other) const {  // the nearest first; of equal ones, the lowest
        return similarity != other.similarity ? similarity > other.similarity : id < other.id;
    }
};

// Changes nothing; its room is used again from query to query, in cache lines of its own.
class alignas(128) Finder {
public:
    std::vector<Near> order;  // the nearest lists, in order

    // What is looked for from now on: a vector, or a code.
    void ask(const Lists &, const float *vector, int64_t excluded);
    void ask(const int8_t *of, float its_scale);

    // Compares n queries, at most TILE, with centres, by sign codes: so far as is needed to find the `count` nearest, in as
    // many regions as a search looks into that looks for `probes` lists. To be called first after asking: codes that are read
    // once for several queries cost half. The centres that are to be scored are on their way then.
    static void meet_centres(const Lists &, Finder *, int n, int64_t count, int64_t probes);

    // As many as centres were met for, next before.
    void nearest_lists(const Lists &, int64_t count);

    // The nearest of these lists; centres need not have been met.
    int32_t nearest_of(const Lists &, const std::vector<int32_t> &some);

    // How many lists `find` looks for at first.
    static int64_t lists_for(const Lists &, int k, int64_t probes);

    // Finds what to read: of a search that looks for `probes` lists the nearest ones, and more of them until they hold enough
    // keys to choose k of them. It is on its way then.
    void find(const Lists &, int k, int64_t probes);

    // The k best of what was found.
    Ranking &read(const Lists &, int k);

    // How many lists have to be read to find the nearest key; 0 where there is none. Meets the centres by itself.
    int rank(const Lists &);

    Costs costs;

private:
    struct Piece {
        int32_t block, rows;  // the first rows of a block
    };

    int64_t exclude = -1;
    const int8_t *code = nullptr;
    float scale = 0;
    std::vector<int8_t> own_code, own_rest;
    std::vector<int16_t> whole;  // 256 * code + rest
    std::vector<Piece> pieces;  // to be read
    int64_t held = 0;           // keys in them
    bool all_whole = false;     // whether all of these are to be scored by codes and rests
    int64_t wanted = 0;         // about how many of these are to be scored by their codes, where there are many
    std::vector<uint8_t> to_centres, to_keys;  // distances
    // What to_centres is of: all centres, or these blocks of them, or these blocks of regions.
    enum class Met { all, blocks, regions } what = Met::all;
    std::vector<int32_t> met;
    std::vector<int32_t> along;    // how far the query goes along each axis
    std::vector<uint8_t> to_axes;  // the same as distances
    std::vector<int32_t> bins, dots, room;
    // Centres or keys that are to be scored, and their similarities.
    std::vector<int32_t> places;
    std::vector<float> similarities;
    Ranking ranking;

    static void meet(const Lists &, Finder *, int n, int64_t count, int64_t probes);
    static int64_t lists_read(const Lists &, int64_t probes);
    static int64_t probes_for(const Lists &, int64_t read);
    static void meet_all(const Lists &, Finder *, int n);
    static void meet_near_blocks(const Lists &, Finder *, int n, int64_t wanted);
    void meet_regions(const Lists &, int64_t wanted);
    int near_axes(const Lists &, int64_t wanted);
    // Where in all blocks a place of those that were met is.
    int32_t met_place(int32_t place) const { return met[place / BLOCK] * BLOCK + place % BLOCK; }
    void pick_centres(const Lists &, int64_t count);
    void collect(const Lists &, int64_t ranks);
    void meet_pieces(const Lists &, const uint8_t *signs, std::vector<uint8_t> &distances);
    void take_all();
    bool are_few() const { return held <= 2 * wanted; }
    void score_keys(const Lists &);
    void score_all(const Lists &);
    void prefetch_places(const Lists &, const Codes &) const;
    void score_places(const Lists &, const Codes &);
    void nearest_codes(const uint8_t *distance, int64_t blocks, int64_t wanted, int64_t sample);
    void drop_excluded(const Lists &);
    void choose(int64_t count);
    void rank_pieces(const Lists &);
    float whole_dots(const Lists &);
};

// TILE for each of the threads that this one starts, and for itself. They are this thread's own, so that theirs need not
// ask for memory each time.
std::vector<Finder> &finders(int threads);
