// The approximate index: its invariants, what it finds, its state, and its threads.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <numeric>
#include <thread>
#include <vector>

#include "../index/auto.h"
#include "../kernels/kernels.h"
#include "check.h"
#include "memory.h"

namespace {

using Vectors = std::vector<float>;

// A memory with slots of its own, and updates that write and move keys.
struct Memory {
    int64_t capacity, key_size, now = 0;
    Vectors keys;
    std::vector<int64_t> values, sources, counts, times;

    Memory(int64_t key_size, int64_t capacity)
        : capacity(capacity), key_size(key_size), keys(capacity * key_size), values(capacity, -1), sources(capacity, -1),
          counts(capacity), times(capacity, -1) {}

    Slots slots() {
        return {capacity, key_size, keys.data(), values.data(), sources.data(), counts.data(), times.data(), &now, capacity};
    }
    void write(int64_t slot, const float *key, int64_t source = -1) {
        std::copy_n(key, key_size, &keys[slot * key_size]);
        values[slot] = slot + 7;
        sources[slot] = source;
        counts[slot] = 1;
        times[slot] = now;
    }
    void erase(int64_t slot) {
        std::fill_n(&keys[slot * key_size], key_size, 0.0f);
        values[slot] = sources[slot] = times[slot] = -1;
        counts[slot] = 0;
    }
    int64_t filled() const {
        return std::count_if(values.begin(), values.end(), [](int64_t value) { return value >= 0; });
    }
    float similarity(const float *query, int64_t slot) const {
        double sum = 0;
        for (int64_t i = 0; i < key_size; i++) sum += static_cast<double>(query[i]) * keys[slot * key_size + i];
        return static_cast<float>(sum);
    }
};

Found find(const AutoIndex &index, Memory &memory, const Vectors &queries, int64_t k, int threads = 1,
           const std::vector<int64_t> &exclude = {}) {
    const int64_t n = static_cast<int64_t>(queries.size()) / memory.key_size;
    Found found = queries_of(queries.data(), n, memory.key_size, k, index.hints(), exclude.empty() ? nullptr : exclude.data());
    index.find(memory.slots(), 40, threads, found);
    return found;
}

// Around random ones of the centres.
Vectors clustered(int64_t n, int64_t size, const Vectors &centres, float noise = 0.37f) {
    Vectors out(n * size);
    for (int64_t i = 0; i < n; i++) {
        const float *centre = &centres[random_int(0, static_cast<int64_t>(centres.size()) / size - 1) * size];
        for (int64_t j = 0; j < size; j++)
            out[i * size + j] = centre[j] + noise * random_normal() / std::sqrt(static_cast<float>(size));
        normalise(&out[i * size], size);
    }
    return out;
}

void fill(Memory &memory, AutoIndex &index, const Vectors &keys, int threads = 1) {
    for (int64_t slot = 0; slot < static_cast<int64_t>(keys.size()) / memory.key_size; slot++)
        memory.write(slot, &keys[slot * memory.key_size], slot / 4);
    index.rebuild(memory.slots(), threads);
}

// An update as the paper's rule makes them: half of the queries move the nearest key, the others are written.
Found update(Memory &memory, AutoIndex &index, const Vectors &queries, int threads = 1) {
    const int64_t size = memory.key_size;
    const Found found = find(index, memory, queries, 5, threads);
    memory.now++;
    std::vector<int64_t> changed;
    for (int64_t i = 0; i < found.n; i++) {
        const float *query = &queries[i * size];
        int64_t slot = found.slots[i * found.k];
        if (random_int(0, 1) && slot >= 0 && memory.similarity(query, slot) > -0.9f) {
            float *key = &memory.keys[slot * size];
            for (int64_t j = 0; j < size; j++) key[j] += query[j];
            normalise(key, size);
            memory.times[slot] = memory.now;
        } else {
            slot = random_int(0, memory.capacity - 1);
            memory.write(slot, query, random_int(0, 50));
        }
        changed.push_back(slot);
    }
    std::sort(changed.begin(), changed.end());
    changed.erase(std::unique(changed.begin(), changed.end()), changed.end());
    index.change(memory.slots(), changed.data(), static_cast<int64_t>(changed.size()), &found, threads);
    return found;
}

void forget(Memory &memory, AutoIndex &index, double share) {
    std::vector<int64_t> erased;
    for (int64_t slot = 0; slot < memory.capacity; slot++)
        if (memory.values[slot] >= 0 && random_float(0, 1) < static_cast<float>(share)) erased.push_back(slot);
    for (const int64_t slot : erased) memory.erase(slot);
    index.change(memory.slots(), erased.data(), static_cast<int64_t>(erased.size()), nullptr, 1);
}

std::vector<int> sign_code(const Signs &signs, int64_t i, const CodeSize &size) {
    std::vector<int> out;
    for (int64_t nibble = 0; nibble < size.nibbles(); nibble++)
        out.push_back(signs.group(i / 32)[16 * nibble + i % 16] >> (i % 32 / 16 * 4) & 15);
    return out;
}

bool same_codes(const Codes &a, int64_t i, const Codes &b, int64_t j, const CodeSize &size) {
    return std::equal(a.code(i), a.code(i) + size.width, b.code(j)) && sign_code(a.signs, i, size) == sign_code(b.signs, j, size);
}

// Every filled slot is in one list, with the codes of its key; every centroid is that of its keys, and in its region
// once.
void check_lists(Memory &memory, const AutoIndex &index, int64_t many = AutoIndex::MANY) {
    const ListStore &store = *index.inspect_lists();
    CHECK(store.n_keys == memory.filled());
    const ListsState state = index.export_state();
    state.check(memory.capacity);
    AutoIndex anew(memory.key_size, memory.capacity, 0.95, 0, many);
    anew.restore(state);
    anew.rebuild(memory.slots(), 1);
    const ListStore &fresh = *anew.inspect_lists();
    CHECK(fresh.n_lists == store.n_lists);
    for (int64_t slot = 0; slot < memory.capacity; slot++) {
        const int64_t place = store.keys.places[slot];
        CHECK((place >= 0) == (memory.values[slot] >= 0));
        if (place < 0) continue;
        CHECK(store.keys.members[place] == slot);
        CHECK(store.keys.chain_of(static_cast<int32_t>(slot)) == fresh.keys.chain_of(static_cast<int32_t>(slot)));
        CHECK(same_codes(store.at, place, fresh.at, fresh.keys.places[slot], store.size));
        for (int64_t i = 0; i < memory.key_size; i++)
            CHECK(std::abs(store.at.code(place)[i] - memory.keys[slot * memory.key_size + i] * UNIT) <= 0.51f);
    }
    std::vector<int> in_regions(store.n_lists);
    for (int32_t list = 0; list < store.n_lists; list++) {
        CHECK(store.keys.length[list] >= SHORTEST || store.n_lists == 1);
        CHECK(std::memcmp(&store.sums[list * store.width], &fresh.sums[list * store.width], store.width * 4) == 0);
        CHECK(same_codes(store.centroids, list, fresh.centroids, list, store.size));
        if (!store.regions) continue;
        CHECK(store.regions->lists.chain_of(list) == store.regions->nearest[list]);
        CHECK(store.regions->nearest[list] == fresh.regions->nearest[list]);
        CHECK(sign_code(store.regions->signs, store.regions->lists.places[list], store.size) ==
              sign_code(store.centroids.signs, list, store.size));
    }
    for (int32_t region = 0; store.regions && region < 2 * AXES; region++)
        store.regions->lists.for_each_block(region, [&](Block block) {
            CHECK(store.regions->lists.owner[block.block] == region);
            for (int row = 0; row < block.rows; row++) in_regions[store.regions->lists.members[block.block * 32 + row]]++;
        });
    CHECK(!store.regions || std::count(in_regions.begin(), in_regions.end(), 1) == store.n_lists);
}

void read_everything(AutoIndex &index, Memory &memory) {
    ListsState state = index.export_state();
    state.lists_to_read = ListsState::ALL - 1;
    index.restore(state);
    index.rebuild(memory.slots(), 1);
    CHECK(index.reads_lists());
}

double recall_at_1(const AutoIndex &index, Memory &memory, const Vectors &queries, int64_t k = 1) {
    const Found found = find(index, memory, queries, k);
    int64_t hits = 0;
    for (int64_t i = 0; i < found.n; i++) {
        float best = -2;
        for (int64_t slot = 0; slot < memory.capacity; slot++)
            if (memory.values[slot] >= 0) best = std::max(best, memory.similarity(&queries[i * memory.key_size], slot));
        const int64_t slot = found.slots[i * found.k];
        hits += slot >= 0 && memory.similarity(&queries[i * memory.key_size], slot) >= best - 2e-5f;
    }
    return static_cast<double>(hits) / static_cast<double>(found.n);
}

void test_random_streams() {
    for (const int64_t many : {AutoIndex::MANY, int64_t{400}})
        for (const int64_t size : {1, 3, 32, 100, 300}) {
            Memory memory(size, 900);
            AutoIndex index(size, 900, 0.95, 0, many);
            index.rebuild(memory.slots(), 1);
            const Vectors centres = unit_vectors(20, size);
            for (int step = 0; step < 60; step++) {
                update(memory, index, clustered(40, size, centres, 0.5f));
                if (step % 20 == 10) forget(memory, index, 0.6);
                if (step % 10 >= 8) check_lists(memory, index, many);
            }
            forget(memory, index, 1);
            check_lists(memory, index, many);
            CHECK(index.inspect_lists()->n_lists == 0);
            const Found nothing = find(index, memory, unit_vectors(3, size), 4);
            CHECK(std::count(nothing.slots, nothing.slots + 12, -1) == 12);
            update(memory, index, unit_vectors(100, size));
            check_lists(memory, index, many);
        }
}

void test_regions_follow_a_memory_that_grows_and_shrinks() {
    constexpr int64_t many = 5000;
    Memory memory(24, 12000);
    AutoIndex index(24, 12000, 0.95, 0, many);
    index.rebuild(memory.slots(), 1);
    const Vectors centres = unit_vectors(600, 24);
    for (int turn = 0; turn < 2; turn++) {
        while (memory.filled() < 8000) update(memory, index, clustered(500, 24, centres));
        CHECK(index.inspect_lists()->n_lists > 256);
        CHECK(recall_at_1(index, memory, clustered(200, 24, centres)) > 0.88);
        check_lists(memory, index, many);
        forget(memory, index, 0.8);
        check_lists(memory, index, many);
    }
}

void test_finds_what_brute_force_finds() {
    constexpr int64_t n = 3000, size = 20, k = 50;
    Memory memory(size, n);
    AutoIndex index(size, n, 0.95, 0);
    fill(memory, index, unit_vectors(n, size));
    forget(memory, index, 0.2);
    read_everything(index, memory);
    const Vectors queries = unit_vectors(100, size);
    std::vector<int64_t> exclude(100);
    for (int64_t i = 0; i < 100; i++) exclude[i] = i % 3 ? random_int(0, n / 4) : -1;
    const Found found = find(index, memory, queries, k, 1, exclude);
    for (int64_t row = 0; row < found.n; row++) {
        std::vector<float> best;
        for (int64_t slot = 0; slot < n; slot++)
            if (memory.values[slot] >= 0 && (exclude[row] < 0 || memory.sources[slot] != exclude[row]))
                best.push_back(memory.similarity(&queries[row * size], slot));
        std::sort(best.begin(), best.end(), std::greater<>());
        float weights = 0;
        for (int64_t j = 0; j < k; j++) {
            const int64_t slot = found.slots[row * k + j];
            CHECK(slot >= 0 && memory.values[slot] == found.values[row * k + j]);
            CHECK(exclude[row] < 0 || memory.sources[slot] != exclude[row]);
            CHECK(std::abs(found.similarities[row * k + j] - memory.similarity(&queries[row * size], slot)) < 5e-5f);
            CHECK(std::abs(found.similarities[row * k + j] - best[j]) < 5e-5f);
            CHECK(j == 0 || found.similarities[row * k + j] <= found.similarities[row * k + j - 1]);
            weights += found.weights[row * k + j];
        }
        CHECK(std::abs(found.similarities[row * k] - best[0]) < 5e-5f);
        CHECK(std::abs(weights - 1) < 1e-5f);
    }
    // More neighbours than keys.
    const Found all = find(index, memory, queries, n + 100);
    for (int64_t row = 0; row < all.n; row++) {
        std::vector<int64_t> slots(&all.slots[row * all.k], &all.slots[row * all.k] + memory.filled());
        CHECK(all.slots[row * all.k + memory.filled()] == -1);
        std::sort(slots.begin(), slots.end());
        CHECK(slots.front() >= 0 && std::unique(slots.begin(), slots.end()) == slots.end());
    }
}

void test_newest_of_equal_keys_comes_first() {
    constexpr int64_t size = 20;
    const Vectors keys = unit_vectors(60, size);
    Memory memory(size, 180);
    AutoIndex index(size, 180, 0.95, 0);
    fill(memory, index, {});
    for (int64_t slot = 0; slot < 180; slot++) {
        memory.now = random_int(0, 40);
        memory.write(slot, &keys[slot % 60 * size]);
    }
    index.rebuild(memory.slots(), 1);
    read_everything(index, memory);
    const Slots slots = memory.slots();
    for (const int64_t k : {1, 3, 10, 100, 180}) {
        const Found found = find(index, memory, keys, k);
        for (int64_t row = 0; row < 60; row++) {
            CHECK(found.slots[row * k] % 60 == row);
            for (int64_t j = 0; j + 1 < std::min<int64_t>(k, 3); j++)
                CHECK(slots.newer(found.slots[row * k + j], found.slots[row * k + j + 1]));
            for (int64_t other = row; other < 180; other += 60)
                CHECK(other == found.slots[row * k] || slots.newer(found.slots[row * k], other));
        }
    }
}

void test_all_keys_equal() {
    Memory memory(12, 1000);
    AutoIndex index(12, 1000, 0.95, 0);
    const Vectors key = unit_vectors(1, 12);
    Vectors keys;
    for (int i = 0; i < 1000; i++) keys.insert(keys.end(), key.begin(), key.end());
    fill(memory, index, keys);
    check_lists(memory, index);
    const Found found = find(index, memory, key, 10);
    for (int64_t j = 0; j < found.k; j++) CHECK(std::abs(found.similarities[j] - 1) < 5e-5f);
    forget(memory, index, 0.99);
    check_lists(memory, index);
}

void test_reaches_the_target_recall() {
    const Vectors centres = unit_vectors(1000, 32);
    for (const int64_t many : {AutoIndex::MANY, int64_t{5000}}) {
        Memory memory(32, 15000);
        AutoIndex index(32, 15000, 0.95, 8192, many);
        fill(memory, index, clustered(15000, 32, centres), 2);
        CHECK(index.reads_lists());
        for (int i = 0; i < 20; i++) update(memory, index, clustered(128, 32, centres));
        CHECK(recall_at_1(index, memory, clustered(300, 32, centres)) > 0.92);
    }
}

// Codes cannot tell such keys apart, so that all that could be the nearest have to be read.
void test_finds_near_duplicates() {
    for (const auto &[kinds, each] : {std::pair{50, 300}, std::pair{5, 3000}}) {
        Memory memory(64, kinds * each);
        AutoIndex index(64, kinds * each, 0.95, 8192);
        const Vectors centres = unit_vectors(kinds, 64);
        fill(memory, index, clustered(kinds * each, 64, centres, 0.24f));  // 0.03 in each dimension
        const Vectors stored(memory.keys.begin(), memory.keys.begin() + 300 * 64);
        CHECK(recall_at_1(index, memory, stored) > 0.93);
        for (int i = 0; i < 20; i++) update(memory, index, clustered(128, 64, centres, 0.24f));
        CHECK(recall_at_1(index, memory, stored) > 0.93);
        CHECK(recall_at_1(index, memory, clustered(300, 64, centres, 0.24f)) > 0.93);
    }
}

void test_exact_where_lists_do_not_pay() {
    Memory memory(16, 2000);
    AutoIndex index(16, 2000, 0.95, 500);
    CHECK(index.hints() == 2 && AutoIndex(16, 500, 0.95, 500).hints() == 0);
    index.rebuild(memory.slots(), 1);
    bool was_exact = false, was_read = false;
    for (int step = 0; step < 60; step++) {
        const Found found = update(memory, index, unit_vectors(30, 16));
        CHECK(index.reads_lists() == (memory.filled() > 500) || index.export_state().lists_to_read == ListsState::ALL);
        (index.reads_lists() ? was_read : was_exact) = true;
        if (!index.reads_lists()) CHECK(recall_at_1(index, memory, unit_vectors(20, 16)) == 1);
        if (step == 0) CHECK(found.hints[0] == 0);  // as it was
    }
    CHECK(was_exact && was_read);
    check_lists(memory, index);
    forget(memory, index, 0.9);
    CHECK(!index.reads_lists() && recall_at_1(index, memory, unit_vectors(20, 16)) == 1);
    // Where no key is near, too many lists would have to be read.
    Memory far(128, 4000);
    AutoIndex of_far(128, 4000, 0.95, 0);
    fill(far, of_far, unit_vectors(4000, 128));
    for (int step = 0; step < 20; step++) update(far, of_far, unit_vectors(64, 128));
    CHECK(!of_far.reads_lists());
    check_lists(far, of_far);
    CHECK(recall_at_1(of_far, far, unit_vectors(50, 128)) == 1);
}

// What a run comes to. `interrupt` may put another index in place of the one in use.
struct End {
    std::vector<Found> found;
    Memory memory;
    ListsState state;
    bool operator==(const End &other) const {
        std::vector<double> all[2];
        for (int i = 0; i < 2; i++)
            ListsState::each_field(i ? other.state : state, [&](const char *, const auto &field) {
                if constexpr (std::is_arithmetic_v<std::decay_t<decltype(field)>>)
                    all[i].push_back(static_cast<double>(field));
                else
                    all[i].insert(all[i].end(), field.begin(), field.end());
            });
        return found == other.found && memory.keys == other.memory.keys && all[0] == all[1];
    }
};

End run(int64_t many, int64_t size, int threads, const std::function<void(AutoIndex &, Memory &)> &interrupt) {
    random_bits.seed(5);
    const int64_t capacity = many == AutoIndex::MANY ? 1500 : 10000, batch = capacity / 30;
    Memory memory(size, capacity);
    AutoIndex index(size, capacity, 0.9, 200, many);
    index.rebuild(memory.slots(), threads);
    const Vectors centres = unit_vectors(capacity / 15, size);
    std::vector<Found> found;
    for (int step = 0; step < 80; step++) {
        found.push_back(update(memory, index, clustered(batch, size, centres, 0.6f), threads));
        if (step % 30 == 10) forget(memory, index, 0.125);
        if (step % 25 == 24) interrupt(index, memory);
    }
    CHECK(many == AutoIndex::MANY || index.inspect_lists()->n_lists > 256);  // so that regions are used
    return {found, memory, index.export_state()};
}

void test_a_restored_run_goes_on_the_same() {
    for (const int64_t many : {AutoIndex::MANY, int64_t{3000}}) {
        const End straight = run(many, 12, 1, [](AutoIndex &, Memory &) {});
        const End resumed = run(many, 12, 1, [&](AutoIndex &index, Memory &memory) {
            const ListsState state = index.export_state();
            // Another history, of which nothing may be left.
            std::mt19937_64 bits = random_bits;
            Memory other(12, memory.capacity);
            for (int i = 0; i < 3; i++) update(other, index, unit_vectors(500, 12));
            random_bits = bits;
            index.restore(state);
            index.rebuild(memory.slots(), 1);
        });
        CHECK(straight == resumed);
    }
}

void test_threads_and_variants_give_the_same() {
    const auto straight = [](AutoIndex &, Memory &) {};
    const auto names = kernels::variants();
    const auto check = [&](int64_t many, int64_t size) {
        const End best = run(many, size, 1, straight);
        CHECK(run(many, size, 4, straight) == best);
        for (const char *name : names) {
            CHECK(kernels::use(name));
            if (name != names.back()) CHECK(run(many, size, 1, straight) == best);
        }
    };
    check(AutoIndex::MANY, 140);  // sign codes of 256 bits
    check(3000, 40);              // of 128 bits, and regions
}

void test_bad_states_are_refused() {
    Memory memory(16, 1000);
    AutoIndex index(16, 1000, 0.95, 0);
    fill(memory, index, unit_vectors(1000, 16));
    forget(memory, index, 0.5);
    const Vectors queries = unit_vectors(20, 16);
    const Found before = find(index, memory, queries, 10);
    const ListsState good = index.export_state();
    int refused = 0, tried = 0;
    const auto attempt = [&](const std::function<void(ListsState &)> &spoil) {
        ListsState state = good;
        spoil(state);
        tried++;
        try {
            index.restore(state);
        } catch (const std::invalid_argument &) {
            refused++;
        }
    };
    for (const int32_t wrong : {INT32_MIN, -2, 7, 1 << 20, INT32_MAX})
        attempt([&](ListsState &state) { std::fill(state.list_of.begin(), state.list_of.end(), wrong); });
    attempt([](ListsState &state) { state.list_of.resize(1001); });
    attempt([](ListsState &state) { state.list_of[5] = static_cast<int32_t>(state.list_of.size()) / 12 + 3; });
    attempt([](ListsState &state) {  // a list that has no key
        std::replace(state.list_of.begin(), state.list_of.end(), 0, -1);
    });
    const std::vector<int64_t ListsState::*> numbers = {&ListsState::reassigned, &ListsState::due, &ListsState::lists_to_read,
                                                        &ListsState::asked};
    for (const auto number : numbers) attempt([&](ListsState &state) { state.*number = -1; });
    attempt([](ListsState &state) { state.reassigned = int64_t{1} << 40; });
    attempt([](ListsState &state) { state.due = ListsState::MOST_DUE; });
    for (const int64_t wrong : {int64_t{0}, int64_t{1} << 40})
        attempt([&](ListsState &state) { state.lists_to_read = wrong; });
    for (const double wrong : {-1.0, double(NAN), double(INFINITY)}) {
        attempt([&](ListsState &state) { state.share = wrong; });
        attempt([&](ListsState &state) { state.needed[3] = wrong; });
        attempt([&](ListsState &state) { state.recent[3] = wrong; });
    }
    attempt([](ListsState &state) { state.needed.pop_back(); });
    CHECK(refused == tried);
    CHECK(find(index, memory, queries, 10) == before);
    for (int i = 0; i < 100; i++) {  // what is not refused is safe to use
        attempt([&](ListsState &state) {
            for (int j = 0; j < 20; j++)
                state.list_of[random_int(0, static_cast<int64_t>(state.list_of.size()) - 1)] =
                    static_cast<int32_t>(random_int(-1, 20));
        });
        index.rebuild(memory.slots(), 1);
        check_lists(memory, index);
    }
    index.restore(good);
    index.rebuild(memory.slots(), 1);
    CHECK(find(index, memory, queries, 10) == before);
    index.restore(ListsState());  // in which no slot is in a list
    index.rebuild(memory.slots(), 1);
    check_lists(memory, index);
}

// Of lists that do not change meanwhile.
void test_what_is_learned_does_not_depend_on_how_queries_are_batched() {
    constexpr int64_t size = 16, n = 1000;
    Memory memory(size, 5000);
    AutoIndex index(size, 5000, 0.95, 0);
    fill(memory, index, unit_vectors(5000, size));
    const Vectors queries = unit_vectors(n, size);
    const auto learn = [&](int64_t batch) {
        AutoIndex lists(size, 5000, 0.95, 0);
        lists.rebuild(memory.slots(), 1);
        for (int64_t first = 0; first < n; first += batch) {
            const Found asked = queries_of(&queries[first * size], std::min(batch, n - first), size, 1, 0, nullptr);
            lists.change(memory.slots(), nullptr, 0, &asked, 1);
        }
        return lists.export_state();
    };
    const ListsState once = learn(n);
    CHECK(once.asked == n && std::accumulate(once.needed.begin(), once.needed.end(), 0.0) > 200);
    for (const int64_t batch : {1, 7, 128}) {
        const ListsState other = learn(batch);
        CHECK(other.needed == once.needed && other.recent == once.recent && other.share == once.share);
        CHECK(other.lists_to_read == once.lists_to_read && other.asked == n);
    }
}

void test_many_threads_find_at_once() {
    Memory memory(32, 6000);
    AutoIndex index(32, 6000, 0.95, 0, 3000);
    fill(memory, index, unit_vectors(6000, 32));
    const Vectors queries = unit_vectors(64, 32);
    const Found expected = find(index, memory, queries, 10);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 8; thread++)
        threads.emplace_back([&, thread] {
            for (int i = 0; i < 5; i++) CHECK(find(index, memory, queries, 10, 1 + thread % 3) == expected);
        });
    for (auto &thread : threads) thread.join();
}

}  // namespace

int main() {
    test_random_streams();
    test_regions_follow_a_memory_that_grows_and_shrinks();
    test_finds_what_brute_force_finds();
    test_newest_of_equal_keys_comes_first();
    test_all_keys_equal();
    test_reaches_the_target_recall();
    test_finds_near_duplicates();
    test_exact_where_lists_do_not_pay();
    test_a_restored_run_goes_on_the_same();
    test_threads_and_variants_give_the_same();
    test_bad_states_are_refused();
    test_what_is_learned_does_not_depend_on_how_queries_are_batched();
    test_many_threads_find_at_once();
}
