#include "lists_find.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "lists_regions.h"
#include "parallel.h"

namespace {

// By more than their sign codes are compared: of centres at least so many, and one in so many; the same of keys; and where
// all keys are looked at.
constexpr int64_t SHORTLIST = 128, SHORTLIST_SHARE = 1024;
// By the whole of their sign codes are compared, where there are many: so many times as many, and those of their blocks.
constexpr int64_t WHOLE_MET = 2;
// A query that looks for few lists meets one in so many, by regions; one that looks farther, more in proportion.
constexpr int64_t FEW = 32, FEW_SHARE = 32;
// Where lists are met by regions, a query that looks for more lists than this reads only one in so many of the others: what it
// would miss is mostly in a region that it did not look into, and not in a farther list.
constexpr int64_t READ = 16;
constexpr int64_t SCORED = 512, SCORED_SHARE = 16;
constexpr int64_t ALL_SCORED = 4096;
constexpr int64_t SAMPLE = 64;        // blocks of distances that tell how near the nearest are
constexpr int64_t HALF_SAMPLE = 128;  // the same by half of their sign codes, of which fewer are wanted
constexpr int64_t SHARE = 8;          // queries that are worth a second thread
constexpr size_t AHEAD = 8;           // blocks of sign codes that are on their way

// Of what is read from beginning to end, the CPU by itself fetches what comes after the first lines.
void prefetch_start(const void *start, int64_t bytes) { prefetch(start, std::min<int64_t>(bytes, 256)); }

int64_t shortlist(const Lists &lists, int64_t count) {
    return std::max({4 * count, SHORTLIST, lists.counts[LISTS] / SHORTLIST_SHARE});
}

// About how near the nearest `wanted` of these distances are, by every step-th block: the least limit that lets enough of
// them in.
int limit_of(const uint8_t *distance, int64_t blocks, int64_t step, double wanted) {
    int limit = 0;
    for (int most = 254; limit < most;) {
        const int middle = (limit + most) / 2;
        if (static_cast<double>(kernels::count(distance, blocks, step, middle)) >= wanted)
            most = middle;
        else
            limit = middle + 1;
    }
    return limit;
}

// At least so many keys are read for the k best of them: of only k, all would be taken, near or not.
int64_t keys_for(int k) { return 2 * k; }

int8_t rounded(float x) { return static_cast<int8_t>(static_cast<int>(x + std::copysign(0.5f, x))); }

}  // namespace

float quantise(const float *x, int64_t n, int64_t width, int8_t *code) {
    int32_t most = 0, bits;  // as integers, the bits of positive floats are in the same order as these
    for (int64_t i = 0; i < n; i++) {
        std::memcpy(&bits, x + i, 4);
        most = std::max(most, bits & 0x7fffffff);
    }
    float largest;
    std::memcpy(&largest, &most, 4);
    const float factor = largest > 0 ? 127.0f / largest : 0;
    for (int64_t i = 0; i < n; i++) code[i] = rounded(x[i] * factor);
    std::memset(code + n, 0, width - n);
    return largest / 127.0f;
}

void quantise_rest(const float *x, int64_t n, int64_t width, const int8_t *code, float scale, int8_t *rest) {
    kernels::rest(x, n, code, scale > 0 ? 256 / scale : 0, rest);
    std::memset(rest + n, 0, width - n);
}

void Costs::set(const Lists &lists, const int8_t *code) {
    rotated.resize(std::max(lists.bits, 2 * lists.width));
    kernels::rotate(code, lists.width, lists.bits, rotated.data());
    int32_t total = 0;
    for (int64_t i = 0; i < lists.bits; i++) total += std::abs(rotated[i]);
    // A code that is neither near nor far costs half of the total; less must not be cut off at 255.
    const float factor = (lists.bits == 128 ? 240.0f : 400.0f) / static_cast<float>(std::max(total, 1));
    for (int64_t i = 0; i < lists.bits; i++)
        rotated[i] = std::min(std::max(static_cast<int32_t>(static_cast<float>(rotated[i]) * factor), -15), 15);
    // Which of the four bits are there, of each of 16 nibbles.
    static constexpr uint8_t THERE[4][16] = {{0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255},
                                             {0, 0, 255, 255, 0, 0, 255, 255, 0, 0, 255, 255, 0, 0, 255, 255},
                                             {0, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0, 255, 255, 255, 255},
                                             {0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255}};
    for (int64_t nibble = 0; nibble < lists.bits / 4; nibble++) {
        uint8_t x[4], none = 0, here[16];
        for (int i = 0; i < 4; i++) {
            x[i] = static_cast<uint8_t>(rotated[4 * nibble + i]);
            none += static_cast<uint8_t>(std::max(rotated[4 * nibble + i], 0));
        }
        // A bit is 1 where the code's number is positive: without any, all positive numbers are paid for; one that is there
        // takes that back, or is to be paid for.
        for (int bits = 0; bits < 16; bits++)
            here[bits] = static_cast<uint8_t>(none - (x[0] & THERE[0][bits]) - (x[1] & THERE[1][bits]) -
                                              (x[2] & THERE[2][bits]) - (x[3] & THERE[3][bits]));
        std::memcpy(costs + 16 * nibble, here, 16);
    }
}

void Finder::ask(const Lists &lists, const float *vector, int64_t excluded) {
    own_code.resize(lists.width);
    own_rest.resize(lists.width);
    exclude = excluded;
    const float its_scale = quantise(vector, lists.key_size, lists.width, own_code.data());
    quantise_rest(vector, lists.key_size, lists.width, own_code.data(), its_scale, own_rest.data());
    whole.resize(lists.width);
    for (int64_t i = 0; i < lists.width; i++) whole[i] = static_cast<int16_t>(256 * own_code[i] + own_rest[i]);
    ask(own_code.data(), its_scale);
}

void Finder::ask(const int8_t *of, float its_scale) {
    code = of;
    scale = its_scale;
}

void Finder::meet_centres(const Lists &lists, Finder *asked, int n, int64_t count, int64_t probes) {
    for (int i = 0; i < n; i++) asked[i].costs.set(lists, asked[i].code);
    meet(lists, asked, n, count, probes);
    for (int i = 0; i < n; i++) asked[i].pick_centres(lists, count);
}

void Finder::meet(const Lists &lists, Finder *asked, int n, int64_t count, int64_t probes) {
    if (!are_many(lists)) return meet_all(lists, asked, n);
    const int64_t centres = lists.counts[LISTS], least = shortlist(lists, count);
    const int64_t in_regions = std::max(least, centres * std::max(probes, FEW) / (FEW * FEW_SHARE));
    if (in_regions > centres / 2) return meet_near_blocks(lists, asked, n, WHOLE_MET * least);
    for (int i = 0; i < n; i++) asked[i].meet_regions(lists, in_regions);
}

void Finder::meet_all(const Lists &lists, Finder *asked, int n) {
    const int64_t centres = lists.counts[LISTS], blocks = (centres + BLOCK - 1) / BLOCK;
    const uint8_t *costs[TILE];
    uint8_t *out[TILE];
    for (int i = 0; i < n; i++) {
        asked[i].what = Met::all;
        asked[i].to_centres.resize(blocks * BLOCK);
        costs[i] = asked[i].costs.costs;
        out[i] = asked[i].to_centres.data();
    }
    kernels::distances(costs, n, lists.centres.signs, blocks, lists.bits / 4, out);
    for (int i = 0; i < n; i++) std::fill(out[i] + centres, out[i] + blocks * BLOCK, 255);
}

// All by half of their codes; by the whole of them only blocks that hold some of those that are nearest so.
void Finder::meet_near_blocks(const Lists &lists, Finder *asked, int n, int64_t wanted) {
    const int64_t centres = lists.counts[LISTS], blocks = (centres + BLOCK - 1) / BLOCK;
    if (blocks < 2) return meet_all(lists, asked, n);
    const int64_t nibbles = lists.bits / 4, bytes = BLOCK * lists.bits / 8;
    const uint8_t *costs[TILE];
    uint8_t *out[TILE];
    for (int i = 0; i < n; i++) {
        asked[i].what = Met::blocks;
        asked[i].to_centres.resize(blocks * BLOCK);
        costs[i] = asked[i].costs.costs;
        out[i] = asked[i].to_centres.data();
    }
    // How near the nearest are by half of their codes, by a sample of all blocks but the last, which may not be full.
    const int64_t step = std::max<int64_t>(blocks / HALF_SAMPLE, 1), sampled = (blocks - 2) / step + 1;
    for (int64_t sample = 0; sample < sampled; sample++) {
        uint8_t *here[TILE];
        for (int i = 0; i < n; i++) here[i] = out[i] + sample * BLOCK;
        kernels::distances(costs, n, lists.centres.signs + sample * step * bytes, 1, nibbles / 2, here);
    }
    uint8_t limits[TILE];
    int32_t *kept[TILE];
    int64_t found[TILE] = {};
    for (int i = 0; i < n; i++) {
        limits[i] = static_cast<uint8_t>(
            limit_of(out[i], sampled, 1, static_cast<double>(wanted) * static_cast<double>(sampled) / static_cast<double>(blocks)));
        asked[i].met.resize(blocks + 1);
        kept[i] = asked[i].met.data();
    }
    kernels::near_groups(costs, n, lists.centres.signs, blocks, nibbles, limits, kept, found);
    for (int i = 0; i < n; i++) {
        asked[i].met.resize(found[i]);
        for (int64_t j = 0; j < found[i]; j++, out[i] += BLOCK) {
            const auto ahead = j + static_cast<int64_t>(AHEAD);
            if (ahead < found[i]) prefetch(lists.centres.signs + kept[i][ahead] * bytes, bytes);
            kernels::distances(&costs[i], 1, lists.centres.signs + kept[i][j] * bytes, 1, nibbles, &out[i]);
        }
        if (found[i] > 0 && kept[i][found[i] - 1] == blocks - 1) std::fill(out[i] - (blocks * BLOCK - centres), out[i], 255);
    }
}

// The regions that the query goes farthest towards, until they hold as many lists as wanted: of those that it goes equally
// far towards, to a bin of a histogram, all, so that it does not matter where in a region a list stands.
void Finder::meet_regions(const Lists &lists, int64_t wanted) {
    const Regions &of = lists.regions;
    const int limit = near_axes(lists, wanted);
    pieces.clear();
    for (const int32_t axis : places) {
        if (to_axes[axis] > limit) continue;
        const int32_t region = regions::side(axis, along[axis]);
        int rows = (of.length[region] - 1) % BLOCK + 1;
        for (int32_t block = of.head[region]; block >= 0; block = of.next[block], rows = BLOCK) pieces.push_back({block, rows});
    }
    meet_pieces(lists, of.signs, to_centres);
    what = Met::regions;
    met.resize(pieces.size());
    for (size_t i = 0; i < pieces.size(); i++) met[i] = pieces[i].block;
}

// Puts into `places` some axes, and returns how near of these are to be taken. So many axes as would be enough if all regions
// held the same are looked at first, since most are far away.
int Finder::near_axes(const Lists &lists, int64_t wanted) {
    constexpr int FARTHEST = 255;
    const int32_t most = regions::along_axes(lists, code, along);
    // A little less than 255, so that no product is more.
    const float factor = most > 0 ? 254.9f / static_cast<float>(most) : 0;
    to_axes.resize(AXES);
    kernels::farness(along.data(), AXES, factor, to_axes.data());
    for (int64_t axes = AXES * wanted / lists.counts[LISTS] * 4 + 1;; axes *= 4) {
        nearest_codes(to_axes.data(), AXES / BLOCK, std::min(axes, AXES), AXES / BLOCK);
        bins.assign(FARTHEST, 0);
        for (const int32_t axis : places) bins[to_axes[axis]] += lists.regions.length[regions::side(axis, along[axis])];
        int limit = 0;
        int64_t so_far = bins[0];
        while (so_far < wanted && limit < FARTHEST - 1) so_far += bins[++limit];
        if (so_far >= wanted || axes >= AXES) return limit;
    }
}

// Puts into `places` the lists whose centres are to be scored, to find the `count` nearest. They are on their way then.
void Finder::pick_centres(const Lists &lists, int64_t count) {
    const int64_t n = lists.counts[LISTS], wanted = shortlist(lists, count);
    places.clear();
    if (n > 2 * wanted) {
        const int64_t blocks = what == Met::all ? (n + BLOCK - 1) / BLOCK : static_cast<int64_t>(met.size());
        // Of regions all blocks: what a sample says would depend on where in them lists stand.
        nearest_codes(to_centres.data(), blocks, wanted, what == Met::regions ? blocks : SAMPLE);
        if (what == Met::regions)
            for (const int32_t place : places) __builtin_prefetch(lists.regions.members + met_place(place));
        if (what != Met::all)
            for (auto &place : places) place = what == Met::blocks ? met_place(place) : lists.regions.members[met_place(place)];
    }
    if (places.empty()) {  // there are few, or all are as far as can be
        places.resize(n);
        std::iota(places.begin(), places.end(), 0);
    }
    prefetch_places(lists, lists.centres);
}

void Finder::nearest_lists(const Lists &lists, int64_t count) {
    score_places(lists, lists.centres);
    choose(count);
    order.resize(places.size());
    for (size_t i = 0; i < places.size(); i++) order[i] = {similarities[i], places[i]};
    std::sort(order.begin(), order.end());
    if (static_cast<int64_t>(order.size()) > count) order.resize(count);
}

int32_t Finder::nearest_of(const Lists &lists, const std::vector<int32_t> &some) {
    places = some;
    prefetch_places(lists, lists.centres);
    score_places(lists, lists.centres);
    return places[std::max_element(similarities.begin(), similarities.end()) - similarities.begin()];
}

int64_t Finder::lists_read(const Lists &lists, int64_t probes) {
    return are_many(lists) ? std::min(probes, READ + probes / READ) : probes;
}

// The least number of lists to look for, of which so many are read.
int64_t Finder::probes_for(const Lists &lists, int64_t read) {
    return are_many(lists) && read > READ ? std::max(read, (read - READ) * READ) : read;
}

// Some more than the average list would ask for.
int64_t Finder::lists_for(const Lists &lists, int k, int64_t probes) {
    return std::max<int64_t>(lists_read(lists, probes), 2 * keys_for(k) * lists.counts[LISTS] / std::max(lists.counts[FILLED], 1) + 1);
}

void Finder::find(const Lists &lists, int k, int64_t probes) {
    const int64_t n = lists.counts[LISTS], least = lists_read(lists, probes);
    int64_t ranks = 0;
    for (int64_t count = lists_for(lists, k, probes);; count = n) {
        nearest_lists(lists, count);
        const auto found = static_cast<int64_t>(order.size());
        for (const auto &list : order) {
            __builtin_prefetch(lists.length + list.id);
            __builtin_prefetch(lists.head + list.id);
        }
        for (held = ranks = 0; ranks < found && (ranks < least || held < keys_for(k)); ranks++)
            held += lists.length[order[ranks].id];
        if (held >= k || count >= n) break;
        pick_centres(lists, n);  // these are not enough
    }
    collect(lists, ranks);
    all_whole = held <= 2 * keys_for(k);
    wanted = std::max<int64_t>({2 * k, SCORED, held / SCORED_SHARE});
    // What is read first is on its way from now on, for all queries of a thread.
    for (const auto &[block, rows] : pieces) {
        const int64_t first = static_cast<int64_t>(block) * BLOCK;
        if (are_few()) {
            prefetch_start(lists.at.codes + first * lists.width, rows * lists.width);
            prefetch(lists.at.scales + first, rows * sizeof(float));
            if (!all_whole) continue;
            prefetch_start(lists.rests + first * lists.width, rows * lists.width);
            prefetch(lists.slots + first, rows * sizeof(int32_t));
            prefetch(lists.held + first, rows * sizeof(int64_t));
        } else {
            prefetch(lists.at.signs + first * lists.bits / 8, BLOCK * lists.bits / 8);
        }
    }
}

Ranking &Finder::read(const Lists &lists, int k) {
    if (all_whole && exclude < 0) {
        take_all();
        rank_pieces(lists);
        return ranking;
    }
    score_keys(lists);
    drop_excluded(lists);
    choose(k);
    for (const int32_t place : places) {
        prefetch(lists.rests + place * lists.width, lists.width);
        __builtin_prefetch(lists.slots + place);
        __builtin_prefetch(lists.held + place);
    }
    const float unit = whole_dots(lists);
    const auto n = static_cast<int64_t>(places.size());
    ranking.resize(n);
    for (int64_t i = 0; i < n; i++) {
        ranking.similarities[i] = static_cast<float>(dots[i]) * (lists.at.scales[places[i]] * unit);
        ranking.slots[i] = lists.slots[places[i]];
        ranking.values[i] = lists.held[places[i]];
    }
    return ranking;
}

// Scores all that is in `pieces`, and in `places`, by codes and rests: what belongs to it stands in rows.
void Finder::rank_pieces(const Lists &lists) {
    const float unit = whole_dots(lists);
    ranking.resize(held);
    int64_t start = 0;
    for (const auto &[block, rows] : pieces) {
        const int64_t first = static_cast<int64_t>(block) * BLOCK;
        kernels::scale(&dots[start], lists.at.scales + first, unit, rows, &ranking.similarities[start]);
        std::copy_n(lists.slots + first, rows, &ranking.slots[start]);
        std::copy_n(lists.held + first, rows, &ranking.values[start]);
        start += rows;
    }
}

// Keeps the `count` best of what was scored, and those that are as good as the last of them, to a bin of a histogram.
void Finder::choose(int64_t count) {
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
    for (int64_t i = 0; i < n; i++) {  // without branches: which way they go is a matter of chance
        places[kept] = places[i];
        similarities[kept] = similarities[i];
        kept += below(room[i]) >> shift <= last;
    }
    places.resize(kept);
    similarities.resize(kept);
}

// Multiplies the query with what is in `places`, by codes and rests, into `dots`; returns of what these are so many, but for the
// scale of each place.
float Finder::whole_dots(const Lists &lists) {
    const auto n = static_cast<int64_t>(places.size());
    int shift = 0;
    while (int64_t{2} << shift < lists.width) shift++;
    dots.resize(n + 3);
    kernels::whole_dots(whole.data(), lists.at.codes, lists.rests, places.data(), n, lists.width, shift, dots.data());
    return scale * static_cast<float>(1 << shift) / 65536;
}

int Finder::rank(const Lists &lists) {
    constexpr int64_t FIRST = 8;
    meet_centres(lists, this, 1, FIRST, FIRST);
    held = 0;
    pieces.clear();
    for (int32_t block = 0; block < lists.counts[BLOCKS]; block++) {
        const int32_t list = lists.owner[block];
        if (list < 0) continue;
        pieces.push_back({block, lists.head[list] == block ? (lists.length[list] - 1) % BLOCK + 1 : BLOCK});
        held += pieces.back().rows;
    }
    wanted = ALL_SCORED;
    score_keys(lists);
    drop_excluded(lists);
    if (places.empty()) return 0;
    const auto nearest = std::max_element(similarities.begin(), similarities.end()) - similarities.begin();
    const int32_t list = lists.owner[places[nearest] / BLOCK];
    // As a search would go about it that looks for so many lists: what it misses is as if it were just beyond.
    const int64_t n = lists.counts[LISTS];
    int64_t missed = 0;
    for (int64_t probes = FIRST;; missed = probes, probes *= 2) {
        const int64_t count = std::min(lists_read(lists, probes), n);
        meet_centres(lists, this, 1, count, probes);
        nearest_lists(lists, count);
        for (int64_t i = 0; i < static_cast<int64_t>(order.size()); i++)
            if (order[i].id == list) return static_cast<int>(std::max(probes_for(lists, i + 1), missed + 1));
        if (probes >= n) return static_cast<int>(n);
    }
}

// Makes the lists that come first in the order the next to be read.
void Finder::collect(const Lists &lists, int64_t ranks) {
    pieces.clear();
    for (int64_t rank = 0; rank < ranks; rank++) {
        const int32_t list = order[rank].id;
        int left = lists.length[list];
        for (int32_t block = lists.head[list]; left > 0; block = lists.next[block]) {
            pieces.push_back({block, (left - 1) % BLOCK + 1});
            left -= pieces.back().rows;
        }
    }
}

// Compares the sign codes of what is in `pieces`.
void Finder::meet_pieces(const Lists &lists, const uint8_t *signs, std::vector<uint8_t> &distances) {
    const int64_t bytes = BLOCK * lists.bits / 8;
    distances.resize(pieces.size() * BLOCK);
    const uint8_t *const own_costs = costs.costs;
    for (size_t i = 0; i < pieces.size(); i++) {
        if (i + AHEAD < pieces.size()) prefetch(signs + pieces[i + AHEAD].block * bytes, bytes);
        uint8_t *here = &distances[i * BLOCK];
        kernels::distances(&own_costs, 1, signs + pieces[i].block * bytes, 1, lists.bits / 4, &here);
        std::fill(here + pieces[i].rows, here + BLOCK, 255);
    }
}

// Scores the keys in `pieces` by their codes: all, or of many only about as many as wanted, those with the nearest sign
// codes.
void Finder::score_keys(const Lists &lists) {
    if (are_few()) return score_all(lists);
    meet_pieces(lists, lists.at.signs, to_keys);
    nearest_codes(to_keys.data(), static_cast<int64_t>(pieces.size()), wanted, SAMPLE);
    for (auto &place : places) place = pieces[place / BLOCK].block * BLOCK + place % BLOCK;
    prefetch_places(lists, lists.at);
    score_places(lists, lists.at);
}

// Puts all that is in `pieces` into `places`.
void Finder::take_all() {
    places.resize(held);
    int32_t *next = places.data();
    for (const auto &[block, rows] : pieces) {
        std::iota(next, next + rows, block * BLOCK);
        next += rows;
    }
}

void Finder::score_all(const Lists &lists) {
    const int64_t width = lists.width;
    take_all();
    similarities.resize(held);
    dots.resize(BLOCK + 3);
    int64_t start = 0;
    for (const auto &[block, rows] : pieces) {
        const int64_t place = static_cast<int64_t>(block) * BLOCK;
        kernels::dots(code, lists.at.codes + place * width, nullptr, rows, width, dots.data());
        kernels::scale(dots.data(), lists.at.scales + place, scale, rows, &similarities[start]);
        start += rows;
    }
}

// Puts into `places` which of these distances, of whole blocks, are the least: about as many as wanted, as a sample of so
// many blocks tells, but none of 255.
void Finder::nearest_codes(const uint8_t *distance, int64_t blocks, int64_t wanted, int64_t sample) {
    const int64_t n = blocks * BLOCK, step = std::max<int64_t>(blocks / std::max<int64_t>(sample, 1), 1);
    const int64_t sampled = (blocks + step - 1) / step;
    const double share = static_cast<double>(sampled) / static_cast<double>(std::max<int64_t>(blocks, 1));
    const int limit = limit_of(distance, blocks, step, static_cast<double>(wanted) * share);
    if (static_cast<int64_t>(room.size()) < n + 2) room.resize(n + 2);
    places.assign(room.begin(), room.begin() + kernels::within(distance, n, limit, room.data()));
}

// What is in `places`, for score_places: of codes the first, since the next follow while these are read.
void Finder::prefetch_places(const Lists &lists, const Codes &at) const {
    const auto first = std::min<int64_t>(kernels::ROWS_AHEAD, static_cast<int64_t>(places.size()));
    for (int64_t i = 0; i < first; i++) prefetch(at.codes + places[i] * lists.width, lists.width);
    for (const int32_t place : places) __builtin_prefetch(at.scales + place);
}

// Scores what is in `places`.
void Finder::score_places(const Lists &lists, const Codes &at) {
    const auto n = static_cast<int64_t>(places.size());
    dots.resize(n + 3);
    similarities.resize(n);
    kernels::dots(code, at.codes, places.data(), n, lists.width, dots.data());
    for (int64_t i = 0; i < n; i++) similarities[i] = static_cast<float>(dots[i]) * (at.scales[places[i]] * scale);
}

// Drops what is of the excluded source.
void Finder::drop_excluded(const Lists &lists) {
    if (exclude < 0) return;
    size_t kept = 0;
    for (size_t i = 0; i < places.size(); i++) {
        if (lists.sources[lists.slots[places[i]]] == exclude) continue;
        similarities[kept] = similarities[i];
        places[kept++] = places[i];
    }
    similarities.resize(kept);
    places.resize(kept);
}

std::vector<Finder> &finders(int threads) {
    thread_local std::vector<Finder> all;
    if (static_cast<int>(all.size()) < threads * TILE) all.resize(threads * TILE);
    return all;
}

void lists_recall(const Lists &lists, const float *queries, int64_t n, const int64_t *exclude, int probes,
                  float inverse_temperature, int threads, int32_t *near, const Neighbours &neighbours) {
    const int k = static_cast<int>(neighbours.k);
    const int64_t count = Finder::lists_for(lists, k, probes);
    threads = n >= SHARE ? threads : 1;
    auto &all = finders(threads);
    parallel((n + TILE - 1) / TILE, threads, [&](int64_t tile, int thread) {
        Finder *own = &all[thread * TILE];
        const int64_t first = tile * TILE;
        const int here = static_cast<int>(std::min<int64_t>(n - first, TILE));
        for (int i = 0; i < here; i++)
            own[i].ask(lists, queries + (first + i) * lists.key_size, exclude ? exclude[first + i] : -1);
        Finder::meet_centres(lists, own, here, count, probes);
        for (int i = 0; i < here; i++) {
            own[i].find(lists, k, probes);
            for (int j = 0; near && j < NEAR; j++)
                near[NEAR * (first + i) + j] = own[i].order[std::min<size_t>(j, own[i].order.size() - 1)].id;
        }
        for (int i = 0; i < here; i++)
            neighbours.set(first + i, own[i].read(lists, k), inverse_temperature);
    });
}
