// The part of a probe that reads the keys of lists; and steps that centroids and keys have in common.
#include "lists_probe.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

namespace {

constexpr int64_t LEAST_READ = 2;  // lists that are always read
constexpr int64_t LEAST_NEXT =
    8;  // lists that are read before it is decided again which others are: fewer would cost more time
// Where more than 1 / CROWDED of the lists that were picked are within reach, others will be that were not: more are picked.
constexpr int64_t CROWDED = 4;
// In standard deviations of what a sign code tells: how far a key may seem to be from the best so far, or from the last of
// the k best, and is still compared by its int8 code. More lose fewer neighbours and cost time.
constexpr float DOUBT_OF_BEST = 4, DOUBT_OF_LAST = 1;
// The same for int8 codes, and the residuals.
constexpr float DOUBT_OF_CODES = 3;
constexpr size_t AHEAD = 8;  // blocks of sign codes that are prefetched

// At least so many keys are read for k neighbours: of only k, all would be taken, near or not.
int64_t keys_for(int64_t k) { return 2 * k; }

// Of what is read in order, the CPU itself fetches what follows the first lines.
void prefetch_start(const void *start, int64_t bytes) { prefetch(start, std::min<int64_t>(bytes, 256)); }

}  // namespace

std::vector<Probe> &Probe::pool(int threads) {
    thread_local std::vector<Probe> all;
    if (static_cast<int>(all.size()) < threads * TILE) all.resize(threads * TILE);
    return all;
}

void Probe::set_query(const ListStore &store, const float *of, int64_t excluded) {
    own_code.resize(store.width);
    own_residual.resize(store.width);
    whole.resize(store.width);
    query = of;
    exclude = excluded;
    set_query(own_code.data(), quantise(query, store.size, own_code.data()));
    quantise_residual(query, store.size, code, scale, own_residual.data());
    for (int64_t i = 0; i < store.width; i++) whole[i] = static_cast<int16_t>(256 * code[i] + own_residual[i]);
}

void Probe::choose_first(const ListStore &store, int64_t k, const Extent &extent) {
    const int64_t n = store.n_lists;
    // Some more lists than would be enough if all had the same length.
    int64_t count = std::max(extent.first + 1, 2 * keys_for(k) * n / std::max(store.n_keys, 1) + 1);
    for (;; count = n) {
        rank_lists(store, count);
        for (const auto &list : nearest) {
            __builtin_prefetch(&store.keys.length[list.id]);
            __builtin_prefetch(&store.keys.head[list.id]);
        }
        to_read.clear();
        int64_t keys = 0;
        for (const auto &list : nearest) {
            if (static_cast<int64_t>(to_read.size()) >= LEAST_READ && keys >= keys_for(k)) break;
            if (list.id == hidden) continue;
            keys += store.keys.length[list.id];
            to_read.push_back(list);
        }
        if (keys >= k || count >= n) break;
        pick_centroids(store, n);  // these lists are not enough
    }
    already_read.clear();
    collect(store);
    for (const auto &[block, rows] : blocks) {
        const int64_t first = int64_t{BLOCK} * block;
        prefetch_start(store.at.codes.data() + first * store.width, rows * store.width);
        prefetch_start(store.residuals.data() + first * store.width, rows * store.width);
        prefetch(store.at.scales.data() + first, rows * sizeof(float));
        prefetch(store.keys.members.data() + first, rows * sizeof(int32_t));
    }
}

Ranking &Probe::read(const ListStore &store, const Slots &memory, int64_t k, const Extent &extent) {
    read_whole(store, memory);
    const size_t taken = already_read.size(), first = std::min<size_t>(extent.first, nearest.size());
    if (taken < first) {
        to_read.assign(nearest.begin() + static_cast<int64_t>(taken), nearest.begin() + static_cast<int64_t>(first));
        collect(store);
        read_near_keys(store, memory, k);
    }
    for (;;) {
        const int64_t within = choose_next(store, extent.reach);
        if (to_read.empty()) {
            if (CROWDED * within <= static_cast<int64_t>(picked.size()) ||
                static_cast<int64_t>(picked.size()) >= store.n_lists)
                break;
            level++;
            if (store.are_many()) scan(store, this, 1, level);
            pick_centroids(store, shortlist(store, level));
            score_picked(store);
            continue;
        }
        const size_t most = std::max<size_t>(LEAST_NEXT, already_read.size());
        if (to_read.size() > most) {
            std::nth_element(to_read.begin(), to_read.begin() + static_cast<int64_t>(most), to_read.end());
            to_read.resize(most);
        }
        collect(store);
        read_near_keys(store, memory, k);
    }
    settle_best(memory);
    return ranking;
}

float Probe::required_cosine(const ListStore &store, const Near &list, float similarity) const {
    const Spread spread = store.spreads[list.id];
    const float doubt = 2 * code_deviation(scale, store.centroids.scales[list.id]);
    const float cosine = std::max(list.similarity - doubt, 0.0f), sine = std::sqrt(std::max(1 - cosine * cosine, 0.0f));
    const float more = similarity - list.similarity * spread.cosine - doubt;
    return more > 0 ? more / std::max(sine * spread.sine, 1e-9f) : 0;
}

// Puts the lists that were picked, not read, and are within reach into `to_read`; returns how many are within reach, read or
// not.
int64_t Probe::choose_next(const ListStore &store, int64_t reach) {
    const bool all = reach >= REACH_BINS;
    const float than = best(), most = static_cast<float>(reach) * BIN_WIDTH;
    int64_t within = 0;
    to_read.clear();
    for (const auto &list : picked) {
        const Spread spread = store.spreads[list.id];
        // A bound that costs less than the required cosine excludes most.
        const float doubt = scale + store.centroids.scales[list.id];
        if (!all && than - list.similarity * spread.cosine - doubt > most * spread.sine) continue;
        if (list.id == hidden || (!all && required_cosine(store, list, than) > most)) continue;
        within++;
        if (!std::binary_search(already_read.begin(), already_read.end(), list.id)) to_read.push_back(list);
    }
    return within;
}

// Makes the blocks of `to_read` the next to be read.
void Probe::collect(const ListStore &store) {
    blocks.clear();
    held = 0;
    for (const auto &list : to_read) {
        already_read.push_back(list.id);
        held += store.keys.length[list.id];
        store.keys.for_each_block(list.id, [&](Block block) { blocks.push_back(block); });
    }
    std::sort(already_read.begin(), already_read.end());
}

// Ranks all keys in `blocks` by codes and residuals.
void Probe::read_whole(const ListStore &store, const Slots &memory) {
    places.resize(held);
    int32_t *place = places.data();
    for (const auto &[block, rows] : blocks) {
        std::iota(place, place + rows, block * BLOCK);
        place += rows;
    }
    const float unit = whole_dots(store);
    ranking.resize(held);
    int64_t start = 0;
    for (const auto &[block, rows] : blocks) {
        const int64_t first = int64_t{BLOCK} * block;
        kernels::scale(&dots[start], store.at.scales.data() + first, unit, rows, &ranking.similarities[start]);
        std::copy_n(store.keys.members.data() + first, rows, &ranking.slots[start]);
        start += rows;
    }
    drop_excluded(memory, 0);
}

// Ranks the keys in `blocks` that may be nearer than the best so far, and most of those that may be nearer than the last of
// the k best: by sign codes, then by int8 codes, at last with residuals. None is dropped for being one of too many: keys
// that are too similar for their codes to tell are all read.
void Probe::read_near_keys(const ListStore &store, const Slots &memory, int64_t k) {
    const float last = kth_best(k);
    const int limit = std::max(table.limit(store.size, best(), DOUBT_OF_BEST), table.limit(store.size, last, DOUBT_OF_LAST));
    scan_blocks(store.size, store.at.signs, key_distances);
    const auto rows = static_cast<int64_t>(key_distances.size());
    if (limit < 255) {
        if (static_cast<int64_t>(room.size()) < rows + 2) room.resize(rows + 2);
        places.assign(room.begin(), room.begin() + kernels::within(key_distances.data(), rows, limit, room.data()));
    } else {
        places.clear();
        for (size_t i = 0; i < blocks.size(); i++)
            for (int row = 0; row < blocks[i].rows; row++) places.push_back(static_cast<int32_t>(i) * BLOCK + row);
    }
    for (auto &place : places) place = blocks[place / BLOCK].block * BLOCK + place % BLOCK;
    prefetch_places(store.at, store.width);
    score_places(store.at, store.width);
    size_t kept = 0;
    for (size_t i = 0; i < places.size(); i++) {
        places[kept] = places[i];
        kept += similarities[i] >= last - DOUBT_OF_CODES * code_deviation(scale, store.at.scales[places[i]]);
    }
    places.resize(kept);
    for (const int32_t place : places) __builtin_prefetch(&store.keys.members[place]);
    const float unit = whole_dots(store);
    const size_t before = ranking.slots.size();
    ranking.resize(static_cast<int64_t>(before + kept));
    for (size_t i = 0; i < kept; i++) {
        ranking.similarities[before + i] = static_cast<float>(dots[i]) * (store.at.scales[places[i]] * unit);
        ranking.slots[before + i] = store.keys.members[places[i]];
    }
    drop_excluded(memory, before);
}

// Compares the best keys in float32, where residuals do not tell which of them is the nearest.
void Probe::settle_best(const Slots &memory) {
    const float error = DOUBT_OF_CODES * 2 * code_deviation(scale, 2 * scale) / 256;
    const float most = best(), least = most - error;
    int64_t near = 0, equal = 0;
    for (const float similarity : ranking.similarities) {
        near += similarity >= least;
        equal += similarity == most;
    }
    if (near == equal) return;
    for (size_t i = 0; i < ranking.slots.size(); i++)
        if (ranking.similarities[i] >= least)
            ranking.similarities[i] = kernels::dot(query, memory.key(ranking.slots[i]), static_cast<int>(memory.key_size));
}

void Probe::drop_excluded(const Slots &memory, size_t from) {
    if (exclude < 0) return;
    size_t kept = from;
    for (size_t i = from; i < ranking.slots.size(); i++) {
        if (memory.sources[ranking.slots[i]] == exclude) continue;
        ranking.slots[kept] = ranking.slots[i];
        ranking.similarities[kept++] = ranking.similarities[i];
    }
    ranking.resize(static_cast<int64_t>(kept));
}

// The largest similarity so far; -2 where there is none.
float Probe::best() const {
    // Positive floats compare as their bits do, above negative ones: compilers vectorise the maximum of integers.
    int32_t most = INT32_MIN;
    for (const float similarity : ranking.similarities) {
        int32_t bits;
        std::memcpy(&bits, &similarity, 4);
        most = std::max(most, bits);
    }
    float similarity;
    std::memcpy(&similarity, &most, 4);
    if (most >= 0) return similarity;
    return ranking.similarities.empty() ? -2 : *std::max_element(ranking.similarities.begin(), ranking.similarities.end());
}

// -2 where there are fewer than k.
float Probe::kth_best(int64_t k) {
    if (static_cast<int64_t>(ranking.similarities.size()) < k) return -2;
    sorted = ranking.similarities;
    std::nth_element(sorted.begin(), sorted.begin() + k - 1, sorted.end(), std::greater<>());
    return sorted[k - 1];
}

Probe::Sample Probe::sample(const ListStore &store, const Slots &memory, int64_t k, Extent extent) {
    std::vector<int32_t> first;  // lists that are read in any case
    const int64_t to_read_first = std::min<int64_t>(extent.first, store.n_lists);
    extent.first = LEAST_READ;  // so that it is seen what fewer would miss
    const auto search = [&](int32_t without) {
        hidden = without;
        scan_centroids(store, this, 1, static_cast<int>(extent.level));
        choose_first(store, k, extent);
        first = already_read;
        read(store, memory, k, extent);
        hidden = -1;
    };
    search(-1);
    const auto read_lists = std::max(already_read.size(), static_cast<size_t>(to_read_first));
    const float share = static_cast<float>(read_lists) / static_cast<float>(store.n_lists);
    // What is nearer than what was found.
    blocks.clear();
    for (int32_t block = 0; block < store.keys.blocks; block++)
        if (const int32_t rows = store.keys.rows_in(block)) blocks.push_back({block, rows});
    read_near_keys(store, memory, 1);
    settle_best(memory);
    if (ranking.slots.empty()) return {false, 0, 0, 0, 0};
    const float most = best();
    const auto at = std::find(ranking.similarities.begin(), ranking.similarities.end(), most) - ranking.similarities.begin();
    const int32_t list = store.keys.chain_of(static_cast<int32_t>(ranking.slots[at]));
    if (std::binary_search(first.begin(), first.end(), list)) return {true, share, 1, 0, 0};
    // With what a search would have found without that list, it has to decide to read it.
    search(list);
    const float without = best();
    if (without >= most) return {true, share, 1, 0, 0};
    Sample sample{true, share, INT32_MAX, REACH_BINS * BIN_WIDTH, 0};
    const auto is_it = [&](const Near &each) { return each.id == list; };
    while (std::none_of(picked.begin(), picked.end(), is_it) && level + 1 < LEVELS) {
        scan_centroids(store, this, 1, level + 1);
        score_picked(store);
        sample.level = level;
    }
    const auto its = std::find_if(picked.begin(), picked.end(), is_it);
    if (its == picked.end()) return sample;
    sample.rank = 1 + std::count_if(picked.begin(), picked.end(), [&](const Near &each) { return each < *its; });
    sample.cosine = required_cosine(store, *its, without);
    return sample;
}

// Compares the sign codes of what is in `blocks`.
void Probe::scan_blocks(const CodeSize &size, const Array<uint8_t> &signs, std::vector<uint8_t> &distances) {
    const int64_t bytes = size.group_bytes();
    const uint8_t *const costs = table.costs;
    distances.resize(blocks.size() * BLOCK);
    for (size_t i = 0; i < blocks.size(); i++) {
        if (i + AHEAD < blocks.size()) prefetch(signs.data() + blocks[i + AHEAD].block * bytes, bytes);
        uint8_t *here = &distances[i * BLOCK];
        kernels::distances(&costs, 1, signs.data() + blocks[i].block * bytes, 1, size.nibbles(), &here);
        std::fill(here + blocks[i].rows, here + BLOCK, 255);
    }
}

// Puts the indices of the smallest of these distances into `places`: about `count`, as a sample of so many groups tells, and
// none of 255.
void Probe::pick_nearest(const std::vector<uint8_t> &distances, int64_t groups, int64_t count, int64_t sample) {
    const int64_t n = groups * BLOCK, step = std::max<int64_t>(groups / std::max<int64_t>(sample, 1), 1);
    const int64_t sampled = (groups + step - 1) / step;
    const double share = static_cast<double>(sampled) / static_cast<double>(std::max<int64_t>(groups, 1));
    const int limit = signs::limit_for(distances.data(), groups, step, static_cast<double>(count) * share);
    if (static_cast<int64_t>(room.size()) < n + 2) room.resize(n + 2);
    places.assign(room.begin(), room.begin() + kernels::within(distances.data(), n, limit, room.data()));
}

// For score_places: of the codes the first, since it fetches the next ones itself.
void Probe::prefetch_places(const Codes &at, int64_t width) const {
    const auto first = std::min<int64_t>(kernels::ROWS_AHEAD, static_cast<int64_t>(places.size()));
    for (int64_t i = 0; i < first; i++) prefetch(at.codes.data() + places[i] * width, width);
    for (const int32_t place : places) __builtin_prefetch(&at.scales[place]);
}

void Probe::score_places(const Codes &at, int64_t width) {
    const auto n = static_cast<int64_t>(places.size());
    dots.resize(n + 3);
    similarities.resize(n);
    kernels::dots(code, at.codes.data(), places.data(), n, width, dots.data());
    for (int64_t i = 0; i < n; i++) similarities[i] = static_cast<float>(dots[i]) * (at.scales[places[i]] * scale);
}

// Multiplies the query with what is in `places`, by codes and residuals, into `dots`. Returns the unit of these, but for the
// scale of each place.
float Probe::whole_dots(const ListStore &store) {
    const auto n = static_cast<int64_t>(places.size());
    int shift = 0;
    while (int64_t{2} << shift < store.width) shift++;
    dots.resize(n + 3);
    kernels::whole_dots(whole.data(), store.at.codes.data(), store.residuals.data(), places.data(), n, store.width, shift,
                        dots.data());
    return scale * static_cast<float>(1 << shift) / 65536;
}
