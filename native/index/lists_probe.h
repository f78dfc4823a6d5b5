// The search of one query in the lists: from the nearest centroids to the best keys.
//
// The nearest lists are read first. A list that was not read may still hold a key nearer than the best so far: a key of the
// list is its centroid times a cosine (the list's spread), plus the rest in some direction perpendicular to the centroid,
// and so is the query. How similar the two are depends on the cosine between these two directions. What it would have to be
// to beat the best so far is the list's required cosine. If keys spread alike in all dimensions, this cosine has a standard
// deviation of 1 / sqrt(key_size); where they spread more in some, as they do, it is larger, but about the same for all
// queries. So up to which required cosine lists are read (the reach) is learned (lists_learn.cpp): a query among
// near-duplicates reads as many lists as it needs, and an easy one few. Keys that differ from all others of their list are
// found by how near its centroid is: how many of the nearest lists are read in any case is learned with the reach.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "../memory/neighbours.h"
#include "../memory/slots.h"
#include "lists_store.h"

constexpr int LEVELS = 8;       // that are told apart, see Probe::scan_centroids
constexpr int RANK_BINS = 7;    // of ranks among the nearest lists: up to 2, 4, ..., 64, and more
constexpr int REACH_BINS = 64;  // of required cosines: the last one holds all that are larger
constexpr float BIN_WIDTH = 0.02f;
constexpr int64_t ALL = INT32_MAX;  // as reach: reading all keys in order costs less than the lists within reach

// How far a search goes.
struct Extent {
    int64_t level = 0;  // how many centroids are compared by int8 codes, see Probe::scan_centroids
    int64_t first = 2;  // nearest lists that are read in any case
    int64_t reach = 0;  // required cosine up to which others are read, in bins; or ALL
};

struct Near {
    float similarity;
    int32_t id;
    bool operator<(const Near &other) const {  // the nearest first; of equals, the lowest
        return similarity != other.similarity ? similarity > other.similarity : id < other.id;
    }
};

// Changes nothing but itself: room that is used again from query to query, in cache lines of its own.
class alignas(128) Probe {
  public:
    std::vector<Near> nearest;  // lists, the nearest first

    // TILE probes for each of so many threads: the calling thread's own, so that small calls allocate nothing.
    static std::vector<Probe> &pool(int threads);

    // What is searched for from now on: a query, or the code of a key.
    void set_query(const ListStore &, const float *query, int64_t excluded);
    void set_query(const int8_t *its_code, float its_scale) {
        code = its_code;
        scale = its_scale;
    }

    // Compares the sign codes of centroids with those of n queries, at most TILE (codes that are read once for several
    // queries cost half), and picks the best: four times as many at each level, in as many regions.
    static void scan_centroids(const ListStore &, Probe *, int n, int level);

    // Puts the `count` nearest of the lists that were picked into `nearest`.
    void rank_lists(const ListStore &, int64_t count);

    // The nearest of some lists; needs no scan_centroids.
    int32_t nearest_of(const ListStore &, const std::vector<int32_t> &lists);

    // Chooses what to read first: the nearest lists, until they hold enough keys for k neighbours. Prefetches it.
    void choose_first(const ListStore &, int64_t k, const Extent &);

    // The k best keys, and some more: of what was chosen, and of other lists.
    Ranking &read(const ListStore &, const Slots &, int64_t k, const Extent &);

    // What a query tells about how to search for its k nearest keys, by comparing it with all keys.
    struct Sample {
        bool exists;   // whether there is any key
        float share;   // of all lists, that a search of this extent reads
        int64_t rank;  // of the list of the nearest key among the nearest lists; 1: a search comes to it by itself
        float cosine;  // its required cosine, with what was found without it; 0: as above
        int level;     // the level at which it is picked; 0: as above
    };
    Sample sample(const ListStore &, const Slots &, int64_t k, Extent);

    static int bin_of(float cosine) { return static_cast<int>(std::min(cosine / BIN_WIDTH, REACH_BINS - 1.0f)); }

  private:
    int64_t exclude = -1;
    const float *query = nullptr;
    const int8_t *code = nullptr;
    float scale = 0;
    std::vector<int8_t> own_code, own_residual;
    std::vector<int16_t> whole;  // 256 * code + residual
    signs::Table table;

    std::vector<uint8_t> centroid_distances, key_distances;
    // What centroid_distances are of: all centroids, or `scanned` blocks of them, or `scanned` blocks of regions.
    enum class Scanned { all, blocks, regions } what = Scanned::all;
    std::vector<int32_t> scanned;
    std::vector<int32_t> coordinates;     // along the axes of regions
    std::vector<uint8_t> axis_distances;  // 255 less the share of the largest
    std::vector<int32_t> bins, dots, room;
    int level = 0;
    std::vector<Near> picked;  // lists whose centroids were compared by int8 codes

    std::vector<Near> to_read;          // lists
    std::vector<int32_t> already_read;  // lists, ascending
    int32_t hidden = -1;                // a list that is not read, see `sample`
    std::vector<Block> blocks;          // of the lists that are read now
    int64_t held = 0;                   // keys in them

    // Places of centroids or keys that are compared by codes, and their similarities.
    std::vector<int32_t> places;
    std::vector<float> similarities, sorted;
    Ranking ranking;

    static int64_t shortlist(const ListStore &, int level);
    static void scan(const ListStore &, Probe *, int n, int level);
    static void scan_all(const ListStore &, Probe *, int n);
    static void scan_near_blocks(const ListStore &, Probe *, int n, int64_t count);
    void scan_regions(const ListStore &, int64_t count);
    int near_axes(const ListStore &, int64_t count);
    void pick_centroids(const ListStore &, int64_t count);
    void score_picked(const ListStore &);
    // The place of row `i` of what was scanned.
    int32_t scanned_place(int32_t i) const { return scanned[i / BLOCK] * BLOCK + i % BLOCK; }

    float required_cosine(const ListStore &, const Near &list, float similarity) const;
    int64_t choose_next(const ListStore &, int64_t reach);
    void collect(const ListStore &);
    void read_whole(const ListStore &, const Slots &);
    void read_near_keys(const ListStore &, const Slots &, int64_t k);
    void settle_best(const Slots &);
    void drop_excluded(const Slots &, size_t from);
    float best() const;
    float kth_best(int64_t k);

    void scan_blocks(const CodeSize &, const Array<uint8_t> &signs, std::vector<uint8_t> &distances);
    void pick_nearest(const std::vector<uint8_t> &distances, int64_t groups, int64_t count, int64_t sample);
    void prefetch_places(const Codes &, int64_t width) const;
    void score_places(const Codes &, int64_t width);
    float whole_dots(const ListStore &);
    void keep_best(int64_t count);
};
