#include "lists_store.h"

#include <algorithm>
#include <cmath>

#include "../memory/parallel.h"

namespace {

constexpr int64_t REFRESHES_AT_ONCE = 16;  // centroids, from which on a second thread pays

}  // namespace

ListStore::ListStore(int64_t key_size, int64_t capacity, int64_t many_keys)
    : size{key_size}, width(size.width), max_lists(most_lists(capacity)), many(many_keys),
      keys(max_lists, capacity / BLOCK + max_lists, capacity), at(keys.members.size(), size), sums(max_lists * width),
      centroids(max_lists, size), spreads(max_lists) {
    if (capacity >= many) regions.emplace(max_lists, size);
}

void ListStore::prefetch_place(int64_t place) const {
    prefetch(at.code(place), width * sizeof(int16_t));
    prefetch(at.signs.group(place / BLOCK), size.group_bytes());
}

std::vector<int32_t> ListStore::slots_of(int32_t list) const {
    std::vector<int32_t> slots;
    keys.for_each_place(list, [&](int32_t place) { slots.push_back(keys.members[place]); });
    std::sort(slots.begin(), slots.end());
    return slots;
}

void ListStore::rebuild(const Slots &memory, const std::vector<int32_t> &list_of, int threads) {
    for (int32_t list = 0; list < n_lists && regions; list++) regions->leave(list);
    keys.clear();
    n_lists = n_keys = 0;
    for (int32_t slot = 0; slot < static_cast<int32_t>(list_of.size()); slot++) {
        while (n_lists <= list_of[slot]) new_list();
        if (list_of[slot] < 0 || memory.values[slot] < 0) continue;
        keys.add(slot, list_of[slot]);
        n_keys++;
    }
    parallel(n_lists, threads, [&](int64_t list, int) {
        keys.for_each_place(static_cast<int32_t>(list), [&](int32_t place) {
            quantise(memory.key(keys.members[place]), size, at.code(place));
            at.signs.set(place, at.code(place));
            count(static_cast<int32_t>(list), at.code(place), 1);
        });
    });
    std::vector<int32_t> all;
    for (int32_t list = 0; list < n_lists; list++) all.push_back(list);
    refresh(all, threads);
}

void ListStore::count(int32_t list, const int16_t *code, int32_t times) {
    int32_t *const sum = sums.data() + list * width;
    for (int64_t i = 0; i < width; i++) sum[i] += times * code[i];
}

void ListStore::give_up(int32_t place) {
    const int32_t last = keys.give_up(place);
    if (place != last) at.copy(last, place);
}

void ListStore::add(int32_t list, int32_t slot, const int16_t *code) {
    const int32_t place = keys.add(slot, list);
    std::copy_n(code, width, at.code(place));
    at.signs.set(place, code);
    count(list, code, 1);
    n_keys++;
}

void ListStore::remove(int32_t slot) {
    const int32_t place = keys.places[slot];
    count(keys.chain_of(slot), at.code(place), -1);
    keys.places[slot] = -1;
    give_up(place);
    n_keys--;
}

void ListStore::move(int32_t slot, int32_t list) {
    const int32_t from = keys.places[slot];
    count(keys.chain_of(slot), at.code(from), -1);
    const int32_t to = keys.add(slot, list);
    at.copy(from, to);
    count(list, at.code(to), 1);
    give_up(from);
}

int32_t ListStore::new_list() {
    keys.start(n_lists);
    std::fill_n(sums.data() + n_lists * width, width, 0);
    return n_lists++;
}

void ListStore::remove_empty_list(int32_t list) {
    const int32_t last = --n_lists;
    if (regions) {
        regions->leave(list);
        regions->leave(last);
    }
    if (list == last) return;
    keys.head[list] = keys.head[last];
    keys.length[list] = keys.length[last];
    keys.for_each_block(list, [&](Block block) { keys.owner[block.block] = list; });
    std::copy_n(sums.data() + last * width, width, sums.data() + list * width);
    refresh({list}, 1);
}

void ListStore::make_centroid(int32_t list) {
    int16_t *const code = centroids.code(list);
    const double length = quantise_sum(sums.data() + list * width, width, code);
    const double cosine = std::min(length / (static_cast<double>(UNIT) * std::max(keys.length[list], 1)), 1.0);
    spreads[list] = {static_cast<float>(cosine), static_cast<float>(std::sqrt(1 - cosine * cosine))};
    centroids.signs.set(list, code);
    if (regions) regions->nearest[list] = Regions::of(code, width);
}

void ListStore::refresh(const std::vector<int32_t> &lists, int threads) {
    const auto n = static_cast<int64_t>(lists.size());
    auto group = [&](int64_t i) { return lists[i] / kernels::GROUP; };
    // Lists whose sign codes stand together share bytes, and so a thread.
    parallel(n, n >= REFRESHES_AT_ONCE ? threads : 1, [&](int64_t first, int) {
        if (first > 0 && group(first - 1) == group(first)) return;
        for (int64_t i = first; i < n && group(i) == group(first); i++) make_centroid(lists[i]);
    });
    for (int64_t i = 0; i < n && regions; i++) regions->follow(lists[i], centroids.signs);
}
