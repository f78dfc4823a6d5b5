// Search that is exact where that costs no more, and reads inverted lists elsewhere: an inverted file on keys that never stop
// changing, never trained and never rebuilt.
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
// and a query scans the centroids of the nearest regions alone (lists_store.h): one list in 32. Where that is not
// enough, more lists are read, and more regions scanned for them, up to all centroids.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "exact.h"
#include "index.h"
#include "lists_store.h"

// All that does not follow from the keys: for files and copies. At first, what it is of an index without keys.
struct ListsState {
    static constexpr int64_t BINS = 40;        // stand for 2, 3, 4, 6, 8, 12, ... lists
    static constexpr int64_t ALL = INT32_MAX;  // lists to read: reading all keys in order costs less
    static constexpr int64_t MOST_DUE = 64;    // eighths of a key to reassign: when that many are due it is done

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

// Exact up to `small` keys, and where more than half of the lists would have to be read to find the nearest key with a
// probability of target_recall; how many that is, is learned from the queries of updates. Which of the two a query uses
// changes in `change` and `rebuild` alone.
class AutoIndex final : public Index {
  public:
    static constexpr int64_t SMALL = 8192;    // keys: up to so many, reading all of them is as fast
    static constexpr int64_t MANY = 1 << 20;  // keys, from which on lists are shorter and found by regions
    static constexpr int64_t HINTS = 2;       // what `find` leaves of each query: its two nearest lists

    AutoIndex(int64_t key_size, int64_t capacity, double target_recall, int64_t small = SMALL, int64_t many = MANY);

    // Where the search is exact, hints are left as they are.
    int64_t hints() const override { return lists_ ? HINTS : 0; }

    void find(const Slots &, float inverse_temperature, int threads, Found &) const override;
    void change(const Slots &, const int64_t *slots, int64_t n, const Found *, int threads) override;
    void rebuild(const Slots &, int threads) override;

    ListsState export_state() const;

    // Has the next `rebuild` begin with a state: keys stay in the lists that they were in. Throws std::invalid_argument, and
    // changes nothing, where it cannot be right.
    void restore(ListsState);

    bool reads_lists() const { return reads_; }
    const ListStore *inspect_lists() const { return lists_ ? &*lists_ : nullptr; }  // for tests

  private:
    class Changes;

    const int64_t capacity_, small_;
    const double target_recall_;
    ExactIndex exact_;  // its copy of the keys is given up while lists are read
    // Kept up to date also while they are not read; none where there is no room for more than `small` keys.
    std::optional<ListStore> lists_;
    ListsState state_;     // of the lists, but for list_of
    ListsState restored_;  // what the next `rebuild` begins with
    bool reads_ = false;

    bool are_enough() const { return lists_ && lists_->n_keys > small_; }
    bool should_read() const { return are_enough() && state_.lists_to_read != ListsState::ALL; }

    // Searches some of the queries of an update again, in all keys, and sets how many lists are read so that a share of
    // target_recall of such queries finds the nearest key.
    void learn(const Slots &, const Found &asked);

    // Takes up keys as `change` does. Those that the queries of `asked` have written or moved are compared with no lists but
    // theirs and the key's own, which costs the same in a memory of any size.
    void change_lists(const Slots &, const int64_t *slots, int64_t n, const Found *asked, int threads);

    // Takes up all keys: those that are in a list of the state in that list; the others join one.
    void rebuild_lists(const Slots &, ListsState, int threads);
};
