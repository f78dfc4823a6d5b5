#include "lists_store.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "../memory/parallel.h"

namespace {

constexpr int64_t SLOTS_AT_ONCE = 4096;    // encoded by a thread, which then takes the next
constexpr int64_t REFRESHES_AT_ONCE = 16;  // centroids, from which on a second thread pays

// The length of a key in the sum of its list. The largest number of a key is at most 1, its scale at most 1 / 127: so no
// weight is more than 255.
constexpr float WEIGHT = 127 * 255.0f;

}  // namespace

void Batch::encode(int64_t i, const float *key, const CodeSize &size) {
    scales[i] = quantise(key, size, &codes[i * width]);
    quantise_residual(key, size, &codes[i * width], scales[i], &residuals[i * width]);
}

void Batch::copy(int64_t i, const CodedKey &key) {
    std::memcpy(&codes[i * width], key.code, width);
    std::memcpy(&residuals[i * width], key.residual, width);
    scales[i] = key.scale;
    slots[i] = key.slot;
}

ListStore::ListStore(int64_t key_size, int64_t capacity, int64_t many_keys)
    : size{key_size}, width(size.width), max_lists(most_lists(capacity)), many(many_keys),
      keys(max_lists, most_blocks(capacity), capacity), at(keys.members.size(), size),
      residuals(keys.members.size() * width), sums(max_lists * width), centroids(max_lists, size), spreads(max_lists) {
    std::fill(centroids.signs.begin(), centroids.signs.end(), uint8_t{0});
    if (capacity >= many) regions.emplace(max_lists, size);
}

int32_t ListStore::weight(float scale) { return static_cast<int32_t>(std::min(scale * WEIGHT, 255.0f) + 0.5f); }

CodedKey ListStore::key_at(int64_t place) const {
    return {at.codes.data() + place * width, residuals.data() + place * width, at.scales[place], keys.members[place]};
}

void ListStore::prefetch_place(int64_t place) const {
    prefetch(at.codes.data() + place * width, width);
    prefetch(residuals.data() + place * width, width);
    prefetch(at.signs.data() + place / BLOCK * size.group_bytes(), size.group_bytes());
}

void ListStore::clear() {
    std::fill(keys.places.begin(), keys.places.end(), -1);
    keys.free_block = -1;
    keys.blocks = 0;
    for (int32_t list = 0; list < n_lists && regions; list++) regions->leave(list);
    n_lists = n_keys = 0;
}

void ListStore::write(int64_t place, const CodedKey &key) {
    std::memcpy(at.codes.data() + place * width, key.code, width);
    std::memcpy(residuals.data() + place * width, key.residual, width);
    at.scales[place] = key.scale;
}

void ListStore::add(int32_t list, const CodedKey &key, std::vector<int32_t> &scratch) {
    const int32_t blocks = keys.blocks;
    const int64_t place = keys.add(key.slot, list);
    if (keys.blocks > blocks) std::fill_n(at.signs.data() + blocks * size.group_bytes(), size.group_bytes(), uint8_t{0});
    write(place, key);
    signs::set(at.signs.data(), place, size, key.code, scratch);
    kernels::add(sum(list), key.code, weight(key.scale), width);
    n_keys++;
}

void ListStore::remove(int32_t slot) {
    const int64_t place = keys.places[slot];
    kernels::add(sum(keys.chain_of(slot)), at.codes.data() + place * width, -weight(at.scales[place]), width);
    const int64_t last = keys.remove(slot);
    n_keys--;
    if (place == last) return;
    write(place, key_at(last));
    signs::copy(at.signs.data(), last, at.signs.data(), place, size.bits);
}

void ListStore::replace(const CodedKey &key, std::vector<int32_t> &scratch) {
    const int64_t place = keys.places[key.slot];
    const int32_t list = keys.chain_of(key.slot);
    kernels::add(sum(list), at.codes.data() + place * width, -weight(at.scales[place]), width);
    kernels::add(sum(list), key.code, weight(key.scale), width);
    write(place, key);
    signs::set(at.signs.data(), place, size, key.code, scratch);
}

void ListStore::empty(int32_t list) {
    n_keys -= keys.length[list];
    while (keys.length[list] > 0) keys.remove(keys.members[keys.last_place(list)]);
    std::fill_n(sum(list), width, 0);
}

void ListStore::copy_keys(int32_t list, Batch &out) const {
    out.resize(keys.length[list], width);
    int64_t n = 0;
    keys.for_each_block(list, [&](Block block) {
        for (int32_t row = 0; row < block.rows; row++) out.copy(n++, key_at(int64_t{BLOCK} * block.block + row));
    });
}

int32_t ListStore::new_list() {
    keys.start(n_lists);
    std::fill_n(sum(n_lists), width, 0);
    return n_lists++;
}

void ListStore::remove_empty_list(int32_t list, std::vector<int32_t> &scratch) {
    const int32_t last = --n_lists;
    if (regions) {
        regions->leave(list);
        regions->leave(last);
    }
    if (list == last) return;
    keys.head[list] = keys.head[last];
    keys.length[list] = keys.length[last];
    keys.for_each_block(list, [&](Block block) { keys.owner[block.block] = list; });
    std::copy_n(sum(last), width, sum(list));
    refresh(&list, 1, &scratch, 1);
}

void ListStore::make_centroid(int32_t list, std::vector<int32_t> &scratch) {
    int8_t *const code = centroids.codes.data() + list * width;
    double length;
    centroids.scales[list] = quantise_normalised(sum(list), width, code, &length);
    const double cosine = std::min(length / (static_cast<double>(WEIGHT) * std::max(keys.length[list], 1)), 1.0);
    spreads[list] = {static_cast<float>(cosine), static_cast<float>(std::sqrt(1 - cosine * cosine))};
    signs::set(centroids.signs.data(), list, size, code, scratch);
    if (regions) regions->nearest[list] = Regions::of(code, width, scratch);
}

void ListStore::refresh(const int32_t *lists, int64_t n, std::vector<int32_t> *scratch, int threads) {
    auto group = [&](int64_t i) { return lists[i] / kernels::GROUP; };
    // Lists whose sign codes stand together share bytes, and so a thread.
    parallel(n, n >= REFRESHES_AT_ONCE ? threads : 1, [&](int64_t first, int thread) {
        if (first > 0 && group(first - 1) == group(first)) return;
        for (int64_t i = first; i < n && group(i) == group(first); i++) make_centroid(lists[i], scratch[thread]);
    });
    for (int64_t i = 0; i < n && regions; i++) regions->follow(lists[i], centroids.signs.data());
}

void ListStore::encode_all(const Slots &memory, std::vector<int32_t> *scratch, int threads) {
    std::fill_n(at.signs.data(), keys.blocks * size.group_bytes(), uint8_t{0});
    parallel((memory.capacity + SLOTS_AT_ONCE - 1) / SLOTS_AT_ONCE, threads, [&](int64_t part, int) {
        for (int64_t slot = part * SLOTS_AT_ONCE; slot < std::min((part + 1) * SLOTS_AT_ONCE, memory.capacity); slot++) {
            const int64_t place = keys.places[slot];
            if (place < 0) continue;
            int8_t *const code = at.codes.data() + place * width;
            at.scales[place] = quantise(memory.key(slot), size, code);
            quantise_residual(memory.key(slot), size, code, at.scales[place], residuals.data() + place * width);
        }
    });
    parallel(n_lists, threads, [&](int64_t list, int thread) {
        std::fill_n(sum(list), width, 0);
        keys.for_each_block(static_cast<int32_t>(list), [&](Block block) {
            for (int64_t place = int64_t{BLOCK} * block.block; place < int64_t{BLOCK} * block.block + block.rows; place++) {
                const int8_t *const code = at.codes.data() + place * width;
                kernels::add(sum(list), code, weight(at.scales[place]), width);
                signs::set(at.signs.data(), place, size, code, scratch[thread]);
            }
        });
    });
    std::vector<int32_t> all(n_lists);
    for (int32_t list = 0; list < n_lists; list++) all[list] = list;
    refresh(all.data(), n_lists, scratch, threads);
}
