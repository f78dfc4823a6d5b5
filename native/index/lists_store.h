// Keys in inverted lists, their codes and the lists' centroids: what is derived from the keys, and how it is kept
// consistent.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "../memory/slots.h"
#include "lists_chains.h"
#include "lists_codes.h"
#include "lists_regions.h"

// Keys. A shorter list is dissolved; no list but the only one stays shorter, so there are at most capacity / SHORTEST +
// 2. Low enough that a list does not split and dissolve in turns.
constexpr int32_t SHORTEST = 12;

// How close the keys of a list are to its centroid: their mean cosine with it, and the sine of that angle.
struct Spread {
    float cosine, sine;
};

// All sums are of integers: the same centroids follow from the same keys and lists, whatever the order of events and the CPU.
class ListStore {
  public:
    // many: keys, from which on lists are short and probed by regions.
    ListStore(int64_t key_size, int64_t capacity, int64_t many);

    const CodeSize size;
    const int64_t width, max_lists, many;
    Chains keys;            // chain: list; member: slot
    Codes at;               // of each place: the codes of its key
    Array<int32_t> sums;    // (lists, width): of the codes of a list
    Codes centroids;        // of each list: its mean key, scaled to length 1
    Array<Spread> spreads;  // (lists,)
    std::optional<Regions> regions;
    int32_t n_lists = 0, n_keys = 0;

    bool are_many() const { return n_keys >= many; }
    void prefetch_place(int64_t place) const;
    std::vector<int32_t> slots_of(int32_t list) const;  // ascending

    // Takes up all keys: each in its list of `list_of` (-1, or past its end: in none).
    void rebuild(const Slots &, const std::vector<int32_t> &list_of, int threads);

    // Each of these leaves the centroid of the list as it was, for `refresh`.
    void add(int32_t list, int32_t slot, const int16_t *code);
    void remove(int32_t slot);
    void move(int32_t slot, int32_t list);

    int32_t new_list();
    void remove_empty_list(int32_t list);  // the last list takes its number

    // Makes the centroids of these lists (ascending, distinct) from their sums.
    void refresh(const std::vector<int32_t> &lists, int threads);

    static int64_t most_lists(int64_t capacity) { return capacity / SHORTEST + 2; }

  private:
    void count(int32_t list, const int16_t *code, int32_t times);
    void give_up(int32_t place);
    void make_centroid(int32_t list);
};
