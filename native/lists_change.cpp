#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "lists.h"
#include "lists_find.h"
#include "lists_kernels.h"
#include "lists_regions.h"
#include "parallel.h"
#include "sign_codes.h"

namespace {

// A list of more keys is cut in two. Shorter lists are of fewer kinds, so that fewer of them have to be read to find the
// nearest key, but there are more centres to compare with. The more lists there are, the more of them happen to be nearer
// than the right one: so in a memory of many keys they are the shorter ones.
constexpr int LONGEST = 64, LONGEST_OF_MANY = 32;
constexpr int STEADY = 8, GROWTH = 16;  // one key in 8 that change looks after another; one that is new, after two more
constexpr int TOGETHER = 2 * TILE;      // at least so many at once, which meet the centres faster
constexpr int FARTHEST = 4;             // keys of a block that are looked after in turn
// A key looks for its list as a query does that looks for so many: of many keys, one that looked into fewer regions would miss
// its own kind more often, and would be missed itself from then on by all who look for it.
constexpr int64_t PROBES = 64;
constexpr int ROUNDS = 4;               // of 2-means when a list is cut
constexpr int64_t SHARE = 8;            // keys that are worth a second thread
constexpr float WEIGHT = 127 * 255.0f;

// Codes of an integer vector, normalised to length 1.
float quantise_normalised(const int32_t *sum, int64_t width, int8_t *code) {
    int32_t most = 0;
    int64_t square = 0;
    for (int64_t i = 0; i < width; i++) {
        most = std::max(most, std::abs(sum[i]));
        square += static_cast<int64_t>(sum[i]) * sum[i];
    }
    const float factor = most > 0 ? 127.0f / static_cast<float>(most) : 0;
    for (int64_t i = 0; i < width; i++) {
        const float x = static_cast<float>(sum[i]) * factor;
        code[i] = static_cast<int8_t>(static_cast<int>(x + (x < 0 ? -0.5f : 0.5f)));
    }
    return most > 0 ? static_cast<float>(most / 127.0 / std::sqrt(static_cast<double>(square))) : 0;
}

// Sums are of codes times this, so that every key has about the same weight in them, and all is exact.
int32_t weight(float scale) { return static_cast<int32_t>(std::min(scale * WEIGHT, 255.0f) + 0.5f); }

// What is at a place.
struct Key {
    const int8_t *code, *rest;
    float scale;
    int32_t slot;
    int64_t value;
};

// Keys on their way from one list to another.
struct Keys {
    int64_t width = 0;
    std::vector<int8_t> codes, rests;
    std::vector<float> scales;
    std::vector<int32_t> slots;
    std::vector<int64_t> values;

    void resize(int64_t n, int64_t of_width) {
        width = of_width;
        codes.resize(n * width);
        rests.resize(n * width);
        scales.resize(n);
        slots.resize(n);
        values.resize(n);
    }

    Key operator[](int64_t i) const { return {&codes[i * width], &rests[i * width], scales[i], slots[i], values[i]}; }
};

class Changer {
public:
    Changer(const Lists &from, int most_threads)
        : lists(from), counts(from.counts), width(from.width), threads(most_threads), all(finders(most_threads)) {}

    void change(const int64_t *changed, int64_t n, int64_t near_count) {
        near.assign(lists.near, lists.near + near_count);
        std::sort(near.begin(), near.end());
        near.erase(std::unique(near.begin(), near.end()), near.end());
        // A small memory grows in small parts, so that no key meets lists that are much out of date.
        for (int64_t start = 0, part; start < n; start += part) {
            const int64_t before = counts[FILLED];
            part = std::min<int64_t>(n - start, std::clamp<int64_t>(before / 8, 32, 4096));
            moving.clear();
            for (int64_t i = start; i < start + part; i++) {
                const auto slot = static_cast<int32_t>(changed[i]);
                if (lists.values[slot] >= 0)
                    moving.push_back(slot);
                else
                    remove(slot);
            }
            join(true, [&](int64_t i) {
                const float *key = lists.keys + moving[i] * lists.key_size;
                int8_t *const code = &moved.codes[i * width];
                moved.scales[i] = quantise(key, lists.key_size, width, code);
                quantise_rest(key, lists.key_size, width, code, moved.scales[i], &moved.rests[i * width]);
                moved.values[i] = lists.values[moving[i]];
            });
            near.clear();  // others may have their numbers from now on
            // Centres move most while the memory grows.
            const int64_t grown = std::max<int64_t>(counts[FILLED] - before, 0);
            counts[UNTENDED] += static_cast<int32_t>(GROWTH * grown + part);
            if (counts[UNTENDED] >= TOGETHER * STEADY) {
                tend(counts[UNTENDED] / STEADY);
                counts[UNTENDED] %= STEADY;
            }
            give_up_short_lists();
        }
    }

    void restore() {
        parallel((lists.capacity + 4095) / 4096, threads, [&](int64_t part, int) {
            for (int64_t slot = part * 4096; slot < std::min((part + 1) * 4096, lists.capacity); slot++) {
                const int64_t place = lists.places[slot];
                if (place < 0) continue;
                const float *key = lists.keys + slot * lists.key_size;
                lists.slots[place] = static_cast<int32_t>(slot);
                lists.held[place] = lists.values[slot];
                lists.at.scales[place] = quantise(key, lists.key_size, width, code_at(place));
                quantise_rest(key, lists.key_size, width, code_at(place), lists.at.scales[place], rest_at(place));
            }
        });
        // Lists whose sign codes stand together share bytes, and so a thread.
        const int64_t n = counts[LISTS];
        parallel((n + kernels::GROUP - 1) / kernels::GROUP, threads, [&](int64_t group, int thread) {
            for (int64_t list = group * kernels::GROUP; list < std::min(n, (group + 1) * kernels::GROUP); list++) {
                sum_up(all[thread * TILE], list);
                refresh(all[thread * TILE], list);
            }
        });
        if (lists.regions.count == 0) return;
        regions::clear(lists.regions);
        std::fill(lists.regions.places, lists.regions.places + lists.most_lists, -1);
        for (int32_t list = 0; list < n; list++) regions::follow(lists, list);
    }

private:
    const Lists &lists;
    int32_t *const counts;
    const int64_t width;
    const int threads;
    std::vector<Finder> &all;
    // Slots that look for a list, their codes, and what they find.
    std::vector<int32_t> moving, nearest;
    Keys moved;
    // The lists they may find; none where all are to be looked at.
    std::vector<int32_t> near;
    // Lists whose centres are to be made anew; that may be too short; that were cut since `nearest` was found.
    std::vector<int32_t> stale, shortened, cut;

    // Each of `moving` finds its list, all in parallel, as the lists are now; then each joins it, if it is not there.
    // load(i) puts the i-th into `moved`; are_new: it is not what is in its list.
    template <typename Load>
    void join(bool are_new, const Load &load) {
        const auto n = static_cast<int64_t>(moving.size());
        nearest.resize(n);
        moved.resize(n, width);
        parallel((n + TILE - 1) / TILE, n >= SHARE ? threads : 1, [&](int64_t tile, int thread) {
            const int64_t first = tile * TILE, end = std::min(n, first + TILE);
            for (int64_t i = first; i < end; i++) {
                load(i);
                moved.slots[i] = moving[i];
            }
            Finder *const own = &all[thread * TILE];
            if (near.empty()) return nearest_lists(own, moved, first, end, &nearest[first]);
            for (int64_t i = first; i < end; i++) {
                own->ask(&moved.codes[i * width], moved.scales[i]);
                nearest[i] = own->nearest_of(lists, near);
            }
        });
        cut.clear();
        for (int64_t i = 0; i < n; i++) {
            const int32_t slot = moving[i];
            if (i + 1 < n) fetch(moving[i + 1], nearest[i + 1]);
            if (nearest[i] < 0 || std::find(cut.begin(), cut.end(), nearest[i]) != cut.end())
                nearest_lists(all.data(), moved, i, i + 1, &nearest[i]);
            const Key key = moved[i];
            const int32_t now = list_of(slot);
            if (now < 0 || !stays(now, nearest[i], key)) {
                remove(slot);
                add(nearest[i], key);
            } else if (are_new) {
                replace(key);
            }
        }
        refresh_stale();
    }

    int8_t *code_at(int64_t place) { return lists.at.codes + place * width; }
    int8_t *rest_at(int64_t place) { return lists.rests + place * width; }
    Key at(int64_t place) {
        return {code_at(place), rest_at(place), lists.at.scales[place], lists.slots[place], lists.held[place]};
    }
    int32_t *sum(int64_t list) { return lists.sums + list * width; }
    int32_t list_of(int32_t slot) const { return lists.places[slot] < 0 ? -1 : lists.owner[lists.places[slot] / BLOCK]; }

    // What is needed to take a key out of its list and to put it into another.
    void fetch(int32_t slot, int32_t list) const {
        auto fetch_place = [&](int64_t place) {
            prefetch(lists.at.codes + place * width, width);
            prefetch(lists.rests + place * width, width);
            prefetch(lists.at.signs + place / BLOCK * BLOCK * lists.bits / 8, BLOCK * lists.bits / 8);
        };
        const int32_t now = list_of(slot);
        for (const int32_t each : {list, now}) {
            if (each < 0) continue;
            prefetch(lists.sums + each * width, width * sizeof(int32_t));
            fetch_place(static_cast<int64_t>(lists.head[each]) * BLOCK + lists.length[each] % BLOCK);
        }
        if (now >= 0) fetch_place(lists.places[slot]);
    }

    void remove(int32_t slot) {
        const int64_t place = lists.places[slot];
        if (place < 0) return;
        const int32_t list = lists.owner[place / BLOCK];
        kernels::add(sum(list), code_at(place), -weight(lists.at.scales[place]), width);
        const int row = --lists.length[list] % BLOCK;
        const int64_t last = static_cast<int64_t>(lists.head[list]) * BLOCK + row;
        if (place != last) {
            write(place, at(last));
            sign_codes::copy(lists.at.signs, last, lists.at.signs, place, lists.bits);
        }
        lists.places[slot] = -1;
        counts[FILLED]--;
        if (row == 0) free_head(list);
        stale.push_back(list);
        if (lists.length[list] == SHORTEST - 1 || lists.length[list] == 0) shortened.push_back(list);
    }

    // A key that changed, and stays in its list.
    void replace(const Key &key) {
        const int64_t place = lists.places[key.slot];
        const int32_t list = lists.owner[place / BLOCK];
        kernels::add(sum(list), code_at(place), -weight(lists.at.scales[place]), width);
        kernels::add(sum(list), key.code, weight(key.scale), width);
        write(place, key);
        set_signs(all[0], key.code, lists.at.signs, place);
        stale.push_back(list);
    }

    void give_up_short_lists() {
        // From the last list to the first: the last list takes the number of one that is given up.
        std::sort(shortened.begin(), shortened.end());
        for (; !shortened.empty(); shortened.pop_back()) {
            const int32_t list = shortened.back(), last = counts[LISTS] - 1;
            if (lists.length[list] >= SHORTEST || (last == 0 && lists.length[list] > 0)) continue;
            if (shortened.size() > 1 && shortened[shortened.size() - 2] == list) continue;
            const Keys keys = take(list);
            if (lists.regions.count > 0) {
                regions::leave(lists, list);
                regions::leave(lists, last);
            }
            if (list != last) {
                lists.head[list] = lists.head[last];
                lists.length[list] = lists.length[last];
                std::memcpy(sum(list), sum(last), width * sizeof(int32_t));
                for (int32_t block = lists.head[list]; block >= 0; block = lists.next[block]) lists.owner[block] = list;
                refresh(all[0], list);
                regions::follow(lists, list);
            }
            counts[LISTS]--;
            const auto n = static_cast<int64_t>(keys.slots.size());
            for (int64_t first = 0; first < n; first += TILE) {
                int32_t found[TILE];
                const int64_t end = std::min(n, first + TILE);
                nearest_lists(all.data(), keys, first, end, found);
                for (int64_t i = first; i < end; i++) add(found[i - first], keys[i]);
            }
            refresh_stale();
        }
    }

    // Some keys look again for their list, since centres have moved since they joined it: block after block one of those
    // that are farthest from their centre, since of these most find a nearer one.
    void tend(int64_t n) {
        moving.clear();
        for (int64_t left = counts[FILLED] > 0 ? n : 0; left > 0; counts[TENDED]++) {
            const int32_t blocks = counts[BLOCKS];
            if (counts[TENDED] >= FARTHEST * blocks) counts[TENDED] = 0;
            const int32_t block = counts[TENDED] % blocks, list = lists.owner[block];
            if (list < 0) continue;
            const int64_t first = static_cast<int64_t>(block) * BLOCK;
            const int rows = lists.head[list] == block ? (lists.length[list] - 1) % BLOCK + 1 : BLOCK;
            int32_t dots[BLOCK + 3];
            kernels::dots(lists.centres.codes + list * width, code_at(first), nullptr, rows, width, dots);
            Near nearness[BLOCK];
            for (int i = 0; i < rows; i++) nearness[i] = {-static_cast<float>(dots[i]) * lists.at.scales[first + i], i};
            const int which = std::min(counts[TENDED] / blocks, rows - 1);
            std::nth_element(nearness, nearness + which, nearness + rows);
            moving.push_back(lists.slots[first + nearness[which].id]);
            left--;
        }
        join(false, [&](int64_t i) {
            const Key key = at(lists.places[moving[i]]);
            std::memcpy(&moved.codes[i * width], key.code, width);
            std::memcpy(&moved.rests[i * width], key.rest, width);
            moved.scales[i] = key.scale;
            moved.values[i] = key.value;
        });
    }

    void sum_up(Finder &room, int64_t list) {
        std::memset(sum(list), 0, width * sizeof(int32_t));
        int left = lists.length[list];
        for (int32_t block = lists.head[list]; left > 0; block = lists.next[block]) {
            const int64_t first = static_cast<int64_t>(block) * BLOCK;
            const int here = (left - 1) % BLOCK + 1;
            for (int64_t place = first; place < first + here; place++) {
                kernels::add(sum(list), code_at(place), weight(lists.at.scales[place]), width);
                set_signs(room, code_at(place), lists.at.signs, place);
            }
            left -= here;
        }
    }

    // The list of the nearest centre for each of at most TILE keys, the first to the last of these; -1 where there is none.
    void nearest_lists(Finder *own, const Keys &keys, int64_t first, int64_t last, int32_t *out) {
        const auto n = static_cast<int>(last - first);
        std::fill(out, out + n, -1);
        if (counts[LISTS] == 0) return;
        for (int i = 0; i < n; i++) own[i].ask(&keys.codes[(first + i) * width], keys.scales[first + i]);
        Finder::meet_centres(lists, own, n, 1, PROBES);
        for (int i = 0; i < n; i++) {
            own[i].nearest_lists(lists, 1);
            out[i] = own[i].order[0].id;
        }
    }

    // Whether no other list is nearer to a key than its own; by sign codes alone, its own may have been overlooked.
    bool stays(int32_t now, int32_t other, const Key &key) {
        if (now == other) return true;
        const int32_t both[] = {now, other};
        int32_t dots[2 + 3];
        kernels::dots(key.code, lists.centres.codes, both, 2, width, dots);
        auto similarity = [&](int i) { return static_cast<float>(dots[i]) * (lists.centres.scales[both[i]] * key.scale); };
        return similarity(0) >= similarity(1);
    }

    void refresh_stale() {
        std::sort(stale.begin(), stale.end());
        stale.erase(std::unique(stale.begin(), stale.end()), stale.end());
        const auto n = static_cast<int64_t>(stale.size());
        auto group = [&](int64_t i) { return stale[i] / kernels::GROUP; };
        // Lists whose sign codes stand together share bytes, and so a thread.
        parallel(n, n >= 2 * SHARE ? threads : 1, [&](int64_t first, int thread) {
            if (first > 0 && group(first - 1) == group(first)) return;
            for (int64_t i = first; i < n && group(i) == group(first); i++) refresh(all[thread * TILE], stale[i]);
        });
        for (const int32_t list : stale) regions::follow(lists, list);
        stale.clear();
    }

    // Makes the centre of the list's keys as they are now; to be followed by regions::follow, in one thread.
    void refresh(Finder &room, int64_t list) {
        int8_t *centre = lists.centres.codes + list * width;
        lists.centres.scales[list] = quantise_normalised(sum(list), width, centre);
        set_signs(room, centre, lists.centres.signs, list);
        if (lists.regions.count > 0) lists.regions.nearest[list] = regions::of(lists, centre, room.costs.rotated);
    }

    // Writes the sign code of a code as the i-th of all.
    void set_signs(Finder &room, const int8_t *code, uint8_t *all_signs, int64_t i) {
        auto &rotated = room.costs.rotated;
        rotated.resize(std::max(lists.bits, 2 * width));
        kernels::rotate(code, width, lists.bits, rotated.data());
        for (int64_t nibble = 0; nibble < lists.bits / 4; nibble++) {
            const int32_t *x = &rotated[4 * nibble];
            const int positive = (x[0] > 0) | (x[1] > 0) << 1 | (x[2] > 0) << 2 | (x[3] > 0) << 3;
            sign_codes::set_nibble(all_signs, i, nibble, lists.bits, positive);
        }
    }

    void write(int64_t place, const Key &key) {
        std::memcpy(code_at(place), key.code, width);
        std::memcpy(rest_at(place), key.rest, width);
        lists.at.scales[place] = key.scale;
        lists.slots[place] = key.slot;
        lists.held[place] = key.value;
        lists.places[key.slot] = static_cast<int32_t>(place);
    }

    int32_t new_list() {
        const int32_t list = counts[LISTS]++;
        lists.head[list] = -1;
        lists.length[list] = 0;
        std::memset(sum(list), 0, width * sizeof(int32_t));
        return list;
    }

    void push(int32_t list, const Key &key) {
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
        write(place, key);
        set_signs(all[0], key.code, lists.at.signs, place);
        kernels::add(sum(list), key.code, weight(key.scale), width);
        counts[FILLED]++;
    }

    void free_head(int32_t list) {
        const int32_t block = lists.head[list];
        lists.head[list] = lists.next[block];
        lists.next[block] = counts[FREE_BLOCK];
        lists.owner[block] = -1;
        counts[FREE_BLOCK] = block;
    }

    void add(int32_t list, const Key &key) {
        if (list < 0) list = new_list();
        push(list, key);
        // There is room for as many lists as could ever be; only while short ones wait to be given up there is not.
        const int longest = are_many(lists) ? LONGEST_OF_MANY : LONGEST;
        if (lists.length[list] > longest && counts[LISTS] < lists.most_lists) {
            cut_in_two(list);
        } else {
            stale.push_back(list);
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
            std::memcpy(&keys.rests[start * width], rest_at(place), here * width);
            std::memcpy(&keys.scales[start], lists.at.scales + place, here * sizeof(float));
            std::memcpy(&keys.slots[start], lists.slots + place, here * sizeof(int32_t));
            std::memcpy(&keys.values[start], lists.held + place, here * sizeof(int64_t));
            free_head(list);
            start += here;
        }
        counts[FILLED] -= n;
        lists.length[list] = 0;
        std::memset(sum(list), 0, width * sizeof(int32_t));
        return keys;
    }

    // 2-means, from two keys that are far from the centre and from each other. No side gets too few of them.
    void cut_in_two(int32_t list) {
        const Keys keys = take(list);
        const int n = static_cast<int>(keys.slots.size());
        std::vector<int32_t> dots(n + 3), sums(width);
        std::vector<float> towards(n), sorted(n);
        std::vector<int8_t> middle(width);
        auto similarity = [&](const int8_t *code, float scale, float sign) {
            kernels::dots(code, keys.codes.data(), nullptr, n, width, dots.data());
            for (int i = 0; i < n; i++) towards[i] += sign * static_cast<float>(dots[i]) * (scale * keys.scales[i]);
        };
        auto farthest = [&] { return std::min_element(towards.begin(), towards.end()) - towards.begin(); };
        auto middle_of = [&](auto belongs) {
            std::fill(sums.begin(), sums.end(), 0);
            for (int i = 0; i < n; i++)
                if (belongs(i)) kernels::add(sums.data(), &keys.codes[i * width], weight(keys.scales[i]), width);
            return quantise_normalised(sums.data(), width, middle.data());
        };
        similarity(middle.data(), middle_of([](int) { return true; }), 1);
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
            const float first_scale = middle_of([&](int i) { return !second[i]; });
            similarity(middle.data(), first_scale, 1);
            const float second_scale = middle_of([&](int i) { return second[i]; });
            similarity(middle.data(), second_scale, -1);
        }
        const int32_t other = new_list();
        for (int i = 0; i < n; i++)
            push(second[i] ? other : list, keys[i]);
        refresh(all[0], list);
        refresh(all[0], other);
        regions::follow(lists, list);
        regions::follow(lists, other);
        cut.push_back(list);
    }
};

}  // namespace

void lists_change(const Lists &lists, const int64_t *slots, int64_t n, int64_t near, int threads) {
    // A stream of few keys at a time wakes no other thread, not even for what it does for many of them together.
    Changer(lists, n >= SHARE ? threads : 1).change(slots, n, near);
}

void lists_restore(const Lists &lists, int threads) { Changer(lists, threads).restore(); }

bool lists_valid(const Lists &lists) {
    const int32_t *counts = lists.counts;
    const int64_t blocks = counts[BLOCKS], n = counts[LISTS];
    if (blocks < 0 || blocks > lists.most_blocks || n < 0 || n > lists.most_lists || counts[TENDED] < 0 ||
        counts[UNTENDED] < 0 || counts[UNTENDED] >= TOGETHER * STEADY)
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
