#include "lists_probe.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace {

// Centroids compared by 16-bit codes: so many, a share of all, or a multiple of the lists to read. More cost time and lose
// fewer of the nearest lists.
constexpr int64_t LEAST_PICKED = 128, SHARE_PICKED = 1024, PICKED_PER_READ = 4;
// Of many keys, the regions of so many lists for each that is picked are scanned.
constexpr int64_t SCANNED_PER_PICKED = 32;
constexpr int64_t SAMPLE = 64;     // groups from which distances are estimated
constexpr int LEAST_READ = 2;      // lists that are always read
constexpr int64_t LEAST_NEXT = 8;  // lists that are read before it is decided again which others are: fewer cost more time
// Where more than 1 / CROWDED of the lists that were picked are within reach, others will be that were not: more are picked.
constexpr int64_t CROWDED = 4;
// Where no more than LEAST_READ lists are read in any case, others are within reach up to so many standard deviations of the
// cosine, but not farther than MOST_LEAST_REACH: in few dimensions that would be all of them. The reach grows by the fourth
// root of the lists to read: with the square root, some streams read twice as much; without, some needed half of all lists.
constexpr float LEAST_REACH = 4.5f, MOST_LEAST_REACH = 0.64f;
// In standard deviations of what a sign code tells: how far a key may seem to be from the best so far, or from the last of
// the k best, and is still compared by its 16-bit code. More lose fewer neighbours and cost time.
constexpr float DOUBT_OF_BEST = 4, DOUBT_OF_LAST = 1;
constexpr float DOUBT_OF_CODES = 6;  // the same for 16-bit codes, of two keys
constexpr size_t AHEAD = 8;          // blocks of sign codes that are prefetched

// At least so many keys are read for k neighbours: of only k, all would be taken, near or not.
int64_t keys_for(int64_t k) { return 2 * k; }

}  // namespace

std::vector<Probe> &Probe::pool(int threads) {
    thread_local std::vector<Probe> all;
    if (static_cast<int>(all.size()) < threads * TILE) all.resize(threads * TILE);
    return all;
}

void Probe::set_query(const ListStore &store, const float *of, int64_t excluded) {
    query = of;
    exclude = excluded;
    own_code.resize(store.width);
    quantise(query, store.size, own_code.data());
    set_query(own_code.data());
}

// ---- the nearest lists ----

void Probe::scan_centroids(const ListStore &store, Probe *probes, int n, int64_t to_read) {
    const int64_t all = store.n_lists, shortlist = std::max({LEAST_PICKED, all / SHARE_PICKED, PICKED_PER_READ * to_read});
    const bool in_regions = store.are_many() && SCANNED_PER_PICKED * shortlist <= all / 2;
    const int64_t groups = (all + BLOCK - 1) / BLOCK;
    const uint8_t *costs[TILE] = {};
    uint8_t *out[TILE] = {};
    for (int i = 0; i < n; i++) {
        probes[i].shortlist = shortlist;
        probes[i].table.set(store.size, probes[i].code);
        if (in_regions) probes[i].scan_regions(store, SCANNED_PER_PICKED * shortlist);
        if (!in_regions) probes[i].distances.resize(groups * BLOCK);
        costs[i] = probes[i].table.costs;
        out[i] = probes[i].distances.data();
    }
    if (!in_regions) {
        kernels::distances(costs, n, store.centroids.signs.group(0), groups, store.size.nibbles(), out);
        for (int i = 0; i < n; i++) std::fill(out[i] + all, out[i] + groups * BLOCK, 255);
    }
    for (int i = 0; i < n; i++) probes[i].pick_centroids(store, in_regions);
}

// The regions of the query's largest coordinates, until they hold `count` lists: of coordinates in the same bin of a
// histogram all regions, so that it does not matter where in a region a list stands.
void Probe::scan_regions(const ListStore &store, int64_t count) {
    constexpr int BINS = 256;
    const Chains &in = store.regions->lists;
    const int32_t *along = rotated(code, store.width, AXES);
    // A little less than BINS, so that no product is more.
    const float factor = (BINS - 0.1f) / static_cast<float>(std::max(Regions::largest(along), 1));
    uint8_t farness[AXES];
    for (int64_t axis = 0; axis < AXES; axis++) {
        const float nearness = static_cast<float>(std::abs(along[axis])) * factor;
        farness[axis] = static_cast<uint8_t>(BINS - 1 - static_cast<int32_t>(nearness));
    }
    int limit = 0;
    for (const int farthest : {BINS / 2, BINS}) {  // the nearer half holds few of the axes, and mostly enough lists
        int64_t held[BINS] = {}, so_far = 0;
        for (int64_t axis = 0; axis < AXES; axis++)
            if (farness[axis] < farthest) held[farness[axis]] += in.length[Regions::side(axis, along[axis])];
        for (limit = -1; so_far < count && limit + 1 < farthest;) so_far += held[++limit];
        if (so_far >= count) break;
    }
    blocks.clear();
    for (int64_t axis = 0; axis < AXES; axis++)
        if (farness[axis] <= limit)
            in.for_each_block(Regions::side(axis, along[axis]), [&](Block block) { blocks.push_back(block); });
    scan_blocks(store.size, store.regions->signs);
}

// Puts about `shortlist` lists whose centroids are compared by 16-bit codes into `places`, and prefetches these.
void Probe::pick_centroids(const ListStore &store, bool in_regions) {
    places.clear();
    if (store.n_lists > 2 * shortlist) {
        const auto groups = static_cast<int64_t>(distances.size()) / BLOCK;
        // Of regions all groups: what a sample tells would depend on where in them lists stand.
        pick_nearest(groups, shortlist, in_regions ? groups : SAMPLE);
        if (in_regions) {
            const auto &members = store.regions->lists.members;
            for (auto &place : places) place = blocks[place / BLOCK].block * BLOCK + place % BLOCK;
            for (const int32_t place : places) __builtin_prefetch(&members[place]);
            for (auto &place : places) place = members[place];
        }
    }
    if (places.empty()) {  // there are few, or all are as far as can be
        places.resize(store.n_lists);
        std::iota(places.begin(), places.end(), 0);
    }
    const auto first = std::min<size_t>(kernels::ROWS_AHEAD, places.size());
    for (size_t i = 0; i < first; i++) prefetch(store.centroids.code(places[i]), store.width * sizeof(int16_t));
    for (const int32_t list : places) __builtin_prefetch(&store.spreads[list]);
}

void Probe::rank_lists(const ListStore &store, int64_t count) {
    multiply(store.centroids);
    lists.resize(static_cast<int64_t>(places.size()));
    for (size_t i = 0; i < places.size(); i++) {
        lists.slots[i] = places[i];
        lists.similarities[i] = static_cast<float>(dots[i]) * OF_PRODUCT;
    }
    lists.sort(static_cast<size_t>(count), std::less<>());
}

int32_t Probe::nearest_of(const ListStore &store, const std::vector<int32_t> &of) {
    places = of;
    multiply(store.centroids);
    return places[std::max_element(dots.begin(), dots.begin() + static_cast<int64_t>(of.size())) - dots.begin()];
}

// ---- their keys ----

Ranking &Probe::search(const ListStore &store, const Slots &memory, int64_t k, int64_t to_read) {
    scan_centroids(store, this, 1, to_read);
    choose_first(store, k, to_read);
    return read(store, memory, k, to_read);
}

void Probe::choose_first(const ListStore &store, int64_t k, int64_t to_read) {
    const int64_t n = store.n_lists;
    // Some more lists than would be enough if all had the same length.
    int64_t count = std::max(to_read, 2 * keys_for(k) * n / std::max(store.n_keys, 1) + LEAST_READ), keys;
    for (;; count = n) {
        rank_lists(store, count);
        is_read.assign(places.size(), false);
        blocks.clear();
        keys = n_read = 0;
        for (const uint64_t each : lists.order) {
            if (n_read >= LEAST_READ && keys >= keys_for(k)) break;
            take(store, Ranking::row(each));
            keys += store.keys.length[lists.slots[Ranking::row(each)]];
        }
        if (keys >= k || static_cast<int64_t>(places.size()) >= n) break;
        places.resize(n);  // these lists are not enough
        std::iota(places.begin(), places.end(), 0);
    }
    for (const auto &[block, rows] : blocks) {
        const int64_t first = int64_t{BLOCK} * block;
        // Of what is read in order, the CPU itself fetches what follows the first lines.
        prefetch(store.at.code(first), std::min<int64_t>(rows * store.width * sizeof(int16_t), 512));
        prefetch(&store.keys.members[first], rows * sizeof(int32_t));
    }
}

// Adds the blocks of a list to what is read next.
void Probe::take(const ListStore &store, uint32_t row) {
    is_read[row] = true;
    n_read++;
    store.keys.for_each_block(static_cast<int32_t>(lists.slots[row]), [&](Block block) { blocks.push_back(block); });
}

Ranking &Probe::read(const ListStore &store, const Slots &memory, int64_t k, int64_t to_read) {
    for (;;) {
        ranking.resize(0);
        best_so_far = -2;
        read_whole(store, memory, -2);
        blocks.clear();
        for (size_t i = n_read; i < std::min<size_t>(to_read, lists.order.size()); i++)
            take(store, Ranking::row(lists.order[i]));
        int64_t within_reach;
        do {
            if (!blocks.empty()) read_near_keys(store, memory, k);
            within_reach = choose_next(store, to_read);
        } while (!blocks.empty());
        const auto picked = static_cast<int64_t>(lists.slots.size());
        if (CROWDED * within_reach <= picked || picked >= store.n_lists) break;
        scan_centroids(store, this, 1, shortlist);  // picks more
        choose_first(store, k, to_read);
    }
    settle_best(memory);
    return ranking;
}

// Takes the lists that were picked, not read, and are within reach; returns how many are within reach, read or not.
int64_t Probe::choose_next(const ListStore &store, int64_t to_read) {
    const float least = std::min(LEAST_REACH / std::sqrt(static_cast<float>(store.size.key_size)), MOST_LEAST_REACH);
    const float than = best(), reach = least * std::sqrt(std::sqrt(static_cast<float>(to_read) / LEAST_READ));
    int64_t within_reach = 0;
    next.clear();
    for (uint32_t row = 0; row < lists.slots.size(); row++) {
        const float cosine = lists.similarities[row], sine = std::sqrt(std::max(1 - cosine * cosine, 0.0f));
        const Spread spread = store.spreads[lists.slots[row]];
        if (than - cosine * spread.cosine > reach * sine * spread.sine) continue;
        within_reach++;
        if (!is_read[row]) next.push_back(row);
    }
    const auto most = std::max(LEAST_NEXT, n_read);
    if (static_cast<int64_t>(next.size()) > most) {
        const auto nearer = [&](uint32_t a, uint32_t b) {
            return lists.similarities[a] != lists.similarities[b] ? lists.similarities[a] > lists.similarities[b] : a < b;
        };
        std::nth_element(next.begin(), next.begin() + most, next.end(), nearer);
        next.resize(most);
    }
    blocks.clear();
    for (const uint32_t row : next) take(store, row);
    return within_reach;
}

// Ranks all keys in `blocks`.
void Probe::read_whole(const ListStore &store, const Slots &memory, float least) {
    places.clear();
    for (const auto &[block, rows] : blocks)
        for (int32_t row = 0; row < rows; row++) places.push_back(block * BLOCK + row);
    rank_places(store, memory, least);
}

// Ranks the keys in `blocks` that may be nearer than the best so far, and most of those that may be nearer than the last of
// the k best, by sign codes first. None is dropped for being one of too many: keys that are too similar for their sign codes
// to tell are all read.
void Probe::read_near_keys(const ListStore &store, const Slots &memory, int64_t k) {
    const float last = kth_best(k), least = last - DOUBT_OF_CODES * CODE_DEVIATION;
    const int limit = std::max(table.limit(store.size, best(), DOUBT_OF_BEST), table.limit(store.size, last, DOUBT_OF_LAST));
    if (limit >= 255) return read_whole(store, memory, least);
    scan_blocks(store.size, store.at.signs);
    pick_within(limit);
    for (auto &place : places) place = blocks[place / BLOCK].block * BLOCK + place % BLOCK;
    for (const int32_t place : places) __builtin_prefetch(&store.keys.members[place]);
    rank_places(store, memory, least);
}

// Ranks what is in `places` and at least so similar.
void Probe::rank_places(const ListStore &store, const Slots &memory, float least) {
    multiply(store.at);
    size_t n = ranking.slots.size();
    ranking.resize(static_cast<int64_t>(n + places.size()));
    for (size_t i = 0; i < places.size(); i++) {
        const int64_t slot = ranking.slots[n] = store.keys.members[places[i]];
        const float similarity = ranking.similarities[n] = static_cast<float>(dots[i]) * OF_PRODUCT;
        const bool counts = similarity >= least && !memory.is_excluded(slot, exclude);
        if (counts && similarity > best_so_far) best_so_far = similarity;
        n += counts;
    }
    ranking.resize(static_cast<int64_t>(n));
}

// Compares the best keys in float32, where 16 bits do not tell which of them is the nearest.
void Probe::settle_best(const Slots &memory) {
    const float least = best() - DOUBT_OF_CODES * CODE_DEVIATION;
    best_so_far = -2;
    for (size_t i = 0; i < ranking.slots.size(); i++) {
        float &similarity = ranking.similarities[i];
        if (similarity >= least)
            similarity = kernels::dot(query, memory.key(ranking.slots[i]), static_cast<int>(memory.key_size));
        if (similarity > best_so_far) best_so_far = similarity;
    }
}

float Probe::nearest_of_all(const ListStore &store, const Slots &memory) {
    blocks.clear();
    for (int32_t list = 0; list < store.n_lists; list++)
        store.keys.for_each_block(list, [&](Block block) { blocks.push_back(block); });
    read_near_keys(store, memory, 1);
    settle_best(memory);
    return best();
}

// -2 where there are fewer than k.
float Probe::kth_best(int64_t k) {
    if (static_cast<int64_t>(ranking.similarities.size()) < k) return -2;
    sorted = ranking.similarities;
    std::nth_element(sorted.begin(), sorted.begin() + k - 1, sorted.end(), std::greater<>());
    return sorted[k - 1];
}

// ---- steps that centroids and keys have in common ----

// Compares the sign codes of what is in `blocks`.
void Probe::scan_blocks(const CodeSize &size, const Signs &signs) {
    const uint8_t *const costs = table.costs;
    distances.resize(blocks.size() * BLOCK);
    for (size_t i = 0; i < blocks.size(); i++) {
        if (i + AHEAD < blocks.size()) prefetch(signs.group(blocks[i + AHEAD].block), size.group_bytes());
        uint8_t *here = &distances[i * BLOCK];
        kernels::distances(&costs, 1, signs.group(blocks[i].block), 1, size.nibbles(), &here);
        std::fill(here + blocks[i].rows, here + BLOCK, 255);
    }
}

// Puts what is nearest by `distances` into `places`, about `count`: how near that is, is told by some of the groups.
void Probe::pick_nearest(int64_t groups, int64_t count, int64_t sample) {
    const int64_t step = std::max<int64_t>(groups / sample, 1), sampled = (groups + step - 1) / step;
    const double wanted = static_cast<double>(count * sampled) / static_cast<double>(std::max<int64_t>(groups, 1));
    int limit = 0;
    for (int most = 254; limit < most;) {
        const int middle = (limit + most) / 2;
        if (static_cast<double>(kernels::count(distances.data(), groups, step, middle)) >= wanted)
            most = middle;
        else
            limit = middle + 1;
    }
    pick_within(limit);
}

void Probe::pick_within(int limit) {
    const auto n = static_cast<int64_t>(distances.size());
    if (static_cast<int64_t>(room.size()) < n + 2) room.resize(n + 2);
    places.assign(room.begin(), room.begin() + kernels::within(distances.data(), n, limit, room.data()));
}

// Multiplies the query with the codes at `places`, into `dots`.
void Probe::multiply(const Codes &at) {
    const auto n = static_cast<int64_t>(places.size());
    dots.resize(n + 3);
    kernels::dots(code, at.codes.data(), places.data(), n, at.width, dots.data());
}
