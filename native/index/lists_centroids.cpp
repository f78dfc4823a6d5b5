// The part of a probe that finds the nearest lists.
#include <algorithm>
#include <numeric>

#include "lists_probe.h"

namespace {

// Where centroids are scanned by half of their sign codes first: the blocks of WHOLE times the shortlist are scanned again,
// whole.
constexpr int64_t WHOLE = 2;
// Of many keys, the regions of 1 / REGION_SHARE of all lists are scanned at level 0.
constexpr int64_t REGION_SHARE = 32;
// Groups from which distances are estimated: more by half codes, of which fewer are wanted.
constexpr int64_t SAMPLE = 64, HALF_SAMPLE = 128;
constexpr int64_t AHEAD = 8;  // groups of sign codes that are prefetched

}  // namespace

int64_t Probe::shortlist(const ListStore &store, int level) {
    // Centroids compared by int8 codes at level 0, or a share of all. More cost time and lose fewer of the nearest lists.
    constexpr int64_t LEAST = 128, SHARE = 1024;
    return std::max<int64_t>(LEAST, store.n_lists / SHARE) << 2 * level;
}

void Probe::scan_centroids(const ListStore &store, Probe *probes, int n, int level) {
    for (int i = 0; i < n; i++) probes[i].table.set(store.size, probes[i].code);
    scan(store, probes, n, level);
    for (int i = 0; i < n; i++) probes[i].pick_centroids(store, shortlist(store, level));
}

void Probe::scan(const ListStore &store, Probe *probes, int n, int level) {
    const int64_t lists = store.n_lists, least = shortlist(store, level);
    const int64_t in_regions = std::max(least, (lists << 2 * level) / REGION_SHARE);
    for (int i = 0; i < n; i++) probes[i].level = level;
    if (!store.are_many() || store.centroid_blocks() < 2)
        scan_all(store, probes, n);
    else if (in_regions > lists / 2)
        scan_near_blocks(store, probes, n, WHOLE * least);
    else
        for (int i = 0; i < n; i++) probes[i].scan_regions(store, in_regions);
}

void Probe::scan_all(const ListStore &store, Probe *probes, int n) {
    const int64_t blocks = store.centroid_blocks();
    const uint8_t *costs[TILE] = {};
    uint8_t *out[TILE] = {};
    for (int i = 0; i < n; i++) {
        probes[i].what = Scanned::all;
        probes[i].centroid_distances.resize(blocks * BLOCK);
        costs[i] = probes[i].table.costs;
        out[i] = probes[i].centroid_distances.data();
    }
    kernels::distances(costs, n, store.centroids.signs.data(), blocks, store.size.nibbles(), out);
    for (int i = 0; i < n; i++) std::fill(out[i] + store.n_lists, out[i] + blocks * BLOCK, 255);
}

// All centroids by half of their sign codes; by whole ones only the blocks that hold some of those that are nearest so.
void Probe::scan_near_blocks(const ListStore &store, Probe *probes, int n, int64_t count) {
    const int64_t blocks = store.centroid_blocks(), nibbles = store.size.nibbles(), bytes = store.size.group_bytes();
    const uint8_t *const codes = store.centroids.signs.data();
    const uint8_t *costs[TILE] = {};
    uint8_t *out[TILE] = {};
    for (int i = 0; i < n; i++) {
        probes[i].what = Scanned::blocks;
        probes[i].centroid_distances.resize(blocks * BLOCK);
        costs[i] = probes[i].table.costs;
        out[i] = probes[i].centroid_distances.data();
    }
    // A sample of all blocks but the last, which may not be full, tells how near the nearest are by half of their
    // codes.
    const int64_t step = std::max<int64_t>(blocks / HALF_SAMPLE, 1), sampled = (blocks - 2) / step + 1;
    for (int64_t sample = 0; sample < sampled; sample++) {
        uint8_t *here[TILE];
        for (int i = 0; i < n; i++) here[i] = out[i] + sample * BLOCK;
        kernels::distances(costs, n, codes + sample * step * bytes, 1, nibbles / 2, here);
    }
    const double in_sample = static_cast<double>(count) * static_cast<double>(sampled) / static_cast<double>(blocks);
    uint8_t limits[TILE] = {};
    int32_t *kept[TILE] = {};
    int64_t found[TILE] = {};
    for (int i = 0; i < n; i++) {
        limits[i] = static_cast<uint8_t>(signs::limit_for(out[i], sampled, 1, in_sample));
        probes[i].scanned.resize(blocks + 1);
        kept[i] = probes[i].scanned.data();
    }
    kernels::near_groups(costs, n, codes, blocks, nibbles, limits, kept, found);
    for (int i = 0; i < n; i++) {
        probes[i].scanned.resize(found[i]);
        for (int64_t j = 0; j < found[i]; j++, out[i] += BLOCK) {
            if (j + AHEAD < found[i]) prefetch(codes + kept[i][j + AHEAD] * bytes, bytes);
            kernels::distances(&costs[i], 1, codes + kept[i][j] * bytes, 1, nibbles, &out[i]);
        }
        if (found[i] > 0 && kept[i][found[i] - 1] == blocks - 1)
            std::fill(out[i] - (blocks * BLOCK - store.n_lists), out[i], 255);
    }
}

// The regions of the query's largest coordinates, until they hold `count` lists: of coordinates in the same bin of a
// histogram all regions, so that it does not matter where in a region a list stands.
void Probe::scan_regions(const ListStore &store, int64_t count) {
    const Regions &regions = *store.regions;
    const int limit = near_axes(store, count);
    blocks.clear();
    for (const int32_t axis : places)
        if (axis_distances[axis] <= limit)
            regions.lists.for_each_block(Regions::side(axis, coordinates[axis]),
                                         [&](Block block) { blocks.push_back(block); });
    scan_blocks(store.size, regions.signs, centroid_distances);
    what = Scanned::regions;
    scanned.resize(blocks.size());
    for (size_t i = 0; i < blocks.size(); i++) scanned[i] = blocks[i].block;
}

// Puts some axes into `places`, and returns the distance up to which they hold `count` lists. First as many axes as
// would be enough if all regions held the same, since most are far.
int Probe::near_axes(const ListStore &store, int64_t count) {
    constexpr int FARTHEST = 255;
    const int32_t most = Regions::coordinates(code, store.width, coordinates);
    // A little less than 255, so that no product is more.
    const float factor = most > 0 ? 254.9f / static_cast<float>(most) : 0;
    axis_distances.resize(AXES);
    kernels::farness(coordinates.data(), AXES, factor, axis_distances.data());
    for (int64_t axes = AXES * count / store.n_lists * 4 + 1;; axes *= 4) {
        pick_nearest(axis_distances, AXES / BLOCK, std::min(axes, AXES), AXES / BLOCK);
        bins.assign(FARTHEST, 0);
        for (const int32_t axis : places)
            bins[axis_distances[axis]] += store.regions->lists.length[Regions::side(axis, coordinates[axis])];
        int limit = 0;
        int64_t so_far = bins[0];
        while (so_far < count && limit < FARTHEST - 1) so_far += bins[++limit];
        if (so_far >= count || axes >= AXES) return limit;
    }
}

// Puts about `count` lists whose centroids are compared by int8 codes into `places`, and prefetches these.
void Probe::pick_centroids(const ListStore &store, int64_t count) {
    const int64_t n = store.n_lists;
    places.clear();
    if (n > 2 * count) {
        const int64_t blocks_scanned = what == Scanned::all ? store.centroid_blocks() : static_cast<int64_t>(scanned.size());
        // Of regions all blocks: what a sample tells would depend on where in them lists stand.
        pick_nearest(centroid_distances, blocks_scanned, count, what == Scanned::regions ? blocks_scanned : SAMPLE);
        if (what != Scanned::all)
            for (auto &place : places) place = scanned_place(place);
        if (what == Scanned::regions) {
            const auto &members = store.regions->lists.members;
            for (const int32_t place : places) __builtin_prefetch(&members[place]);
            for (auto &place : places) place = members[place];
        }
    }
    if (places.empty()) {  // there are few, or all are as far as can be
        places.resize(n);
        std::iota(places.begin(), places.end(), 0);
    }
    prefetch_places(store.centroids, store.width);
    for (const int32_t list : places) __builtin_prefetch(&store.spreads[list]);
}

void Probe::score_picked(const ListStore &store) {
    score_places(store.centroids, store.width);
    picked.resize(places.size());
    for (size_t i = 0; i < places.size(); i++) picked[i] = {similarities[i], places[i]};
}

void Probe::rank_lists(const ListStore &store, int64_t count) {
    score_picked(store);
    keep_best(count);
    nearest.resize(places.size());
    for (size_t i = 0; i < places.size(); i++) nearest[i] = {similarities[i], places[i]};
    std::sort(nearest.begin(), nearest.end());
    if (static_cast<int64_t>(nearest.size()) > count) nearest.resize(count);
}

int32_t Probe::nearest_of(const ListStore &store, const std::vector<int32_t> &lists) {
    places = lists;
    prefetch_places(store.centroids, store.width);
    score_places(store.centroids, store.width);
    return places[std::max_element(similarities.begin(), similarities.end()) - similarities.begin()];
}

// Keeps the `count` best of what was scored, and those that fall into the same bin of a histogram as the last of them:
// so equal keys are kept or dropped together.
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
