// Approximate search on keys that never stop changing: an inverted file that is never trained and never rebuilt.
//
// Inverted lists (IVF; Sivic and Zisserman, "Video Google", ICCV 2003; Jégou, Douze and Schmid, "Product Quantization
// for Nearest Neighbor Search", PAMI 2011): similar keys stand in a list, block after block, and a query reads the
// lists of the nearest centroids. It compares itself with centroids by sign codes and then by the int8 codes of the
// best; with the keys of lists likewise; and with the k best by 8 more bits a number, which gives similarities to about
// 1e-5. From the slots themselves only values, sources and times are read, and the keys of those that are too close to
// the best to tell: each would be a cache miss or more.
//
// Lists follow the keys as in SPFresh (Xu et al., "SPFresh: Incremental In-Place Update for Billion-Scale Vector
// Search", SOSP 2023): a list that grows long is split in two, the keys of one that grows short join others, and keys
// whose nearest centroid has changed are reassigned. Ours differs: all is in memory and done within the update that
// causes it; centroids are the exact means of their keys at all times; and keys to reassign are picked block after
// block, those that are farthest from their centroid, instead of those around a split.
//
// From `many` keys on, centroids are what costs most. Lists are shorter there, so that the keys of one are of one kind,
// and a query scans the centroids of the nearest regions alone (lists_regions.h): one list in 32. Longer lists, which
// mix several kinds, needed half of them. Where keys are not like that, more regions are scanned, up to all centroids:
// how many is learned.
#pragma once

#include <cstdint>
#include <vector>

#include "../memory/neighbours.h"
#include "../memory/slots.h"
#include "lists_probe.h"
#include "lists_store.h"

// What samples of the queries have shown, see Lists::learn; older samples count for less.
struct Learned {
    // How often a rank and a required cosine were needed, (RANK_BINS, REACH_BINS), and of the last few samples alone.
    std::vector<double> needed = first_needed(), recent = std::vector<double>(RANK_BINS * REACH_BINS);
    std::vector<double> levels = std::vector<double>(LEVELS);  // how often each level was needed
    double share = 0;                                          // of all lists, that a search reads
    Extent extent{0, 2, FIRST_REACH};                          // how searches are done
    int64_t asked = 0;                                         // queries of all updates so far

  private:
    static constexpr int64_t FIRST_REACH = 46;
    static std::vector<double> first_needed() {
        std::vector<double> needed(RANK_BINS * REACH_BINS);
        needed[(RANK_BINS - 1) * REACH_BINS + FIRST_REACH - 1] = 4;  // as if so much had been needed four times
        return needed;
    }
};

// All that does not follow from the keys: for files and copies. At first, what it is of an index without keys.
struct ListsState {
    enum Count { FREE_BLOCK, BLOCKS, LISTS, KEYS, REASSIGNED, DUE, COUNTS };

    std::vector<int32_t> places;        // of each slot: block * BLOCK + row, or -1; slots past its end are in no list
    std::vector<int32_t> next, owner;   // of each block: see Chains
    std::vector<int32_t> head, length;  // of each list
    std::vector<int32_t> counts = {-1, 0, 0, 0, 0, 0};
    Learned learned;

    // Calls visit(name, field) for each field: a vector of int32_t or double, an int64_t or a double.
    template <typename State, typename Visit>
    static void each_field(State &state, const Visit &visit) {
        visit("places", state.places);
        visit("next", state.next);
        visit("owner", state.owner);
        visit("head", state.head);
        visit("length", state.length);
        visit("counts", state.counts);
        visit("needed", state.learned.needed);
        visit("recent", state.learned.recent);
        visit("levels", state.learned.levels);
        visit("share", state.learned.share);
        visit("level", state.learned.extent.level);
        visit("first", state.learned.extent.first);
        visit("reach", state.learned.extent.reach);
        visit("asked", state.learned.asked);
    }
};

// Threads: `find` may run beside `find`; all else runs alone.
class Lists {
  public:
    static constexpr int64_t HINTS = 3;      // what `find` leaves of each query: its two nearest lists, and k
    static constexpr int32_t MOST_DUE = 64;  // eighths of a key to reassign: when that many are due it is done

    Lists(int64_t key_size, int64_t capacity, int64_t many);

    // As Index::find; there must be keys. hints: (n, HINTS), or null.
    void find(const Slots &, const Queries &, float inverse_temperature, int threads, int32_t *hints,
              const Neighbours &) const;

    // Searches some of the queries of an update again, in all keys, and sets the extent of searches so that a share of
    // target_recall of such queries finds the nearest key. hints: as `find` left them, or null.
    void learn(const Slots &, const Queries &, const int32_t *hints, double target_recall);

    // Takes up the keys of n slots (distinct) as they are now. hints: of the n_hints queries that were written there or
    // moved keys, or null. No lists are compared but theirs and the key's own, which costs the same in a memory of any
    // size.
    void change(const Slots &, const int64_t *slots, int64_t n, const int32_t *hints, int64_t n_hints, int threads);

    // Makes all codes and centroids. Keys stay in the lists that they are in, if keep_places, and the others join one.
    void rebuild(const Slots &, bool keep_places, int threads);

    ListsState export_state() const;

    // Takes over a valid state (check_state); `rebuild` must follow.
    void restore(const ListsState &);

    // Throws std::invalid_argument unless the state fits together, and fits a memory of this capacity.
    static void check_state(const ListsState &, int64_t capacity);

    int64_t size() const { return store_.n_keys; }
    const Learned &learned() const { return learned_; }
    const ListStore &store() const { return store_; }

  private:
    class Changes;

    ListStore store_;
    // How far the search for keys to reassign has come; how many keys are due, in eighths.
    int32_t reassigned = 0, due = 0;
    Learned learned_;
};
