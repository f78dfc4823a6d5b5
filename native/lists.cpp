#include "lists.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "lists_kernels.h"
#include "parallel.h"

namespace {

constexpr int SHORTEST = 24;       // a list of fewer keys is given up; AutoSearch makes room for capacity / SHORTEST lists
constexpr int LONGEST = 128;       // a list of more keys is cut in two: at 500 000 keys, and at more the more
constexpr int64_t SHORTLIST = 64;  // the least number of centres that are compared by more than their sign codes
constexpr int64_t SHORTLIST_SHARE = 128;  // and of many centres this share
constexpr int STEADY = 8, GROWTH = 16;  // one key in 8 that change looks after another; one that is new, after two more
constexpr int ROUNDS = 4;          // of 2-means when a list is cut
constexpr int BINS = 1024;         // of the histogram that finds the k best
constexpr int64_t SAMPLE = 512;    // lists that tell how near the nearest are
constexpr int64_t SHARE = 8;       // queries or keys that are worth a second thread
constexpr float WEIGHT = 127 * 255.0f;

// With lists of the root of the number of keys, centres and lists cost a query alike.
int longest(int64_t filled) { return std::max(LONGEST, static_cast<int>(0.128f * std::sqrt(static_cast<float>(filled)))); }

int8_t rounded(float x) { return static_cast<int8_t>(static_cast<int>(x + (x < 0 ? -0.5f : 0.5f))); }

// Codes of the vector x of n numbers: x = code * scale, all of them in [-127, 127].
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

// The same of an integer vector, normalised to length 1.
float quantise_normalised(const int32_t *sum, int64_t width, int8_t *code) {
    int32_t most = 0;
    int64_t square = 0;
    for (int64_t i = 0; i < width; i++) {
        most = std::max(most, std::abs(sum[i]));
        square += static_cast<int64_t>(sum[i]) * sum[i];
    }
    const float factor = most > 0 ? 127.0f / static_cast<float>(most) : 0;
    for (int64_t i = 0; i < width; i++) code[i] = rounded(static_cast<float>(sum[i]) * factor);
    return most > 0 ? static_cast<float>(most / 127.0 / std::sqrt(static_cast<double>(square))) : 0;
}

// Sums are of codes times this, so that every key has about the same weight in them, and all is exact.
int32_t weight(float scale) { return static_cast<int32_t>(std::min(scale * WEIGHT, 255.0f) + 0.5f); }

// What a query pays for each nibble of a sign code: the numbers of its rotated code at the signs that differ.
struct Costs {
    std::vector<int32_t> rotated;
    std::vector<uint8_t> costs;  // (bits / 4, 16)

    void set(const Lists &lists, const int8_t *code) {
        rotated.resize(std::max(lists.bits, 2 * lists.width));
        costs.resize(lists.bits * 4);
        kernels::rotate(code, lists.width, lists.bits, rotated.data());
        int64_t total = 0;
        for (int64_t i = 0; i < lists.bits; i++) total += std::abs(rotated[i]);
        // A centre that is neither near nor far costs half of the total; less must not be cut off at 255.
        const float factor = (lists.bits == 128 ? 240.0f : 400.0f) / static_cast<float>(std::max<int64_t>(total, 1));
        for (int64_t i = 0; i < lists.bits; i++)
            rotated[i] = static_cast<int32_t>(std::min(std::max(static_cast<float>(rotated[i]) * factor, -15.0f), 15.0f));
        for (int64_t nibble = 0; nibble < lists.bits / 4; nibble++) {
            const int32_t *x = &rotated[4 * nibble];
            // Of its lower and its upper two bits; a bit is 1 where the centre's number is positive.
            uint8_t pairs[2][4];
            for (int half = 0; half < 2; half++)
                for (int bits = 0; bits < 4; bits++)
                    pairs[half][bits] = static_cast<uint8_t>(std::max(bits & 1 ? -x[2 * half] : x[2 * half], 0) +
                                                             std::max(bits & 2 ? -x[2 * half + 1] : x[2 * half + 1], 0));
            for (int bits = 0; bits < 16; bits++) costs[16 * nibble + bits] = pairs[0][bits & 3] + pairs[1][bits >> 2];
        }
    }
};

struct Query {
    const float *vector;
    int64_t exclude;
    std::vector<int8_t> code;
    Costs costs;
    float scale;

    void set(const Lists &lists, const float *from, int64_t excluded) {
        vector = from;
        exclude = excluded;
        code.resize(lists.width);
        scale = quantise(vector, lists.key_size, lists.width, code.data());
        costs.set(lists, code.data());
    }
};

struct Scored {
    float similarity;
    int32_t id;
    bool operator<(const Scored &other) const {  // the nearest first; of equal ones, the lowest
        return similarity != other.similarity ? similarity > other.similarity : id < other.id;
    }
};

// Reads lists, changes nothing; one for each thread, for its room to be used again, in cache lines of its own.
class alignas(128) Finder {
public:
    Query query;
    std::vector<Scored> order;  // the nearest lists, in order

    void nearest_lists(const Lists &lists, const int8_t *code, float scale, const Costs &costs, int64_t count) {
        const int64_t n = lists.counts[LISTS], wanted = std::max({4 * count, SHORTLIST, n / SHORTLIST_SHARE});
        ids.resize(n);
        int64_t found = n;
        if (n > wanted) {
            const int64_t groups = (n + kernels::GROUP - 1) / kernels::GROUP;
            distance.resize(groups * kernels::GROUP);
            kernels::distances(costs.costs.data(), lists.signs, groups, lists.bits / 4, distance.data());
            // About how near the wanted number of lists is, by a sample of them.
            const int64_t step = std::max<int64_t>(n / SAMPLE, 1);
            bins.assign(256, 0);
            for (int64_t i = 0; i < n; i += step) bins[distance[i]]++;
            int limit = 0;
            for (int64_t nearer = bins[0]; nearer * step < wanted && limit < 255; nearer += bins[limit]) limit++;
            found = kernels::within(distance.data(), n, limit, ids.data());
        } else {
            std::iota(ids.begin(), ids.end(), 0);
        }
        for (int64_t i = 0; i < found; i++) {
            for (int64_t j = 0; j < lists.width; j += 64) __builtin_prefetch(lists.centres + ids[i] * lists.width + j);
            __builtin_prefetch(lists.centre_scales + ids[i]);
        }
        dots.resize(found + 3);
        kernels::dots(code, lists.centres, ids.data(), found, lists.width, dots.data());
        order.resize(found);
        int64_t best = 0;
        for (int64_t i = 0; i < found; i++) {
            order[i] = {static_cast<float>(dots[i]) * (lists.centre_scales[ids[i]] * scale), ids[i]};
            best = order[i].similarity > order[best].similarity ? i : best;
        }
        std::swap(order[0], order[best]);
        if (count == 1) return order.resize(1);
        count = std::min(count, found);
        std::partial_sort(order.begin(), order.begin() + count, order.end());
        order.resize(count);
    }

    // Reads the `probes` nearest lists, and more of them until they held k keys.
    void read(const Lists &lists, int k, int64_t probes) {
        const int64_t n = lists.counts[LISTS];
        best = -2;
        best_rank = 0;
        slots.clear();
        similarities.clear();
        // Some more than the average list would ask for; where these are not enough, all.
        for (int64_t count = std::max(probes, 2 * k * n / std::max(lists.counts[FILLED], 1) + 1); ; count = n) {
            size_t rank = slots.empty() ? 0 : order.size();  // those read already stay the first
            nearest_lists(lists, query.code.data(), query.scale, query.costs, count);
            for (const auto &list : order) {
                __builtin_prefetch(lists.head + list.id);
                __builtin_prefetch(lists.length + list.id);
            }
            auto wanted = [&](size_t r) { return static_cast<int64_t>(r) < probes || static_cast<int64_t>(slots.size()) < k; };
            for (; rank < order.size() && wanted(rank); rank++) {
                if (rank + 1 < order.size() && wanted(rank + 1)) prefetch(lists, lists.head[order[rank + 1].id]);
                read_list(lists, static_cast<int>(rank));
            }
            if (static_cast<int64_t>(slots.size()) >= k || static_cast<int64_t>(order.size()) == n) return;
        }
    }

    // The k best of what was read, by their keys where their codes cannot tell; returns how many there are.
    int choose(const Lists &lists, int k, int64_t *out) {
        if (query.exclude >= 0) drop_excluded(lists, query.exclude);
        const int n = static_cast<int>(slots.size());
        if (n <= k) {
            std::copy(slots.begin(), slots.end(), out);
            return n;
        }
        // A histogram from 1 down to -1; most keys are in few of its bins.
        constexpr float step = 2.2f / BINS, least = -1.1f;
        bins.assign(BINS, 0);
        for (const float s : similarities) bins[bin_of(s)]++;
        int bin = BINS - 1, above = 0;
        while (above + bins[bin] < k) above += bins[bin--];
        // Three standard deviations of what the rounding of two codes does to their product.
        const float error = 1.2f * query.scale;
        const float sure = least + static_cast<float>(bin + 1) * step + error, possible = least + static_cast<float>(bin) * step - error;
        int found = 0, unsure = 0;
        order.resize(n);
        for (int i = 0; i < n && found < k; i++) {  // without branches: which way they go is a matter of chance
            out[found] = slots[i];
            order[unsure] = {0, slots[i]};
            const bool is_sure = similarities[i] > sure;
            found += is_sure;
            unsure += !is_sure && similarities[i] >= possible;
        }
        order.resize(unsure);
        for (const auto &key : order)
            for (int64_t i = 0; i < lists.key_size; i += 16) __builtin_prefetch(lists.keys + key.id * lists.key_size + i);
        for (auto &key : order) key.similarity = kernels::similarity(query.vector, lists.keys + key.id * lists.key_size, lists.key_size);
        std::nth_element(order.begin(), order.begin() + (k - found), order.end());
        for (int i = 0; found < k; i++) out[found++] = order[i].id;
        return k;
    }

    int rank() const { return best_rank; }

private:
    std::vector<uint8_t> distance;
    std::vector<int32_t> bins, dots, ids;
    std::vector<float> similarities;
    std::vector<int32_t> slots;
    float best;
    int best_rank;

    static int bin_of(float similarity) {
        return std::clamp(static_cast<int>((similarity + 1.1f) * (BINS / 2.2f)), 0, BINS - 1);
    }

    static void prefetch(const Lists &lists, int32_t block) {
        const int8_t *codes = lists.codes + block * BLOCK * lists.width;
        for (int64_t i = 0; i < BLOCK * lists.width; i += 64) __builtin_prefetch(codes + i);
        __builtin_prefetch(lists.scales + block * BLOCK);
        __builtin_prefetch(lists.scales + block * BLOCK + 16);
        __builtin_prefetch(lists.slots + block * BLOCK);
        __builtin_prefetch(lists.slots + block * BLOCK + 16);
    }

    void read_list(const Lists &lists, int rank) {
        const int32_t list = order[rank].id;
        int left = lists.length[list];
        size_t start = slots.size();
        similarities.resize(start + left);
        slots.resize(start + left);
        dots.resize(BLOCK + 3);
        for (int32_t block = lists.head[list]; left > 0; block = lists.next[block]) {
            const int here = (left - 1) % BLOCK + 1;
            const int64_t place = static_cast<int64_t>(block) * BLOCK;
            if (lists.next[block] >= 0) prefetch(lists, lists.next[block]);
            kernels::dots(query.code.data(), lists.codes + place * lists.width, nullptr, here, lists.width, dots.data());
            const float most = kernels::scale(dots.data(), lists.scales + place, query.scale, here, &similarities[start]);
            std::memcpy(&slots[start], lists.slots + place, here * sizeof(int32_t));
            for (int i = 0; i < here && most > best; i++) {
                if (similarities[start + i] <= best) continue;
                if (query.exclude >= 0 && lists.sources[slots[start + i]] == query.exclude) continue;
                best = similarities[start + i];
                best_rank = rank + 1;
            }
            start += here;
            left -= here;
        }
    }

    void drop_excluded(const Lists &lists, int64_t source) {
        size_t kept = 0;
        for (size_t i = 0; i < slots.size(); i++) {
            if (lists.sources[slots[i]] == source) continue;
            similarities[kept] = similarities[i];
            slots[kept++] = slots[i];
        }
        similarities.resize(kept);
        slots.resize(kept);
    }
};

// One for each of the threads that this one starts, and for itself. They are this thread's own, so that theirs need not
// ask for memory each time.
std::vector<Finder> &finders(int threads) {
    thread_local std::vector<Finder> all;
    if (static_cast<int>(all.size()) < threads) all.resize(threads);
    return all;
}

// Keys on their way from one list to another.
struct Keys {
    std::vector<int8_t> codes;
    std::vector<float> scales;
    std::vector<int32_t> slots;

    void resize(int64_t n, int64_t width) {
        codes.resize(n * width);
        scales.resize(n);
        slots.resize(n);
    }
};

class Changer {
public:
    Changer(const Lists &from, int most_threads)
        : lists(from), width(from.width), counts(from.counts), threads(most_threads), all(finders(threads)), own(all[0]) {}

    void change(const int64_t *changed, int64_t n) {
        int64_t before = counts[FILLED];
        for (int64_t i = 0; i < n; i++) remove(static_cast<int32_t>(changed[i]));
        give_up_short_lists();
        // A small memory grows in small parts, so that no key meets lists that are much out of date.
        for (int64_t start = 0, part; start < n; start += part) {
            part = std::min<int64_t>(n - start, std::clamp(counts[FILLED] / 8, 32, 4096));
            moving.clear();
            for (int64_t i = start; i < start + part; i++)
                if (lists.values[changed[i]] >= 0) moving.push_back(static_cast<int32_t>(changed[i]));
            keys.resize(moving.size(), width);
            join([&](int64_t i) {
                const float *key = lists.keys + moving[i] * lists.key_size;
                keys.scales[i] = quantise(key, lists.key_size, width, &keys.codes[i * width]);
            });
            // Centres move most while the memory grows.
            const int64_t grown = std::max<int64_t>(counts[FILLED] - before, 0);
            before += grown;
            counts[UNTENDED] += static_cast<int32_t>(GROWTH * grown + part);
            tend(counts[UNTENDED] / STEADY);
            counts[UNTENDED] %= STEADY;
            give_up_short_lists();
        }
    }

    void restore() {
        const int64_t parts = (lists.capacity + 4095) / 4096;
        parallel(parts, threads, [&](int64_t part, int) {
            for (int64_t slot = part * 4096; slot < std::min((part + 1) * 4096, lists.capacity); slot++) {
                const int64_t place = lists.places[slot];
                if (place < 0) continue;
                lists.slots[place] = static_cast<int32_t>(slot);
                lists.scales[place] = quantise(lists.keys + slot * lists.key_size, lists.key_size, width, code_at(place));
            }
        });
        // Lists whose sign codes stand together share bytes, and so a thread.
        const int64_t n = counts[LISTS];
        parallel((n + kernels::GROUP - 1) / kernels::GROUP, threads, [&](int64_t group, int thread) {
            for (int64_t list = group * kernels::GROUP; list < std::min(n, (group + 1) * kernels::GROUP); list++) {
                sum_up(list);
                refresh(all[thread], static_cast<int32_t>(list));
            }
        });
    }

private:
    Lists lists;
    const int64_t width;
    int32_t *const counts;
    const int threads;
    std::vector<Finder> &all;
    Finder &own;  // this thread's
    std::vector<int32_t> shortened;
    // Slots that look for a list, their codes, and what they find.
    std::vector<int32_t> moving, nearest;
    Keys keys;
    std::vector<bool> cut;

    // Each of `moving` finds its list, all in parallel, as the lists are now; then each joins it, if it is not there.
    template <typename Load>
    void join(const Load &load) {
        const auto n = static_cast<int64_t>(moving.size());
        nearest.resize(n);
        parallel((n + SHARE - 1) / SHARE, threads, [&](int64_t task, int thread) {
            for (int64_t i = task * SHARE; i < std::min(n, (task + 1) * SHARE); i++) {
                load(i);
                nearest[i] = nearest_list(all[thread], &keys.codes[i * width], keys.scales[i], list_of(moving[i]));
            }
        });
        cut.assign(counts[LISTS] + 1, false);
        for (int64_t i = 0; i < n; i++) {
            const int8_t *code = &keys.codes[i * width];
            const int32_t now = list_of(moving[i]);
            const bool outdated = nearest[i] < 0 || cut[nearest[i]];
            const int32_t list = outdated ? nearest_list(own, code, keys.scales[i], now) : nearest[i];
            if (now >= 0 && now == list) continue;
            remove(moving[i]);
            add(list, moving[i], code, keys.scales[i]);
        }
    }

    // Some keys look again for their list, in turn: the centres have moved since they joined it.
    void tend(int64_t n) {
        const int64_t end = static_cast<int64_t>(counts[BLOCKS]) * BLOCK;
        moving.clear();
        for (int64_t left = std::min<int64_t>(n, counts[FILLED]); left > 0;) {
            const int64_t place = counts[TENDED] < end ? counts[TENDED] : 0;
            const int32_t list = lists.owner[place / BLOCK];
            const bool first = list >= 0 && lists.head[list] == place / BLOCK;
            const int here = list < 0 ? 0 : first ? (lists.length[list] - 1) % BLOCK + 1 : BLOCK;
            if (place % BLOCK < here) {
                moving.push_back(lists.slots[place]);
                counts[TENDED] = static_cast<int32_t>(place + 1);
                left--;
            } else {
                counts[TENDED] = static_cast<int32_t>((place / BLOCK + 1) * BLOCK);
            }
        }
        keys.resize(moving.size(), width);
        join([&](int64_t i) {
            const int64_t place = lists.places[moving[i]];
            std::memcpy(&keys.codes[i * width], code_at(place), width);
            keys.scales[i] = lists.scales[place];
        });
    }

    int8_t *code_at(int64_t place) { return lists.codes + place * width; }
    int32_t *sum(int64_t list) { return lists.sums + list * width; }
    int32_t list_of(int32_t slot) const { return lists.places[slot] < 0 ? -1 : lists.owner[lists.places[slot] / BLOCK]; }

    void sum_up(int64_t list) {
        std::memset(sum(list), 0, width * sizeof(int32_t));
        int left = lists.length[list];
        for (int32_t block = lists.head[list]; left > 0; block = lists.next[block]) {
            const int64_t first = static_cast<int64_t>(block) * BLOCK;
            const int here = (left - 1) % BLOCK + 1;
            for (int64_t place = first; place < first + here; place++)
                kernels::add(sum(list), code_at(place), weight(lists.scales[place]), width);
            left -= here;
        }
    }

    // The list of the nearest centre, -1 where there is none; `now`, the list that the key is in or -1, if none is nearer.
    int32_t nearest_list(Finder &reader, const int8_t *code, float scale, int32_t now = -1) {
        if (counts[LISTS] == 0) return -1;
        reader.query.costs.set(lists, code);
        reader.nearest_lists(lists, code, scale, reader.query.costs, 1);
        const Scored nearest_of_all = reader.order[0];
        if (now < 0) return nearest_of_all.id;
        int32_t dot[4];
        kernels::dots(code, lists.centres + now * width, nullptr, 1, width, dot);
        const float similarity = static_cast<float>(dot[0]) * (lists.centre_scales[now] * scale);
        return similarity >= nearest_of_all.similarity ? now : nearest_of_all.id;
    }

    // Makes the centre of the list's keys as they are now.
    void refresh(Finder &room, int32_t list) {
        int8_t *centre = lists.centres + list * width;
        lists.centre_scales[list] = quantise_normalised(sum(list), width, centre);
        auto &rotated = room.query.costs.rotated;
        rotated.resize(std::max(lists.bits, 2 * width));
        kernels::rotate(centre, width, lists.bits, rotated.data());
        const int shift = list % kernels::GROUP / 16 * 4;
        uint8_t *signs = lists.signs + list / kernels::GROUP * (kernels::GROUP / 8) * lists.bits + list % 16;
        for (int64_t nibble = 0; nibble < lists.bits / 4; nibble++) {
            int bits = 0;
            for (int i = 0; i < 4; i++) bits |= (rotated[4 * nibble + i] > 0) << i;
            signs[16 * nibble] = static_cast<uint8_t>((signs[16 * nibble] & ~(15 << shift)) | bits << shift);
        }
    }

    int32_t new_list() {
        const int32_t list = counts[LISTS]++;
        lists.head[list] = -1;
        lists.length[list] = 0;
        std::memset(sum(list), 0, width * sizeof(int32_t));
        return list;
    }

    void push(int32_t list, int32_t slot, const int8_t *code, float scale) {
        const int row = lists.length[list]++ % BLOCK;
        if (row == 0) {
            int32_t block = counts[FREE_BLOCK];
            if (block >= 0) {
                counts[FREE_BLOCK] = lists.next[block];
            } else {
                block = counts[BLOCKS]++;
            }
            lists.next[block] = lists.head[list];
            lists.owner[block] = list;
            lists.head[list] = block;
        }
        const int64_t place = static_cast<int64_t>(lists.head[list]) * BLOCK + row;
        std::memcpy(code_at(place), code, width);
        lists.scales[place] = scale;
        lists.slots[place] = slot;
        lists.places[slot] = static_cast<int32_t>(place);
        kernels::add(sum(list), code, weight(scale), width);
        counts[FILLED]++;
    }

    void free_head(int32_t list) {
        const int32_t block = lists.head[list];
        lists.head[list] = lists.next[block];
        lists.next[block] = counts[FREE_BLOCK];
        lists.owner[block] = -1;
        counts[FREE_BLOCK] = block;
    }

    void remove(int32_t slot) {
        const int64_t place = lists.places[slot];
        if (place < 0) return;
        const int32_t list = lists.owner[place / BLOCK];
        kernels::add(sum(list), code_at(place), -weight(lists.scales[place]), width);
        const int row = --lists.length[list] % BLOCK;
        const int64_t last = static_cast<int64_t>(lists.head[list]) * BLOCK + row;
        if (place != last) {
            std::memcpy(code_at(place), code_at(last), width);
            lists.scales[place] = lists.scales[last];
            lists.slots[place] = lists.slots[last];
            lists.places[lists.slots[place]] = static_cast<int32_t>(place);
        }
        lists.places[slot] = -1;
        counts[FILLED]--;
        if (row == 0) free_head(list);
        refresh(own, list);
        if (lists.length[list] == SHORTEST - 1 || lists.length[list] == 0) shortened.push_back(list);
    }

    void add(int32_t list, int32_t slot, const int8_t *code, float scale) {
        if (list < 0) list = new_list();
        push(list, slot, code, scale);
        const int64_t most = lists.capacity / SHORTEST + 2;  // only while short ones wait to be given up
        if (lists.length[list] > longest(counts[FILLED]) && counts[LISTS] < most) {
            cut_in_two(list);
        } else {
            refresh(own, list);
        }
    }

    // Takes all keys out of a list.
    Keys take(int32_t list) {
        Keys keys;
        const int n = lists.length[list];
        keys.resize(n, width);
        for (int start = 0; start < n;) {
            const int here = (n - start - 1) % BLOCK + 1;
            const int64_t place = static_cast<int64_t>(lists.head[list]) * BLOCK;
            std::memcpy(&keys.codes[start * width], code_at(place), here * width);
            std::memcpy(&keys.scales[start], lists.scales + place, here * sizeof(float));
            std::memcpy(&keys.slots[start], lists.slots + place, here * sizeof(int32_t));
            free_head(list);
            start += here;
        }
        counts[FILLED] -= n;
        lists.length[list] = 0;
        std::memset(sum(list), 0, width * sizeof(int32_t));
        return keys;
    }

    void give_up_short_lists() {
        // From the last list to the first: the last list takes the number of one that is given up.
        std::sort(shortened.begin(), shortened.end());
        for (; !shortened.empty(); shortened.pop_back()) {
            const int32_t list = shortened.back(), last = counts[LISTS] - 1;
            if (lists.length[list] >= SHORTEST || (last == 0 && lists.length[list] > 0)) continue;
            if (shortened.size() > 1 && shortened[shortened.size() - 2] == list) continue;
            const Keys keys = take(list);
            if (list != last) {
                lists.head[list] = lists.head[last];
                lists.length[list] = lists.length[last];
                std::memcpy(sum(list), sum(last), width * sizeof(int32_t));
                for (int32_t block = lists.head[list]; block >= 0; block = lists.next[block]) lists.owner[block] = list;
                refresh(own, list);
            }
            counts[LISTS]--;
            for (size_t i = 0; i < keys.slots.size(); i++)
                add(nearest_list(own, &keys.codes[i * width], keys.scales[i]), keys.slots[i], &keys.codes[i * width], keys.scales[i]);
        }
    }

    // 2-means, from two keys that are far from the centre and from each other. No side gets fewer than SHORTEST keys.
    void cut_in_two(int32_t list) {
        const Keys keys = take(list);
        const int n = static_cast<int>(keys.slots.size());
        std::vector<int32_t> dots(n + 3), sums(width);
        std::vector<float> towards(n), sorted(n);
        std::vector<int8_t> centre(width);
        auto similarity = [&](const int8_t *code, float scale, float sign) {
            kernels::dots(code, keys.codes.data(), nullptr, n, width, dots.data());
            for (int i = 0; i < n; i++) towards[i] += sign * static_cast<float>(dots[i]) * (scale * keys.scales[i]);
        };
        auto farthest = [&] { return std::min_element(towards.begin(), towards.end()) - towards.begin(); };
        auto centre_of = [&](auto belongs) {
            std::fill(sums.begin(), sums.end(), 0);
            for (int i = 0; i < n; i++)
                if (belongs(i)) kernels::add(sums.data(), &keys.codes[i * width], weight(keys.scales[i]), width);
            return quantise_normalised(sums.data(), width, centre.data());
        };
        similarity(centre.data(), centre_of([](int) { return true; }), 1);
        const auto a = farthest();
        std::fill(towards.begin(), towards.end(), 0.0f);
        similarity(&keys.codes[a * width], keys.scales[a], 1);
        const auto b = farthest();
        similarity(&keys.codes[b * width], keys.scales[b], -1);
        std::vector<bool> second(n);
        for (int round = 0;; round++) {
            sorted = towards;
            std::sort(sorted.begin(), sorted.end());
            const float limit = std::clamp(0.0f, sorted[SHORTEST], sorted[n - 1 - SHORTEST]);
            int count = 0;
            for (int i = 0; i < n; i++) count += second[i] = towards[i] < limit;
            for (int i = 0; i < n && count < SHORTEST; i++)  // where many are equal
                if (!second[i] && towards[i] == limit) count += second[i] = true;
            if (round == ROUNDS) break;
            std::fill(towards.begin(), towards.end(), 0.0f);
            const float first_scale = centre_of([&](int i) { return !second[i]; });
            similarity(centre.data(), first_scale, 1);
            const float second_scale = centre_of([&](int i) { return second[i]; });
            similarity(centre.data(), second_scale, -1);
        }
        const int32_t other = new_list();
        for (int i = 0; i < n; i++) push(second[i] ? other : list, keys.slots[i], &keys.codes[i * width], keys.scales[i]);
        refresh(own, list);
        refresh(own, other);
        if (list < static_cast<int32_t>(cut.size())) cut[list] = true;
    }
};

}  // namespace

void lists_change(const Lists &lists, const int64_t *slots, int64_t n, int threads) { Changer(lists, threads).change(slots, n); }

void lists_restore(const Lists &lists, int threads) { Changer(lists, threads).restore(); }

void lists_search(const Lists &lists, const float *queries, int64_t n, int k, const int64_t *exclude, int probes, int threads,
                  int64_t *out) {
    threads = n >= SHARE ? threads : 1;
    auto &all = finders(threads);
    parallel(n, threads, [&](int64_t i, int thread) {
        Finder &own = all[thread];
        own.query.set(lists, queries + i * lists.key_size, exclude ? exclude[i] : -1);
        own.read(lists, k, probes);
        const int found = own.choose(lists, k, out + i * k);
        std::fill(out + i * k + found, out + (i + 1) * k, -1);
    });
}

int lists_rank(const Lists &lists, const float *query_vector, int64_t exclude, int depth) {
    Finder &own = finders(1)[0];
    own.query.set(lists, query_vector, exclude);
    own.read(lists, 1, depth);
    return own.rank();
}

bool lists_valid(const Lists &lists, int64_t max_blocks, int64_t max_lists) {
    const int32_t *counts = lists.counts;
    const int64_t blocks = counts[BLOCKS], n = counts[LISTS];
    if (blocks < 0 || blocks > max_blocks || n < 0 || n > max_lists || counts[TENDED] < 0 ||
        counts[UNTENDED] < 0)
        return false;
    std::vector<int> filled(blocks, -1);  // of each block: how many of its places are, -1 while it was not met
    auto meet = [&](int32_t block, int32_t owner, int rows) {
        if (block < 0 || block >= blocks || filled[block] >= 0 || lists.owner[block] != owner) return false;
        filled[block] = rows;
        return true;
    };
    int64_t left = 0;
    for (int32_t list = 0; list < n; list++) {
        int32_t block = lists.head[list];
        if (lists.length[list] < 0) return false;
        for (int length = lists.length[list]; length > 0; block = lists.next[block]) {
            const int rows = (length - 1) % BLOCK + 1;
            if (!meet(block, list, rows)) return false;
            length -= rows;
        }
        if (block != -1) return false;
        left += lists.length[list];
    }
    for (int32_t block = counts[FREE_BLOCK]; block != -1; block = lists.next[block])
        if (!meet(block, -1, 0)) return false;
    if (left != counts[FILLED]) return false;
    std::vector<bool> taken(blocks * BLOCK);
    for (int64_t slot = 0; slot < lists.capacity; slot++) {
        const int64_t place = lists.places[slot];
        if (place == -1) continue;
        if (place < 0 || place >= blocks * BLOCK || place % BLOCK >= filled[place / BLOCK] || taken[place]) return false;
        taken[place] = true;
        left--;
    }
    return left == 0;
}
