// Search that is exact where that costs no more, and reads inverted lists elsewhere.
#pragma once

#include <cstdint>
#include <optional>

#include "exact.h"
#include "index.h"
#include "lists.h"

// Exact up to `small` keys, and where more than half of the lists would have to be read to find the nearest key with a
// probability of target_recall; how many that is, is learned from the queries of updates. Which of the two a query uses
// changes in `change` and `rebuild` alone.
class AutoIndex : public Index {
  public:
    static constexpr int64_t SMALL = 8192;    // keys: up to so many, reading all of them is as fast
    static constexpr int64_t MANY = 1 << 20;  // keys, from which on lists are shorter and found by regions, see lists.h

    AutoIndex(int64_t key_size, int64_t capacity, double target_recall, int64_t small = SMALL, int64_t many = MANY);

    // The nearest lists of each query; where the search is exact, they are left as they are.
    int64_t hints() const override { return lists ? Lists::HINTS : 0; }

    void find(const Slots &, const Queries &, float inverse_temperature, int threads, int32_t *hints,
              const Neighbours &) const override;
    void change(const Slots &, const int64_t *slots, int64_t n, const Asked *, int threads) override;
    void rebuild(const Slots &, int threads) override;

    ListsState export_state() const { return lists ? lists->export_state() : ListsState(); }

    // Has the next `rebuild` begin with a state: keys stay in the lists that they were in. Throws std::invalid_argument, and
    // changes nothing, where it cannot be right.
    void restore(ListsState);

    bool reads_lists() const { return reads; }
    const Lists *inspect_lists() const { return lists ? &*lists : nullptr; }  // for tests

  private:
    const int64_t capacity, small;
    const double target_recall;
    ExactIndex exact;  // its copy of the keys is given up while lists are read
    // Kept up to date also while they are not read; none where there is no room for more than `small` keys.
    std::optional<Lists> lists;
    ListsState restored;
    bool reads = false;

    bool should_read() const { return lists && lists->size() > small && lists->pays(); }
};
