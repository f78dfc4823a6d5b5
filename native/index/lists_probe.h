// The search of one query in the lists: from the nearest centroids to the best keys.
#pragma once

#include <cstdint>
#include <vector>

#include "../memory/neighbours.h"
#include "../memory/slots.h"
#include "lists_store.h"

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

    // Compares the sign codes of centroids with those of n queries, at most TILE: codes that are read once for several queries
    // cost half. `count`: of how many lists `rank_lists` will be asked; nprobe decides how many regions are scanned.
    static void scan_centroids(const ListStore &, Probe *, int n, int64_t count, int64_t nprobe);

    // Puts the `count` nearest lists into `nearest`. After scan_centroids.
    void rank_lists(const ListStore &, int64_t count);

    // The nearest of some lists; needs no scan_centroids.
    int32_t nearest_of(const ListStore &, const std::vector<int32_t> &lists);

    // How many lists choose_blocks ranks first, and so what to scan centroids for.
    static int64_t lists_to_rank(const ListStore &, int64_t k, int64_t nprobe);

    // Chooses what to read: the nearest lists, more of them until they hold enough keys for k neighbours. Prefetches it.
    void choose_blocks(const ListStore &, int64_t k, int64_t nprobe);

    // Reads it: the k best keys, or some more.
    Ranking &read(const ListStore &, const Slots &, int64_t k);

    // The least nprobe that finds the nearest of all keys, 0 where there is none. Needs no scan_centroids.
    int64_t nprobe_needed(const ListStore &, const Slots &);

  private:
    int64_t exclude = -1;
    const int8_t *code = nullptr;
    float scale = 0;
    std::vector<int8_t> own_code, own_residual;
    std::vector<int16_t> whole;  // 256 * code + residual
    signs::Table table;

    std::vector<Block> blocks;    // to be read
    int64_t held = 0;             // keys in them
    int64_t wanted = 0;           // about how many of these are compared by int8 codes, where there are many
    bool rank_by_whole = false;   // whether all of them are compared by codes and residuals at once

    std::vector<uint8_t> centroid_distances, key_distances;
    // What centroid_distances are of: all centroids, or `scanned` blocks of them, or `scanned` blocks of regions.
    enum class Scanned { all, blocks, regions } what = Scanned::all;
    std::vector<int32_t> scanned;
    std::vector<int32_t> coordinates;     // along the axes of regions
    std::vector<uint8_t> axis_distances;  // 255 less the share of the largest
    std::vector<int32_t> bins, dots, room;

    // Places of centroids or keys that are to be compared by codes, and their similarities.
    std::vector<int32_t> places;
    std::vector<float> similarities;
    Ranking ranking;

    static void scan_all(const ListStore &, Probe *, int n);
    static void scan_near_blocks(const ListStore &, Probe *, int n, int64_t wanted);
    void scan_regions(const ListStore &, int64_t wanted);
    int near_axes(const ListStore &, int64_t wanted);
    void pick_centroids(const ListStore &, int64_t count);
    // The place of row `i` of what was scanned.
    int32_t scanned_place(int32_t i) const { return scanned[i / BLOCK] * BLOCK + i % BLOCK; }

    void scan_blocks(const CodeSize &, const Array<uint8_t> &signs, std::vector<uint8_t> &distances);
    void pick_nearest(const std::vector<uint8_t> &distances, int64_t groups, int64_t count, int64_t sample);
    void prefetch_places(const Codes &, int64_t width) const;
    void score_places(const Codes &, int64_t width);
    void keep_best(int64_t count);

    bool are_few() const { return held <= 2 * wanted; }
    void pick_all();
    void score_keys(const ListStore &);
    void drop_excluded(const ListStore &, const Slots &);
    float whole_dots(const ListStore &);
    void rank_blocks(const ListStore &, const Slots &);
};
