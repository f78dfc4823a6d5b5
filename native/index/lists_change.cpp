// Keys that join, leave and change lists.
#include <algorithm>
#include <utility>
#include <vector>

#include "../memory/parallel.h"
#include "auto.h"
#include "lists_probe.h"

namespace {

// Keys. A longer list is split. Shorter lists are of fewer kinds, so that fewer have to be read to find the nearest
// key, but there are more centroids to compare with. The more lists there are, the more of them happen to be nearer
// than the right one: so in a memory of many keys they are shorter.
constexpr int LONGEST = 64, LONGEST_OF_MANY = 32;
// Keys to reassign: one per STEADY that change, and GROWTH / STEADY per key that is new, since centroids move most
// then. More keep keys in their nearest lists and cost time.
constexpr int STEADY = 8, GROWTH = 16;
static_assert(ListsState::MOST_DUE == 2 * TILE * STEADY);  // two tiles at once, which scan centroids faster
constexpr int FARTHEST = 8;                           // one in so many keys of a list is a candidate, the farthest
constexpr int ROUNDS = 4;                             // of 2-means at a split
// Of many keys, as many centroids are compared as if so many lists were to be read, or a share of all.
constexpr int READ_OF_MANY = 64, SHARE_OF_MANY = 1024;
constexpr int64_t KEYS_AT_ONCE = 8;                   // from which on a second thread pays
// Queries. Comparing with all centroids by sign codes costs less than with the lists of more.
constexpr int64_t MOST_HINTS = 512;

// Which of some keys go into the second of two lists: 2-means, from two keys that are far from the centroid and from each
// other. No list gets fewer than SHORTEST.
std::vector<char> divide(const Codes &at, const std::vector<int32_t> &places) {
    const auto n = static_cast<int64_t>(places.size());
    std::vector<char> second(n);
    std::vector<int32_t> dots(n + 3), sum(at.width);
    std::vector<int64_t> leaning(n), sorted;  // the more, the nearer to the first side than to the second
    std::vector<int16_t> centroid(at.width);
    const auto lean = [&](const int16_t *code, int sign) {
        kernels::dots(code, at.codes.data(), places.data(), n, at.width, dots.data());
        for (int64_t i = 0; i < n; i++) leaning[i] += sign * dots[i];
    };
    const auto centroid_of = [&](const auto &belongs) {
        std::fill(sum.begin(), sum.end(), 0);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < at.width && belongs(i); j++) sum[j] += at.code(places[i])[j];
        quantise_sum(sum.data(), at.width, centroid.data());
        return centroid.data();
    };
    const auto farthest = [&] {
        const int64_t found = std::min_element(leaning.begin(), leaning.end()) - leaning.begin();
        return at.code(places[found]);
    };
    lean(centroid_of([](int64_t) { return true; }), 1);
    const int16_t *const one = farthest();
    std::fill(leaning.begin(), leaning.end(), 0);
    lean(one, 1);
    lean(farthest(), -1);
    for (int round = 0;; round++) {
        sorted = leaning;
        std::sort(sorted.begin(), sorted.end());
        const int64_t limit = std::clamp<int64_t>(0, sorted[SHORTEST], sorted[n - 1 - SHORTEST]);
        int64_t count = 0;
        for (int64_t i = 0; i < n; i++) count += second[i] = leaning[i] < limit;
        for (int64_t i = 0; i < n && count < SHORTEST; i++)  // where many are equal
            if (!second[i] && leaning[i] == limit) count += second[i] = true;
        if (round == ROUNDS) return second;
        std::fill(leaning.begin(), leaning.end(), 0);
        lean(centroid_of([&](int64_t i) { return !second[i]; }), 1);
        lean(centroid_of([&](int64_t i) { return second[i]; }), -1);
    }
}

void sort_distinct(std::vector<int32_t> &numbers) {
    std::sort(numbers.begin(), numbers.end());
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
}

}  // namespace

// One change of the lists. It must not matter in which order a list has its keys: a restored one has them in another.
class AutoIndex::Changes {
  public:
    Changes(AutoIndex &of, const Slots &slots, int most_threads)
        : state(of.state_), store(*of.lists_), memory(slots), threads(most_threads), probes(Probe::pool(most_threads)) {}

    // hints: the lists that the keys are compared with; empty: all.
    void change(const int64_t *changed, int64_t n, std::vector<int32_t> hints) {
        near = std::move(hints);
        // A small memory grows in small parts, so that no key meets lists that are much out of date.
        for (int64_t start = 0, part; start < n; start += part) {
            const int64_t before = store.n_keys;
            part = std::min<int64_t>(n - start, std::clamp<int64_t>(before / 8, 32, 4096));
            moving.clear();
            for (int64_t i = start; i < start + part; i++) {
                const auto slot = static_cast<int32_t>(changed[i]);
                if (memory.values[slot] >= 0)
                    moving.push_back(slot);
                else
                    remove(slot);
            }
            join();
            near.clear();  // lists may get other numbers from now on
            state.due += GROWTH * std::max<int64_t>(store.n_keys - before, 0) + part;
            if (state.due >= ListsState::MOST_DUE) {
                reassign(state.due / STEADY);
                state.due %= STEADY;
            }
            dissolve_short_lists();
        }
    }

    void rebuild(const std::vector<int32_t> &list_of) {
        store.rebuild(memory, list_of, threads);
        std::vector<int64_t> others;
        for (int64_t slot = 0; slot < memory.capacity; slot++)
            if (memory.values[slot] >= 0 && store.keys.places[slot] < 0) others.push_back(slot);
        change(others.data(), static_cast<int64_t>(others.size()), {});
        for (int32_t list = 0; list < store.n_lists; list++) shortened.push_back(list);
        dissolve_short_lists();
    }

  private:
    ListsState &state;
    ListStore &store;
    const Slots &memory;
    const int threads;
    std::vector<Probe> &probes;
    std::vector<int32_t> moving, nearest;  // slots that look for a list, and the one that each finds
    std::vector<int16_t> codes;            // of new keys
    std::vector<int32_t> near;             // the lists that these compare; empty: all
    // Lists whose centroids are out of date; that may be too short; that were split since `nearest` was found.
    std::vector<int32_t> stale, shortened, was_split;

    // Each of `moving`, whose keys are new, finds its list, all in parallel, as the lists are now; then each joins it.
    void join() {
        const auto n = static_cast<int64_t>(moving.size());
        codes.resize(n * store.width);
        const auto code = [&](int64_t i) { return &codes[i * store.width]; };
        find_lists(n, [&](int64_t i) {
            quantise(memory.key(moving[i]), store.size, code(i));
            return code(i);
        });
        for (int64_t i = 0; i < n; i++) {
            if (i + 1 < n) prefetch_move(moving[i + 1], nearest[i + 1]);
            const int32_t slot = moving[i], list = store.keys.chain_of(slot);
            find_again_if_split(i, code(i));
            const int32_t to = list >= 0 && stays(list, nearest[i], code(i)) ? list : nearest[i];
            remove(slot);
            store.add(to >= 0 ? to : store.new_list(), slot, code(i));
            has_grown(store.keys.chain_of(slot));
        }
        refresh_stale();
    }

    // n keys look for their list again, since centroids have moved since they joined it: in each list in turn those that are
    // farthest from its centroid, since of these most find a nearer one.
    void reassign(int64_t n) {
        moving.clear();
        std::vector<int32_t> places, dots;
        std::vector<std::pair<int32_t, int32_t>> farthest;
        while (store.n_keys > 0 && static_cast<int64_t>(moving.size()) < n) {
            if (state.reassigned >= store.n_lists) state.reassigned = 0;
            const auto list = static_cast<int32_t>(state.reassigned++);
            places.clear();
            store.keys.for_each_place(list, [&](int32_t place) { places.push_back(place); });
            const auto length = static_cast<int64_t>(places.size());
            dots.resize(length + 3);
            kernels::dots(store.centroids.code(list), store.at.codes.data(), places.data(), length, store.width, dots.data());
            farthest.resize(length);
            for (int64_t i = 0; i < length; i++) farthest[i] = {dots[i], store.keys.members[places[i]]};
            const int64_t count = (length + FARTHEST - 1) / FARTHEST;
            std::partial_sort(farthest.begin(), farthest.begin() + count, farthest.end());
            for (int64_t i = 0; i < count; i++) moving.push_back(farthest[i].second);
        }
        const auto code = [&](int64_t i) { return store.at.code(store.keys.places[moving[i]]); };
        find_lists(static_cast<int64_t>(moving.size()), code);
        for (size_t i = 0; i < moving.size(); i++) {
            find_again_if_split(i, code(i));
            const int32_t list = store.keys.chain_of(moving[i]);
            if (stays(list, nearest[i], code(i))) continue;
            store.move(moving[i], nearest[i]);
            has_shrunk(list);
            has_grown(nearest[i]);
        }
        refresh_stale();
    }

    // From the last list to the first, since the last one takes the number of one that is dissolved.
    void dissolve_short_lists() {
        sort_distinct(shortened);
        for (; !shortened.empty(); shortened.pop_back()) {
            const int32_t list = shortened.back();
            if (store.keys.length[list] >= SHORTEST || (store.n_lists == 1 && store.keys.length[list] > 0)) continue;
            moving = store.slots_of(list);
            const auto code = [&](int64_t i) { return store.at.code(store.keys.places[moving[i]]); };
            find_lists(static_cast<int64_t>(moving.size()), code, list);
            for (size_t i = 0; i < moving.size(); i++) {
                find_again_if_split(i, code(i), list);
                store.move(moving[i], nearest[i]);
                has_grown(nearest[i]);
            }
            refresh_stale();
            store.remove_empty_list(list);
        }
    }

    // Puts the list of the nearest centroid for each of n keys into `nearest`, but not the list `without`; -1 where there is
    // none.
    template <typename Code>
    void find_lists(int64_t n, const Code &code, int32_t without = -1) {
        was_split.clear();
        nearest.assign(n, -1);
        parallel((n + TILE - 1) / TILE, n >= KEYS_AT_ONCE ? threads : 1, [&](int64_t tile, int thread) {
            const int64_t first = tile * TILE;
            const int count = static_cast<int>(std::min<int64_t>(n - first, TILE));
            Probe *const own = &probes[thread * TILE];
            for (int i = 0; i < count; i++) own[i].set_query(code(first + i));
            if (store.n_lists == 0) return;
            if (near.empty()) return scan(own, count, without, &nearest[first]);
            for (int i = 0; i < count; i++) nearest[first + i] = own[i].nearest_of(store, near);
        });
    }

    void find_again_if_split(int64_t i, const int16_t *code, int32_t without = -1) {
        const bool split = std::find(was_split.begin(), was_split.end(), nearest[i]) != was_split.end();
        if (!split && (nearest[i] >= 0 || store.n_lists == 0)) return;
        probes[0].set_query(code);
        scan(&probes[0], 1, without, &nearest[i]);
    }

    void scan(Probe *own, int n, int32_t without, int32_t *out) {
        // Of many keys, one that scanned few regions would miss its own kind more often, and would itself be missed from then
        // on.
        Probe::scan_centroids(store, own, n, store.are_many() ? std::max(READ_OF_MANY, store.n_lists / SHARE_OF_MANY) : 1);
        for (int i = 0; i < n; i++) {
            own[i].rank_lists(store, 2);
            out[i] = own[i].nearest(own[i].nearest(0) == without);
            if (out[i] == without) out[i] = (without + 1) % store.n_lists;  // no other was picked
        }
    }

    // Whether no other list is nearer to a key than its own, which the scan of sign codes may have missed.
    bool stays(int32_t list, int32_t other, const int16_t *code) const {
        if (list == other) return true;
        const int32_t both[] = {list, other};
        int32_t dots[2 + 3];
        kernels::dots(code, store.centroids.codes.data(), both, 2, store.width, dots);
        return dots[0] >= dots[1];
    }

    // What is needed to take a key out of its list and to put it into another.
    void prefetch_move(int32_t slot, int32_t to) const {
        const int32_t from = store.keys.chain_of(slot);
        for (const int32_t list : {to, from}) {
            if (list < 0) continue;
            prefetch(&store.sums[list * store.width], store.width * sizeof(int32_t));
            store.prefetch_place(store.keys.next_place(list));
        }
        if (from >= 0) store.prefetch_place(store.keys.places[slot]);
    }

    void remove(int32_t slot) {
        const int32_t list = store.keys.chain_of(slot);
        if (list < 0) return;
        store.remove(slot);
        has_shrunk(list);
    }

    void has_shrunk(int32_t list) {
        stale.push_back(list);
        if (store.keys.length[list] < SHORTEST) shortened.push_back(list);
    }

    void has_grown(int32_t list) {
        stale.push_back(list);
        // There is room for as many lists as can be needed, but not always while short ones wait to be dissolved.
        const int longest = store.are_many() ? LONGEST_OF_MANY : LONGEST;
        if (store.keys.length[list] <= longest || store.n_lists == store.max_lists) return;
        const std::vector<int32_t> slots = store.slots_of(list);
        std::vector<int32_t> places;
        for (const int32_t slot : slots) places.push_back(store.keys.places[slot]);
        const std::vector<char> second = divide(store.at, places);
        const int32_t other = store.new_list();
        for (size_t i = 0; i < slots.size(); i++)
            if (second[i]) store.move(slots[i], other);
        store.refresh({list, other}, 1);
        was_split.push_back(list);
    }

    void refresh_stale() {
        sort_distinct(stale);
        store.refresh(stale, threads);
        stale.clear();
    }
};

void AutoIndex::change_lists(const Slots &memory, const int64_t *slots, int64_t n, const Found *asked, int threads) {
    std::vector<int32_t> near;
    if (asked && asked->hints && asked->n <= MOST_HINTS)
        near.assign(asked->hints, asked->hints + asked->hint_count * asked->n);
    sort_distinct(near);
    if (!near.empty() && (near.front() < 0 || near.back() >= lists_->n_lists)) near.clear();
    // A stream of few keys at a time wakes no other thread, not even for what it does for many of them together.
    Changes(*this, memory, n >= KEYS_AT_ONCE ? threads : 1).change(slots, n, std::move(near));
}

void AutoIndex::rebuild_lists(const Slots &memory, ListsState state, int threads) {
    const std::vector<int32_t> list_of = std::exchange(state.list_of, {});
    state_ = std::move(state);
    Changes(*this, memory, threads).rebuild(list_of);
}
