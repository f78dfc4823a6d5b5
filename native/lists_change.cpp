#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "lists.h"
#include "lists_find.h"
#include "lists_kernels.h"
#include "parallel.h"

namespace {

// A list of more keys is cut in two: up to so many keys in memory, and at more the more.
constexpr int LONGEST = 64;
constexpr float LONGEST_UP_TO = 1'000'000;
constexpr int STEADY = 8, GROWTH = 16;  // one key in 8 that change looks after another; one that is new, after two more
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

// With lists of the root of the number of keys, centres and lists cost a query alike.
int longest(int64_t filled) {
    return std::max(LONGEST, static_cast<int>(LONGEST * std::sqrt(static_cast<float>(filled) / LONGEST_UP_TO)));
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
        : lists(from), counts(from.counts), width(from.width), threads(most_threads), all(finders(most_threads)) {}

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
            join([&](int64_t i) {
                const float *key = lists.keys + moving[i] * lists.key_size;
                moved.scales[i] = quantise(key, lists.key_size, width, &moved.codes[i * width]);
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
        parallel((lists.capacity + 4095) / 4096, threads, [&](int64_t part, int) {
            for (int64_t slot = part * 4096; slot < std::min((part + 1) * 4096, lists.capacity); slot++) {
                const int64_t place = lists.places[slot];
                if (place < 0) continue;
                lists.slots[place] = static_cast<int32_t>(slot);
                lists.at.scales[place] = quantise(lists.keys + slot * lists.key_size, lists.key_size, width, code_at(place));
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
    std::vector<int32_t> shortened;
    std::vector<bool> cut;

    // Each of `moving` finds its list, all in parallel, as the lists are now; then each joins it, if it is not there.
    // load(i) puts the code and scale of the i-th into `moved`.
    template <typename Load>
    void join(const Load &load) {
        const auto n = static_cast<int64_t>(moving.size());
        nearest.resize(n);
        moved.resize(n, width);
        parallel((n + SHARE - 1) / SHARE, threads, [&](int64_t task, int thread) {
            for (int64_t i = task * SHARE; i < std::min(n, (task + 1) * SHARE); i++) {
                load(i);
                nearest[i] = nearest_list(all[thread * TILE], &moved.codes[i * width], moved.scales[i], list_of(moving[i]));
            }
        });
        cut.assign(counts[LISTS] + 1, false);
        for (int64_t i = 0; i < n; i++) {
            const int8_t *code = &moved.codes[i * width];
            const int32_t now = list_of(moving[i]);
            const bool outdated = nearest[i] < 0 || cut[nearest[i]];
            const int32_t list = outdated ? nearest_list(all[0], code, moved.scales[i], now) : nearest[i];
            if (now >= 0 && now == list) continue;
            remove(moving[i]);
            add(list, moving[i], code, moved.scales[i]);
        }
    }

    int8_t *code_at(int64_t place) { return lists.at.codes + place * width; }
    int32_t *sum(int64_t list) { return lists.sums + list * width; }
    int32_t list_of(int32_t slot) const { return lists.places[slot] < 0 ? -1 : lists.owner[lists.places[slot] / BLOCK]; }

    void remove(int32_t slot) {
        const int64_t place = lists.places[slot];
        if (place < 0) return;
        const int32_t list = lists.owner[place / BLOCK];
        kernels::add(sum(list), code_at(place), -weight(lists.at.scales[place]), width);
        const int row = --lists.length[list] % BLOCK;
        const int64_t last = static_cast<int64_t>(lists.head[list]) * BLOCK + row;
        if (place != last) write(place, lists.slots[last], code_at(last), lists.at.scales[last]);
        lists.places[slot] = -1;
        counts[FILLED]--;
        if (row == 0) free_head(list);
        refresh(all[0], list);
        if (lists.length[list] == SHORTEST - 1 || lists.length[list] == 0) shortened.push_back(list);
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
                refresh(all[0], list);
            }
            counts[LISTS]--;
            for (size_t i = 0; i < keys.slots.size(); i++) {
                const int8_t *code = &keys.codes[i * width];
                add(nearest_list(all[0], code, keys.scales[i], -1), keys.slots[i], code, keys.scales[i]);
            }
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
        join([&](int64_t i) {
            const int64_t place = lists.places[moving[i]];
            std::memcpy(&moved.codes[i * width], code_at(place), width);
            moved.scales[i] = lists.at.scales[place];
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

    // The list of the nearest centre, -1 where there is none; `now`, the list that the key is in or -1, if none is nearer.
    int32_t nearest_list(Finder &finder, const int8_t *code, float scale, int32_t now) {
        if (counts[LISTS] == 0) return -1;
        finder.ask(lists, code, scale);
        Finder::meet_centres(lists, &finder, 1);
        finder.nearest_lists(lists, 1);
        const Scored best = finder.order[0];
        if (now < 0) return best.id;
        int32_t dot[4];
        kernels::dots(code, lists.centres.codes + now * width, nullptr, 1, width, dot);
        const float similarity = static_cast<float>(dot[0]) * (lists.centres.scales[now] * scale);
        return similarity >= best.similarity ? now : best.id;
    }

    // Makes the centre of the list's keys as they are now.
    void refresh(Finder &room, int64_t list) {
        int8_t *centre = lists.centres.codes + list * width;
        lists.centres.scales[list] = quantise_normalised(sum(list), width, centre);
        set_signs(room, centre, lists.centres.signs, list);
    }

    // Writes the sign code of a code as the i-th of all; those of 32 stand together, see kernels::distances.
    void set_signs(Finder &room, const int8_t *code, uint8_t *all_signs, int64_t i) {
        auto &rotated = room.costs.rotated;
        rotated.resize(std::max(lists.bits, 2 * width));
        kernels::rotate(code, width, lists.bits, rotated.data());
        const int shift = i % kernels::GROUP / 16 * 4;
        uint8_t *signs = all_signs + i / kernels::GROUP * (kernels::GROUP / 8) * lists.bits + i % 16;
        for (int64_t nibble = 0; nibble < lists.bits / 4; nibble++) {
            const int32_t *x = &rotated[4 * nibble];
            const int bits = (x[0] > 0) | (x[1] > 0) << 1 | (x[2] > 0) << 2 | (x[3] > 0) << 3;
            signs[16 * nibble] = static_cast<uint8_t>((signs[16 * nibble] & ~(15 << shift)) | bits << shift);
        }
    }

    void write(int64_t place, int32_t slot, const int8_t *code, float scale) {
        std::memcpy(code_at(place), code, width);
        lists.at.scales[place] = scale;
        lists.slots[place] = slot;
        lists.places[slot] = static_cast<int32_t>(place);
        set_signs(all[0], code, lists.at.signs, place);
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
        write(place, slot, code, scale);
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

    void add(int32_t list, int32_t slot, const int8_t *code, float scale) {
        if (list < 0) list = new_list();
        push(list, slot, code, scale);
        // There is room for as many lists as could ever be; only while short ones wait to be given up there is not.
        if (lists.length[list] > longest(counts[FILLED]) && counts[LISTS] < lists.most_lists) {
            cut_in_two(list);
        } else {
            refresh(all[0], list);
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
            std::memcpy(&keys.scales[start], lists.at.scales + place, here * sizeof(float));
            std::memcpy(&keys.slots[start], lists.slots + place, here * sizeof(int32_t));
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
            push(second[i] ? other : list, keys.slots[i], &keys.codes[i * width], keys.scales[i]);
        refresh(all[0], list);
        refresh(all[0], other);
        if (list < static_cast<int32_t>(cut.size())) cut[list] = true;
    }
};

}  // namespace

void lists_change(const Lists &lists, const int64_t *slots, int64_t n, int threads) { Changer(lists, threads).change(slots, n); }

void lists_restore(const Lists &lists, int threads) { Changer(lists, threads).restore(); }

bool lists_valid(const Lists &lists) {
    const int32_t *counts = lists.counts;
    const int64_t blocks = counts[BLOCKS], n = counts[LISTS];
    if (blocks < 0 || blocks > lists.most_blocks || n < 0 || n > lists.most_lists || counts[TENDED] < 0 ||
        counts[UNTENDED] < 0 || counts[UNTENDED] >= STEADY)
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
