// Steps that centroids and keys have in common; and the keys.
#include "lists_probe.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace {

// Keys compared by int8 codes after the scan of their sign codes: at least SCORED, or 1 / SCORED_SHARE of those scanned; where
// all keys of the memory are scanned, ALL_SCORED. More cost time and lose fewer neighbours; chosen so that the lists that are
// not read lose most of them.
constexpr int64_t SCORED = 512, SCORED_SHARE = 16, ALL_SCORED = 4096;
constexpr int64_t SAMPLE = 64;  // groups of distances from which the k-th smallest is estimated: 2048 of them
constexpr size_t AHEAD = 8;     // blocks of sign codes that are prefetched

// Of lists past the first ones, where they are probed by regions: a query reads only one in READ of its nprobe. What it would miss
// is mostly in a region that it did not scan, and not in a farther list of those that it did.
constexpr int64_t READ = 16;

// At least so many keys are read for k neighbours: of only k, all would be taken, near or not.
int64_t keys_for(int64_t k) { return 2 * k; }

int64_t lists_read(const ListStore &store, int64_t nprobe) {
    return store.are_many() ? std::min(nprobe, READ + nprobe / READ) : nprobe;
}

// The least nprobe of which so many lists are read.
int64_t nprobe_for(const ListStore &store, int64_t read) {
    return store.are_many() && read > READ ? std::max(read, (read - READ) * READ) : read;
}

// Of what is read in order, the CPU itself fetches what follows the first lines.
void prefetch_start(const void *start, int64_t bytes) { prefetch(start, std::min<int64_t>(bytes, 256)); }

}  // namespace

std::vector<Probe> &Probe::pool(int threads) {
    thread_local std::vector<Probe> all;
    if (static_cast<int>(all.size()) < threads * TILE) all.resize(threads * TILE);
    return all;
}

void Probe::set_query(const ListStore &store, const float *query, int64_t excluded) {
    own_code.resize(store.width);
    own_residual.resize(store.width);
    whole.resize(store.width);
    exclude = excluded;
    set_query(own_code.data(), quantise(query, store.size, own_code.data()));
    quantise_residual(query, store.size, code, scale, own_residual.data());
    for (int64_t i = 0; i < store.width; i++) whole[i] = static_cast<int16_t>(256 * code[i] + own_residual[i]);
}

// Some more than would be enough if all lists had the same length.
int64_t Probe::lists_to_rank(const ListStore &store, int64_t k, int64_t nprobe) {
    return std::max(lists_read(store, nprobe), 2 * keys_for(k) * store.n_lists / std::max(store.n_keys, 1) + 1);
}

void Probe::choose_blocks(const ListStore &store, int64_t k, int64_t nprobe) {
    const int64_t n = store.n_lists, least = lists_read(store, nprobe);
    int64_t taken = 0;
    for (int64_t count = lists_to_rank(store, k, nprobe);; count = n) {
        rank_lists(store, count);
        const auto ranked = static_cast<int64_t>(nearest.size());
        for (const auto &list : nearest) {
            __builtin_prefetch(&store.keys.length[list.id]);
            __builtin_prefetch(&store.keys.head[list.id]);
        }
        for (held = taken = 0; taken < ranked && (taken < least || held < keys_for(k)); taken++)
            held += store.keys.length[nearest[taken].id];
        if (held >= k || count >= n) break;
        pick_centroids(store, n);  // these lists are not enough
    }
    blocks.clear();
    for (int64_t i = 0; i < taken; i++)
        store.keys.for_each_block(nearest[i].id, [&](Block block) { blocks.push_back(block); });
    rank_by_whole = held <= 2 * keys_for(k);
    wanted = std::max<int64_t>({2 * k, SCORED, held / SCORED_SHARE});
    for (const auto &[block, rows] : blocks) {
        const int64_t first = int64_t{BLOCK} * block;
        if (are_few()) {
            prefetch_start(store.at.codes.data() + first * store.width, rows * store.width);
            prefetch(store.at.scales.data() + first, rows * sizeof(float));
            if (!rank_by_whole) continue;
            prefetch_start(store.residuals.data() + first * store.width, rows * store.width);
            prefetch(store.keys.members.data() + first, rows * sizeof(int32_t));
        } else {
            prefetch(store.at.signs.data() + block * store.size.group_bytes(), store.size.group_bytes());
        }
    }
}

Ranking &Probe::read(const ListStore &store, const Slots &memory, int64_t k) {
    if (rank_by_whole && exclude < 0) {
        pick_all();
        rank_blocks(store, memory);
        return ranking;
    }
    score_keys(store);
    drop_excluded(store, memory);
    keep_best(k);
    for (const int32_t place : places) {
        prefetch(store.residuals.data() + place * store.width, store.width);
        __builtin_prefetch(&store.keys.members[place]);
    }
    const float unit = whole_dots(store);
    const auto n = static_cast<int64_t>(places.size());
    ranking.resize(n);
    for (int64_t i = 0; i < n; i++) {
        ranking.similarities[i] = static_cast<float>(dots[i]) * (store.at.scales[places[i]] * unit);
        ranking.slots[i] = store.keys.members[places[i]];
        __builtin_prefetch(memory.values + ranking.slots[i]);
    }
    return ranking;
}

int64_t Probe::nprobe_needed(const ListStore &store, const Slots &memory) {
    constexpr int64_t FIRST = 8;
    table.set(store.size, code);
    held = 0;
    blocks.clear();
    for (int32_t block = 0; block < store.keys.blocks; block++) {
        const int32_t rows = store.keys.rows_in(block);
        if (rows > 0) blocks.push_back({block, rows});
        held += rows;
    }
    wanted = ALL_SCORED;
    score_keys(store);
    drop_excluded(store, memory);
    if (places.empty()) return 0;
    const auto best = std::max_element(similarities.begin(), similarities.end()) - similarities.begin();
    const int32_t list = store.keys.owner[places[best] / BLOCK];
    // Search with a growing nprobe: what it misses counts as if it were just beyond.
    for (int64_t missed = 0, nprobe = FIRST;; missed = nprobe, nprobe *= 2) {
        const int64_t count = std::min<int64_t>(lists_read(store, nprobe), store.n_lists);
        scan_centroids(store, this, 1, count, nprobe);
        rank_lists(store, count);
        for (size_t i = 0; i < nearest.size(); i++)
            if (nearest[i].id == list) return std::max(nprobe_for(store, static_cast<int64_t>(i) + 1), missed + 1);
        if (nprobe >= store.n_lists) return store.n_lists;
    }
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

// Keeps the `count` best of what was scored, and those that fall into the same bin of a histogram as the last of them: so equal
// keys are kept or dropped together.
void Probe::keep_best(int64_t count) {
    constexpr int BINS = 256;
    const auto n = static_cast<int64_t>(places.size());
    if (n <= count) return;
    if (static_cast<int64_t>(room.size()) < n) room.resize(n);
    int32_t least = INT32_MAX, most = INT32_MIN;
    for (int64_t i = 0; i < n; i++) {
        room[i] = static_cast<int32_t>(similarities[i] * (1 << 24));
        least = std::min(least, room[i]);
        most = std::max(most, room[i]);
    }
    auto below = [&](int32_t similarity) { return static_cast<uint32_t>(most) - static_cast<uint32_t>(similarity); };
    int shift = 0;
    while (below(least) >> shift >= BINS) shift++;
    int32_t in[BINS] = {};
    for (int64_t i = 0; i < n; i++) in[below(room[i]) >> shift]++;
    uint32_t last = 0;
    for (int64_t so_far = in[0]; so_far < count; so_far += in[++last]) continue;
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++) {  // without branches, which could not be predicted
        places[kept] = places[i];
        similarities[kept] = similarities[i];
        kept += below(room[i]) >> shift <= last;
    }
    places.resize(kept);
    similarities.resize(kept);
}

// Puts all places of `blocks` into `places`.
void Probe::pick_all() {
    places.resize(held);
    int32_t *next = places.data();
    for (const auto &[block, rows] : blocks) {
        std::iota(next, next + rows, block * BLOCK);
        next += rows;
    }
}

// Compares the keys in `blocks` by their int8 codes: all, or about as many as wanted, those with the nearest sign codes.
void Probe::score_keys(const ListStore &store) {
    const int64_t width = store.width;
    if (!are_few()) {
        scan_blocks(store.size, store.at.signs, key_distances);
        pick_nearest(key_distances, static_cast<int64_t>(blocks.size()), wanted, SAMPLE);
        for (auto &place : places) place = blocks[place / BLOCK].block * BLOCK + place % BLOCK;
        prefetch_places(store.at, width);
        return score_places(store.at, width);
    }
    pick_all();
    similarities.resize(held);
    dots.resize(BLOCK + 3);
    int64_t start = 0;
    for (const auto &[block, rows] : blocks) {
        const int64_t first = int64_t{BLOCK} * block;
        kernels::dots(code, store.at.codes.data() + first * width, nullptr, rows, width, dots.data());
        kernels::scale(dots.data(), store.at.scales.data() + first, scale, rows, &similarities[start]);
        start += rows;
    }
}

void Probe::drop_excluded(const ListStore &store, const Slots &memory) {
    if (exclude < 0) return;
    size_t kept = 0;
    for (size_t i = 0; i < places.size(); i++) {
        if (memory.sources[store.keys.members[places[i]]] == exclude) continue;
        similarities[kept] = similarities[i];
        places[kept++] = places[i];
    }
    similarities.resize(kept);
    places.resize(kept);
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

// Ranks all keys in `blocks`, which are `places`, by codes and residuals.
void Probe::rank_blocks(const ListStore &store, const Slots &memory) {
    const float unit = whole_dots(store);
    ranking.resize(held);
    int64_t start = 0;
    for (const auto &[block, rows] : blocks) {
        const int64_t first = int64_t{BLOCK} * block;
        kernels::scale(&dots[start], store.at.scales.data() + first, unit, rows, &ranking.similarities[start]);
        for (int64_t i = 0; i < rows; i++) {
            ranking.slots[start + i] = store.keys.members[first + i];
            __builtin_prefetch(memory.values + ranking.slots[start + i]);
        }
        start += rows;
    }
}
