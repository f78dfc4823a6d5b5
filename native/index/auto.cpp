#include "auto.h"

#include <stdexcept>
#include <utility>

namespace {

// So that places, of which there are less than 4 per slot, fit into 32 bits.
constexpr int64_t MOST_SLOTS = int64_t{1} << 29;

}  // namespace

AutoIndex::AutoIndex(int64_t key_size, int64_t of_capacity, double recall, int64_t small_keys, int64_t many)
    : capacity(of_capacity), small(small_keys), target_recall(recall), exact(key_size, of_capacity) {
    if (!(recall > 0 && recall < 1)) throw std::invalid_argument("target_recall must be more than 0 and less than 1.");
    if (capacity > MOST_SLOTS) throw std::invalid_argument("An approximate index has room for at most 2^29 slots.");
    if (capacity > small) lists.emplace(key_size, capacity, many);
}

void AutoIndex::find(const Slots &memory, const Queries &queries, float inverse_temperature, int threads, int32_t *hints,
                     const Neighbours &neighbours) const {
    if (reads) return lists->find(memory, queries, inverse_temperature, threads, hints, neighbours);
    exact.find(memory, queries, inverse_temperature, threads, nullptr, neighbours);
}

void AutoIndex::change(const Slots &memory, const int64_t *slots, int64_t n, const Asked *asked, int threads) {
    if (lists && asked && lists->size() > small) lists->learn(memory, *asked, target_recall);
    if (lists) lists->change(memory, slots, n, asked, threads);
    const bool will_read = should_read();
    if (will_read && !reads) exact.release();
    if (!will_read && reads) exact.rebuild(memory, threads);
    if (!will_read && !reads) exact.change(memory, slots, n, nullptr, threads);
    reads = will_read;
}

void AutoIndex::rebuild(const Slots &memory, int threads) {
    if (lists) lists->rebuild(memory, std::exchange(restored, ListsState()), threads);
    reads = should_read();
    if (reads)
        exact.release();
    else
        exact.rebuild(memory, threads);
}

void AutoIndex::restore(ListsState state) {
    state.check(capacity);
    restored = std::move(state);
}
