// Keys that join, leave and change lists.
#include <algorithm>
#include <cstring>
#include <vector>

#include "../memory/parallel.h"
#include "lists.h"

namespace {

// Keys. A longer list is split. Shorter lists are of fewer kinds, so that fewer have to be read to find the nearest
// key, but there are more centroids to compare with. The more lists there are, the more of them happen to be nearer
// than the right one: so in a memory of many keys they are shorter.
constexpr int LONGEST = 64, LONGEST_OF_MANY = 32;
// Keys to reassign: one per STEADY that change, and GROWTH / STEADY per key that is new, since centroids move most
// then. More keep keys in their nearest lists and cost time.
constexpr int STEADY = 8, GROWTH = 16;
static_assert(Lists::MOST_DUE == 2 * TILE * STEADY);  // two tiles at once, which scan centroids faster
constexpr int FARTHEST = 4;                           // keys of each block that are candidates, the farthest first
constexpr int ROUNDS = 4;                             // of 2-means at a split
constexpr int64_t KEYS_AT_ONCE = 8;                   // from which on a second thread pays
// Queries. Comparing with all centroids by sign codes costs less than with the lists of more.
constexpr int64_t MOST_HINTS = 512;

// Which keys go into the second list: 2-means, from two keys that are far from the centroid and from each other. No
// side gets fewer than SHORTEST.
class TwoMeans {
  public:
    explicit TwoMeans(const Batch &of)
        : second(of.size()), keys(of), n(static_cast<int>(of.size())), dots(n + 3), sum(of.width), leaning(n), sorted(n),
          centroid(of.width) {
        lean(centroid.data(), centroid_of([](int) { return true; }), 1);
        const auto a = farthest();
        std::fill(leaning.begin(), leaning.end(), 0.0f);
        lean(keys[a].code, keys[a].scale, 1);
        const auto b = farthest();
        lean(keys[b].code, keys[b].scale, -1);
        divide();
        for (int round = 0; round < ROUNDS; round++) {
            std::fill(leaning.begin(), leaning.end(), 0.0f);
            lean(centroid.data(), centroid_of([&](int i) { return !second[i]; }), 1);
            lean(centroid.data(), centroid_of([&](int i) { return second[i]; }), -1);
            divide();
        }
    }

    std::vector<bool> second;

  private:
    const Batch &keys;
    const int n;
    std::vector<int32_t> dots, sum;
    std::vector<float> leaning, sorted;  // of each key: the more, the nearer to the first side than to the second
    std::vector<int8_t> centroid;

    void lean(const int8_t *code, float scale, float sign) {
        kernels::dots(code, keys.codes.data(), nullptr, n, keys.width, dots.data());
        for (int i = 0; i < n; i++) leaning[i] += sign * static_cast<float>(dots[i]) * (scale * keys.scales[i]);
    }
    int64_t farthest() const { return std::min_element(leaning.begin(), leaning.end()) - leaning.begin(); }
    template <typename Belongs>
    float centroid_of(const Belongs &belongs) {
        std::fill(sum.begin(), sum.end(), 0);
        for (int i = 0; i < n; i++)
            if (belongs(i)) kernels::add(sum.data(), keys[i].code, ListStore::weight(keys[i].scale), keys.width);
        return quantise_normalised(sum.data(), keys.width, centroid.data());
    }
    void divide() {
        sorted = leaning;
        std::sort(sorted.begin(), sorted.end());
        const float limit = std::clamp(0.0f, sorted[SHORTEST], sorted[n - 1 - SHORTEST]);
        int count = 0;
        for (int i = 0; i < n; i++) count += second[i] = leaning[i] < limit;
        for (int i = 0; i < n && count < SHORTEST; i++)  // where many are equal
            if (!second[i] && leaning[i] == limit) count += second[i] = true;
    }
};

}  // namespace

// One change of the lists.
class Lists::Changes {
  public:
    Changes(Lists &of, const Slots &slots, int most_threads)
        : lists(of), store(of.store_), memory(slots), threads(most_threads), probes(Probe::pool(most_threads)),
          scratch(most_threads) {}

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
            join(true, [&](int64_t i) { moved.encode(i, memory.key(moving[i]), store.size); });
            near.clear();  // lists may get other numbers from now on
            const int64_t grown = std::max<int64_t>(store.n_keys - before, 0);
            lists.due += static_cast<int32_t>(GROWTH * grown + part);
            if (lists.due >= MOST_DUE) {
                reassign(lists.due / STEADY);
                lists.due %= STEADY;
            }
            dissolve_short_lists();
        }
    }

    void rebuild(bool keep_places) {
        if (!keep_places) store.clear();
        store.encode_all(memory, scratch.data(), threads);
        std::vector<int64_t> astray;
        for (int64_t slot = 0; slot < memory.capacity; slot++)
            if ((memory.values[slot] >= 0) != (store.keys.places[slot] >= 0)) astray.push_back(slot);
        change(astray.data(), static_cast<int64_t>(astray.size()), {});
    }

  private:
    Lists &lists;
    ListStore &store;
    const Slots &memory;
    const int threads;
    std::vector<Probe> &probes;
    std::vector<std::vector<int32_t>> scratch;  // of each thread
    std::vector<int32_t> moving, nearest;       // slots that look for a list, and the one they find
    Batch moved, taken;                         // their keys; those of a list that is split or dissolved
    std::vector<int32_t> near;                  // the lists they compare; empty: all
    // Lists whose centroids are out of date; that may be too short; that were split since `nearest` was found.
    std::vector<int32_t> stale, shortened, was_split;

    // Each of `moving` finds its list, all in parallel, as the lists are now; then each joins it, unless it is there.
    // load(i) puts the i-th into `moved`; are_new: it may differ from what is in its list.
    template <typename Load>
    void join(bool are_new, const Load &load) {
        const auto n = static_cast<int64_t>(moving.size());
        nearest.resize(n);
        moved.resize(n, store.width);
        parallel((n + TILE - 1) / TILE, n >= KEYS_AT_ONCE ? threads : 1, [&](int64_t tile, int thread) {
            const int64_t first = tile * TILE, end = std::min(n, first + TILE);
            for (int64_t i = first; i < end; i++) {
                load(i);
                moved.slots[i] = moving[i];
            }
            Probe *const own = &probes[thread * TILE];
            if (near.empty()) return find_lists(own, moved, first, end, &nearest[first]);
            for (int64_t i = first; i < end; i++) {
                own->set_query(moved[i].code, moved[i].scale);
                nearest[i] = own->nearest_of(store, near);
            }
        });
        was_split.clear();
        for (int64_t i = 0; i < n; i++) {
            if (i + 1 < n) prefetch_move(moving[i + 1], nearest[i + 1]);
            if (nearest[i] < 0 || std::find(was_split.begin(), was_split.end(), nearest[i]) != was_split.end())
                find_lists(probes.data(), moved, i, i + 1, &nearest[i]);
            const CodedKey key = moved[i];
            const int32_t list = store.keys.chain_of(key.slot);
            if (list < 0 || !stays(list, nearest[i], key)) {
                remove(key.slot);
                add(nearest[i], key);
            } else if (are_new) {
                store.replace(key, scratch[0]);
                stale.push_back(list);
            }
        }
        refresh_stale();
    }

    // The list of the nearest centroid for each of at most TILE keys, the first to the last of a batch; -1 where there
    // is none.
    void find_lists(Probe *own, const Batch &keys, int64_t first, int64_t last, int32_t *out) {
        const auto n = static_cast<int>(last - first);
        std::fill(out, out + n, -1);
        if (store.n_lists == 0) return;
        for (int i = 0; i < n; i++) own[i].set_query(keys[first + i].code, keys[first + i].scale);
        // Of many keys, one that scanned few regions would miss its own kind more often, and would itself be missed from
        // then on.
        Probe::scan_centroids(store, own, n, store.are_many() ? 1 : 0);
        for (int i = 0; i < n; i++) {
            own[i].rank_lists(store, 1);
            out[i] = own[i].nearest[0].id;
        }
    }

    // Whether no other list is nearer to a key than its own, which the scan of sign codes may have missed.
    bool stays(int32_t list, int32_t other, const CodedKey &key) const {
        if (list == other) return true;
        const int32_t both[] = {list, other};
        int32_t dots[2 + 3];
        kernels::dots(key.code, store.centroids.codes.data(), both, 2, store.width, dots);
        auto similarity = [&](int i) { return static_cast<float>(dots[i]) * (store.centroids.scales[both[i]] * key.scale); };
        return similarity(0) >= similarity(1);
    }

    // What is needed to take a key out of its list and to put it into another.
    void prefetch_move(int32_t slot, int32_t to) const {
        const int32_t from = store.keys.chain_of(slot);
        for (const int32_t list : {to, from}) {
            if (list < 0) continue;
            prefetch(store.sums.data() + list * store.width, store.width * sizeof(int32_t));
            store.prefetch_place(store.keys.next_place(list));
        }
        if (from >= 0) store.prefetch_place(store.keys.places[slot]);
    }

    void remove(int32_t slot) {
        const int32_t list = store.keys.chain_of(slot);
        if (list < 0) return;
        store.remove(slot);
        stale.push_back(list);
        const int32_t length = store.keys.length[list];
        if (length == SHORTEST - 1 || length == 0) shortened.push_back(list);
    }

    void add(int32_t list, const CodedKey &key) {
        if (list < 0) list = store.new_list();
        store.add(list, key, scratch[0]);
        // There is room for as many lists as can be needed, but not always while short ones wait to be dissolved.
        const int longest = store.are_many() ? LONGEST_OF_MANY : LONGEST;
        if (store.keys.length[list] > longest && store.n_lists < store.max_lists)
            split(list);
        else
            stale.push_back(list);
    }

    void split(int32_t list) {
        store.copy_keys(list, taken);
        const TwoMeans division(taken);
        store.empty(list);
        const int32_t both[] = {list, store.new_list()};
        for (int64_t i = 0; i < taken.size(); i++) store.add(both[division.second[i]], taken[i], scratch[0]);
        store.refresh(both, 2, scratch.data(), 1);
        was_split.push_back(list);
    }

    void refresh_stale() {
        std::sort(stale.begin(), stale.end());
        stale.erase(std::unique(stale.begin(), stale.end()), stale.end());
        store.refresh(stale.data(), static_cast<int64_t>(stale.size()), scratch.data(), threads);
        stale.clear();
    }

    // n keys look for their list again, since centroids have moved since they joined it: in each block in turn one of
    // those that are farthest from their centroid, since of these most find a nearer one.
    void reassign(int64_t n) {
        moving.clear();
        for (int64_t left = store.n_keys > 0 ? n : 0; left > 0; lists.reassigned++) {
            if (lists.reassigned >= FARTHEST * store.keys.blocks) lists.reassigned = 0;
            const int32_t block = lists.reassigned % store.keys.blocks, rows = store.keys.rows_in(block);
            if (rows == 0) continue;
            const int64_t first = int64_t{BLOCK} * block, list = store.keys.owner[block];
            int32_t dots[BLOCK + 3];
            kernels::dots(store.centroids.codes.data() + list * store.width, store.at.codes.data() + first * store.width,
                          nullptr, rows, store.width, dots);
            Near farthest[BLOCK];
            for (int i = 0; i < rows; i++) farthest[i] = {-static_cast<float>(dots[i]) * store.at.scales[first + i], i};
            const int which = std::min(lists.reassigned / store.keys.blocks, rows - 1);
            std::nth_element(farthest, farthest + which, farthest + rows);
            moving.push_back(store.keys.members[first + farthest[which].id]);
            left--;
        }
        join(false, [&](int64_t i) { moved.copy(i, store.key_at(store.keys.places[moving[i]])); });
    }

    // From the last list to the first, since the last one takes the number of one that is dissolved.
    void dissolve_short_lists() {
        std::sort(shortened.begin(), shortened.end());
        shortened.erase(std::unique(shortened.begin(), shortened.end()), shortened.end());
        for (; !shortened.empty(); shortened.pop_back()) {
            const int32_t list = shortened.back(), length = store.keys.length[list];
            if (length >= SHORTEST || (store.n_lists == 1 && length > 0)) continue;
            Batch keys;  // `taken` may be needed for a split
            store.copy_keys(list, keys);
            store.empty(list);
            store.remove_empty_list(list, scratch[0]);
            for (int64_t first = 0; first < keys.size(); first += TILE) {
                int32_t found[TILE];
                const int64_t end = std::min(keys.size(), first + TILE);
                find_lists(probes.data(), keys, first, end, found);
                for (int64_t i = first; i < end; i++) add(found[i - first], keys[i]);
            }
            refresh_stale();
        }
    }
};

void Lists::change(const Slots &memory, const int64_t *slots, int64_t n, const int32_t *hints, int64_t n_hints,
                   int threads) {
    std::vector<int32_t> near;
    if (n_hints <= MOST_HINTS)
        for (int64_t i = 0; hints && i < n_hints; i++) near.insert(near.end(), hints + HINTS * i, hints + HINTS * i + 2);
    std::sort(near.begin(), near.end());
    near.erase(std::unique(near.begin(), near.end()), near.end());
    if (!near.empty() && (near.front() < 0 || near.back() >= store_.n_lists)) near.clear();
    // A stream of few keys at a time wakes no other thread, not even for what it does for many of them together.
    Changes(*this, memory, n >= KEYS_AT_ONCE ? threads : 1).change(slots, n, std::move(near));
}

void Lists::rebuild(const Slots &memory, bool keep_places, int threads) {
    Changes(*this, memory, threads).rebuild(keep_places);
}
