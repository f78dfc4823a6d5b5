// The search of one query in the lists: from the nearest centroids to the best keys.
//
// The nearest lists are read first: as many as were learned to be enough (auto.cpp), and as hold enough keys. A list that
// was not read may still hold a key nearer than the best so far: a key of the list is its centroid times a cosine (the
// list's spread), plus the rest in some direction perpendicular to the centroid, and so is the query. How similar the two
// are depends on the cosine between these two directions. What it would have to be to beat the best so far is the list's
// required cosine. If keys spread alike in all dimensions, this cosine has a standard deviation of 1 / sqrt(key_size): lists
// within some of these deviations are read too, those that need the least first, until none is left. So a query among
// near-duplicates, which centroids cannot tell apart, reads as many lists as it needs, and an easy one none.
#pragma once

#include <cstdint>
#include <vector>

#include "../memory/recall.h"
#include "../memory/slots.h"
#include "lists_store.h"

// Changes nothing but itself: room that is used again from query to query, in cache lines of its own.
class alignas(128) Probe {
  public:
    // TILE probes for each of so many threads: the calling thread's own, so that small calls allocate nothing.
    static std::vector<Probe> &pool(int threads);

    // What is searched for from now on: a query, or the code of a key.
    void set_query(const ListStore &, const float *query, int64_t excluded);
    void set_query(const int16_t *its_code) { code = its_code; }

    // Compares the sign codes of centroids with those of n queries, at most TILE (codes that are read once for several
    // queries cost half), and picks the nearest, enough for so many lists to read.
    static void scan_centroids(const ListStore &, Probe *, int n, int64_t to_read);

    // The i-th nearest of the lists that were picked, of which the first `count` are sorted; the last if there are fewer.
    void rank_lists(const ListStore &, int64_t count);
    int32_t nearest(size_t i) const {
        return static_cast<int32_t>(lists.slots[Ranking::row(lists.order[std::min(i, lists.order.size() - 1)])]);
    }

    // The nearest of some lists; needs no scan_centroids.
    int32_t nearest_of(const ListStore &, const std::vector<int32_t> &of);

    // Chooses what to read first: the nearest lists, until they hold enough keys for k neighbours. Prefetches it.
    void choose_first(const ListStore &, int64_t k, int64_t to_read);

    // The k best keys, and some more: of what was chosen, and of other lists.
    Ranking &read(const ListStore &, const Slots &, int64_t k, int64_t to_read);

    // All of this at once, for one query.
    Ranking &search(const ListStore &, const Slots &, int64_t k, int64_t to_read);

    // After a search: the similarity of the nearest key of all, -2 where there is none.
    float nearest_of_all(const ListStore &, const Slots &);

    // The largest similarity so far; -2 where there is none.
    float best() const { return best_so_far; }
    int64_t lists_read() const { return n_read; }

  private:
    int64_t exclude = -1;
    const float *query = nullptr;
    const int16_t *code = nullptr;
    std::vector<int16_t> own_code;
    CostTable table;

    int64_t shortlist = 0;           // so many centroids are to be compared by 16-bit codes
    std::vector<uint8_t> distances;  // of centroids or keys, by sign codes
    std::vector<int32_t> room, dots;
    std::vector<int32_t> places;  // of centroids or keys that are compared by 16-bit codes
    Ranking lists;                // whose centroids were so
    std::vector<char> is_read;    // of each row of `lists`
    int64_t n_read = 0;           // lists
    std::vector<Block> blocks;    // of the lists that are read now
    std::vector<uint32_t> next;   // rows of `lists` to read next
    std::vector<float> sorted;
    Ranking ranking;  // keys
    float best_so_far = -2;

    void scan_regions(const ListStore &, int64_t count);
    void pick_centroids(const ListStore &, bool in_regions);
    void take(const ListStore &, uint32_t row);
    int64_t choose_next(const ListStore &, int64_t to_read);
    void read_whole(const ListStore &, const Slots &, float least);
    void read_near_keys(const ListStore &, const Slots &, int64_t k);
    void settle_best(const Slots &);
    void rank_places(const ListStore &, const Slots &, float least);
    float kth_best(int64_t k);

    void scan_blocks(const CodeSize &, const Signs &);
    void pick_nearest(int64_t groups, int64_t count, int64_t sample);
    void pick_within(int limit);
    void multiply(const Codes &);
};
