// Approximate search on keys that never stop changing: an inverted file that is never trained and never rebuilt.
//
// Inverted lists (IVF; Sivic and Zisserman, "Video Google", ICCV 2003; Jégou, Douze and Schmid, "Product Quantization for Nearest
// Neighbor Search", PAMI 2011): similar keys stand in a list, block after block, and a query reads the lists of the nearest
// centroids. It compares itself with centroids by sign codes and then by the int8 codes of the best; with the keys of lists
// likewise; and with the k best by 8 more bits a number, which gives similarities to about 1e-5. Nothing is read from the slots but
// values, sources and times, since each key would be a cache miss or more.
//
// Lists follow the keys as in SPFresh (Xu et al., "SPFresh: Incremental In-Place Update for Billion-Scale Vector Search", SOSP
// 2023): a list that grows long is split in two, the keys of one that grows short join others, and keys whose nearest centroid has
// changed are reassigned. Ours differs: all is in memory and done within the update that causes it; centroids are the exact means
// of their keys at all times; and keys to reassign are picked block after block, those that are farthest from their centroid,
// instead of those around a split.
//
// From `many` keys on, centroids are what costs most. Lists are shorter there, so that the keys of one are of one kind, and a query
// scans the centroids of the nearest regions alone (lists_regions.h): one list in 32. Longer lists, which mix several kinds, needed
// half of them. Where keys are not like that, more regions are scanned, up to all centroids, since nprobe is learned.
#pragma once

#include <cstdint>
#include <vector>

#include "../memory/neighbours.h"
#include "../memory/slots.h"
#include "lists_probe.h"
#include "lists_store.h"

// All that does not follow from the keys: for files and copies. At first, what it is of an index without keys.
struct ListsState {
    enum Count { FREE_BLOCK, BLOCKS, LISTS, KEYS, REASSIGNED, DUE, COUNTS };
    static constexpr int RANK_BINS = 80;  // of nprobe: four per doubling

    std::vector<int32_t> places;        // of each slot: block * BLOCK + row, or -1; slots past its end are in no list
    std::vector<int32_t> next, owner;   // of each block: see Chains
    std::vector<int32_t> head, length;  // of each list
    std::vector<int32_t> counts = {-1, 0, 0, 0, 0, 0};
    std::vector<double> ranks = first_ranks();  // how often of late each nprobe was needed
    int64_t lists_to_read = 16;                 // nprobe
    int64_t asked = 0;                          // queries of all updates so far

  private:
    static std::vector<double> first_ranks() {
        std::vector<double> ranks(RANK_BINS);
        ranks[16] = 4;  // as if 16 lists had been needed four times
        return ranks;
    }
};

// Threads: `find` may run beside `find`; all else runs alone.
class Lists {
  public:
    static constexpr int64_t HINTS = 2;        // lists that `find` leaves of each query
    static constexpr int64_t ALL = INT32_MAX;  // as lists_to_read: reading all keys in order costs less
    static constexpr int32_t MOST_DUE = 64;    // eighths of a key to reassign: when that many are due it is done

    Lists(int64_t key_size, int64_t capacity, int64_t many);

    // As Index::find; there must be keys. hints: the nearest lists of each query, (n, HINTS), or null.
    void find(const Slots &, const Queries &, float inverse_temperature, int threads, int32_t *hints, const Neighbours &) const;

    // Searches some of the queries of an update again, in all keys, and counts the nprobe that each would have needed to find the
    // nearest. Sets lists_to_read so that a share of target_recall finds it.
    void learn(const Slots &, const Queries &, double target_recall, int threads);

    // Takes up the keys of n slots (distinct) as they are now. hints: lists, one of which is the nearest of every such key, or its
    // own is: no others are compared, which costs the same in a memory of any size. n_hints = 0: compares all.
    void change(const Slots &, const int64_t *slots, int64_t n, const int32_t *hints, int64_t n_hints, int threads);

    // Makes all codes and centroids. Keys stay in the lists that they are in, if keep_places, and the others join one.
    void rebuild(const Slots &, bool keep_places, int threads);

    ListsState export_state() const;

    // Takes over a valid state (check_state); `rebuild` must follow.
    void restore(const ListsState &);

    // Throws std::invalid_argument unless the state fits together, and fits a memory of this capacity.
    static void check_state(const ListsState &, int64_t capacity);

    int64_t size() const { return store_.n_keys; }
    int64_t lists_to_read() const { return lists_to_read_; }
    const ListStore &store() const { return store_; }

  private:
    class Changes;

    ListStore store_;
    // How far the search for keys to reassign has come; how many keys are due, in eighths.
    int32_t reassigned = 0, due = 0;
    std::vector<double> ranks;
    int64_t lists_to_read_, asked;
};
