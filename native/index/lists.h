// Approximate search on keys that never stop changing: an inverted file that is never trained and never rebuilt.
//
// Inverted lists (IVF; Sivic and Zisserman, "Video Google", ICCV 2003; Jégou, Douze and Schmid, "Product Quantization
// for Nearest Neighbor Search", PAMI 2011): similar keys stand in a list, block after block, and a query reads the
// lists of the nearest centroids. It compares itself with centroids by sign codes, and with the best of them by 16-bit
// codes; with the keys of lists likewise, which gives similarities to about 1e-5. From the slots themselves only values,
// sources and times are read, and the keys of those that are too close to the best to tell: each would be a cache miss
// or more.
//
// Lists follow the keys as in SPFresh (Xu et al., "SPFresh: Incremental In-Place Update for Billion-Scale Vector
// Search", SOSP 2023): a list that grows long is split in two, the keys of one that grows short join others, and keys
// whose nearest centroid has changed are reassigned. Ours differs: all is in memory and done within the update that
// causes it; centroids are the exact means of their keys at all times; and keys to reassign are picked list after
// list, those that are farthest from their centroid, instead of those around a split.
//
// From `many` keys on, centroids are what costs most. Lists are shorter there, so that the keys of one are of one kind,
// and a query scans the centroids of the nearest regions alone (lists_regions.h): one list in 32. Where that is not
// enough, more lists are read, and more regions scanned for them, up to all centroids.
#pragma once

#include <cstdint>
#include <vector>

#include "../memory/neighbours.h"
#include "../memory/slots.h"
#include "index.h"
#include "lists_store.h"

// All that does not follow from the keys: for files and copies. At first, what it is of an index without keys.
struct ListsState {
    static constexpr int64_t BINS = 40;        // stand for 2, 3, 4, 6, 8, 12, ... lists
    static constexpr int64_t ALL = INT32_MAX;  // lists to read: reading all keys in order costs less

    std::vector<int32_t> list_of;        // of each slot, or -1; slots past its end are in no list
    int64_t reassigned = 0, due = 0;     // how far the search for keys to reassign has come; how many are due, in eighths
    std::vector<double> needed, recent;  // (BINS,): how often so many lists were needed, and by the last samples alone
    double share = 0;                    // of all lists, that a search reads
    int64_t lists_to_read = 16;          // by a search, in any case; or ALL
    int64_t asked = 0;                   // queries of all updates so far

    ListsState() : needed(BINS), recent(BINS) { needed[6] = 4; }  // as if so much had been needed four times

    // Calls visit(name, field) for each field: a vector of int32_t or double, an int64_t or a double.
    template <typename State, typename Visit>
    static void each_field(State &state, const Visit &visit) {
        visit("list_of", state.list_of);
        visit("reassigned", state.reassigned);
        visit("due", state.due);
        visit("needed", state.needed);
        visit("recent", state.recent);
        visit("share", state.share);
        visit("lists_to_read", state.lists_to_read);
        visit("asked", state.asked);
    }

    // Throws std::invalid_argument unless it fits together, and fits a memory of this capacity.
    void check(int64_t capacity) const;
};

// Threads: `find` may run beside `find`; all else runs alone.
class Lists {
  public:
    static constexpr int64_t HINTS = 2;      // what `find` leaves of each query: its two nearest lists
    static constexpr int64_t MOST_DUE = 64;  // eighths of a key to reassign: when that many are due it is done

    Lists(int64_t key_size, int64_t capacity, int64_t many) : store_(key_size, capacity, many) {}

    // As Index::find; there must be keys. hints: (n, HINTS), or null.
    void find(const Slots &, const Queries &, float inverse_temperature, int threads, int32_t *hints,
              const Neighbours &) const;

    // Searches some of the queries of an update again, in all keys, and sets how many lists are read so that a share of
    // target_recall of such queries finds the nearest key.
    void learn(const Slots &, const Asked &, double target_recall);

    // Takes up the keys of n slots (distinct) as they are now. Keys that the queries of `asked`, unless null, have written or
    // moved are compared with no lists but theirs and the key's own, which costs the same in a memory of any size.
    void change(const Slots &, const int64_t *slots, int64_t n, const Asked *, int threads);

    // Takes up all keys: those that are in a list of the state, which is valid, in that list; the others join one.
    void rebuild(const Slots &, ListsState, int threads);

    ListsState export_state() const;

    int64_t size() const { return store_.n_keys; }
    bool pays() const { return state_.lists_to_read != ListsState::ALL; }
    const ListStore &store() const { return store_; }

  private:
    class Changes;

    ListStore store_;
    ListsState state_;  // but for list_of
};
