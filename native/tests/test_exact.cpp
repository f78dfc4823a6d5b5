// The exact index against brute force: the same slots, similarities and order, on keys that are hard to tell apart too.
#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>

#include "../index/exact.h"
#include "../kernels/kernels.h"
#include "memory.h"

namespace {

constexpr float INVERSE_TEMPERATURE = 40;

using Keys = std::vector<float>;

Keys repeated(int64_t n, int64_t size, const std::function<float(float x, int64_t row, int64_t i)> &change) {
    const Keys one = unit_vectors(1, size);
    Keys keys(n * size);
    for (int64_t i = 0; i < n * size; i++) keys[i] = change(one[i % size], i / size, i % size);
    return keys;
}

Keys normalised(Keys keys, int64_t size) {
    for (size_t start = 0; start < keys.size(); start += size) normalise(&keys[start], size);
    return keys;
}

Keys made_of(int64_t n, int64_t size, const std::function<float(int64_t i)> &number) {
    Keys keys(n * size);
    for (int64_t i = 0; i < n * size; i++) keys[i] = number(i % size);
    return normalised(keys, size);
}

// Keys that are hard to tell apart, or hard to round.
const std::map<std::string, std::function<Keys(int64_t, int64_t)>> HARD = {
    {"random", unit_vectors},
    {"nearly equal", [](int64_t n, int64_t size) {
         return normalised(repeated(n, size, [](float x, int64_t, int64_t) { return x + 1e-4f * random_normal(); }), size);
     }},
    {"equal but for the last bit", [](int64_t n, int64_t size) {
         std::vector<float> factor(n);
         for (float &each : factor) each = 1 + static_cast<float>(random_int(-2, 2)) * 0x1p-24f;
         return repeated(n, size, [&](float x, int64_t row, int64_t) { return x * factor[row]; });
     }},
    {"all equal", [](int64_t n, int64_t size) { return repeated(n, size, [](float x, int64_t, int64_t) { return x; }); }},
    {"pairs of equals", [](int64_t n, int64_t size) {
         Keys keys = unit_vectors(n, size);
         for (int64_t row = 1; row < n; row += 2) std::copy_n(&keys[(row - 1) * size], size, &keys[row * size]);
         return keys;
     }},
    {"opposites", [](int64_t n, int64_t size) {
         return repeated(n, size, [](float x, int64_t row, int64_t) { return row * row % 3 ? x : -x; });
     }},
    {"one-hot", [](int64_t n, int64_t size) {
         Keys keys(n * size);
         for (int64_t row = 0; row < n; row++) keys[row * size + random_int(0, size - 1)] = random_int(0, 1) ? 1.0f : -1.0f;
         return keys;
     }},
    {"signs", [](int64_t n, int64_t size) {
         return made_of(n, size, [](int64_t) { return random_int(0, 1) ? 1.0f : -1.0f; });
     }},
    {"tiny and huge", [](int64_t n, int64_t size) {
         return made_of(n, size, [](int64_t) { return random_normal() * std::pow(10.0f, random_float(-15, 15)); });
     }},
    {"one number rules", [](int64_t n, int64_t size) {
         return made_of(n, size, [](int64_t i) { return random_normal() + (i == 0 ? 50.0f : 0.0f); });
     }},
    {"negative", [](int64_t n, int64_t size) {
         return made_of(n, size, [](int64_t) { return -std::abs(random_normal()); });
     }},
    {"longer than 1", [](int64_t n, int64_t size) {
         return repeated(n, size, [](float x, int64_t, int64_t) { return 5 * (x + 1e-3f * random_normal()); });
     }},
};

Found find(const ExactIndex &index, TestMemory &memory, const float *units, int64_t n, int64_t k, int threads,
           const int64_t *exclude = nullptr) {
    Found found = queries_of(units, n, memory.key_size, k, 0, exclude);
    index.find(memory.slots(), INVERSE_TEMPERATURE, threads, found);
    return found;
}

// Compares every slot with every query.
void check_exact(const ExactIndex &index, TestMemory &memory, const Keys &units, const int64_t *exclude, int64_t k,
                 int threads) {
    const int64_t size = memory.key_size;
    const Slots slots = memory.slots();
    const Found found = find(index, memory, units.data(), static_cast<int64_t>(units.size()) / size, k, threads, exclude);
    for (int64_t row = 0; row < found.n; row++) {
        const float *query = &units[row * size];
        std::vector<int64_t> expected;
        std::vector<float> scores(memory.used);
        for (int64_t slot = 0; slot < memory.used; slot++) {
            scores[slot] = kernels::dot(query, slots.key(slot), static_cast<int>(size));
            double exact = 0, length = 0;
            for (int64_t i = 0; i < size; i++) {
                exact += double{query[i]} * slots.key(slot)[i];
                length += double{slots.key(slot)[i]} * slots.key(slot)[i];
            }
            CHECK(std::abs(exact - scores[slot]) <= 1e-6 * std::sqrt(length) + 1e-30);
            const bool excluded = exclude && exclude[row] >= 0 && memory.sources[slot] == exclude[row];
            if (memory.values[slot] >= 0 && !excluded) expected.push_back(slot);
        }
        std::sort(expected.begin(), expected.end(), [&](int64_t a, int64_t b) {
            return scores[a] != scores[b] ? scores[a] > scores[b] : slots.newer(a, b);
        });
        expected.resize(std::min(static_cast<int64_t>(expected.size()), k));
        auto odds = [&](int64_t slot) { return std::exp(INVERSE_TEMPERATURE * double{scores[slot] - scores[expected[0]]}); };
        double total = 0;
        for (const int64_t slot : expected) total += odds(slot);
        for (int64_t j = 0; j < k; j++) {
            const int64_t at = row * k + j, slot = j < static_cast<int64_t>(expected.size()) ? expected[j] : -1;
            CHECK(found.slots[at] == slot);
            CHECK(found.similarities[at] == (slot < 0 ? -std::numeric_limits<float>::infinity() : scores[slot]));
            CHECK(found.values[at] == (slot < 0 ? -1 : memory.values[slot]));
            const double weight = slot < 0 ? 0 : odds(slot) / total;
            CHECK(std::abs(found.weights[at] - weight) <= 1e-5 * weight + 1e-30);
        }
    }
}

void check_exact(TestMemory &memory, const Keys &units, const int64_t *exclude, int64_t k, int threads) {
    ExactIndex index(memory.key_size, memory.capacity);
    index.rebuild(memory.slots(), threads);
    check_exact(index, memory, units, exclude, k, threads);
}

void test_any_size() {
    for (int round = 0; round < 150; round++) {
        auto kind = std::next(HARD.begin(), random_int(0, static_cast<int64_t>(HARD.size()) - 1));
        const int64_t used = random_int(1, 700), size = random_int(1, 140), n = random_int(1, 9);
        TestMemory memory(kind->second(used, size), size, random_int(0, 70));
        const int64_t holes = random_int(0, 2) * used / 2;
        for (int64_t i = 0; i < holes; i++) memory.empty(random_int(0, used - 1));
        Keys units = unit_vectors(n, size);
        std::copy_n(&memory.keys[random_int(0, used - 1) * size], size, &units[0]);  // that of an empty slot is zero
        std::vector<int64_t> exclude(n);
        for (int64_t &each : exclude) each = random_int(-1, 5);
        const int64_t k = random_int(1, 300);
        check_exact(memory, units, round % 2 ? exclude.data() : nullptr, k, static_cast<int>(random_int(1, 4)));
    }
}

void test_hard_keys() {
    for (const auto &[name, make] : HARD)
        for (const int64_t size : {2, 33, 128}) {
            const int64_t used = 9000;  // enough for a guess
            TestMemory memory(make(used, size), size);
            Keys units = unit_vectors(6, size);
            std::copy_n(&memory.keys[17 * size], size, &units[0]);
            check_exact(memory, units, nullptr, 50, 2);
        }
}

// The sample sees none of the best keys, or nothing but the best, or only excluded ones: the first threshold is far off.
void test_wrong_guess() {
    const int64_t used = 20000, size = 32, step = kernels::STEP * kernels::PANEL;
    Keys units = unit_vectors(3, size);
    for (int64_t i = 0; i < size; i++) {
        units[i] = std::abs(units[i]);
        units[size + i] = -units[i];
    }
    for (const bool best : {false, true}) {
        TestMemory memory(HARD.at("negative")(used, size), size);
        for (int64_t slot = 0; slot < used; slot++) {
            const bool sampled = slot / step % 32 == 0;
            memory.sources[slot] = sampled;
            for (int64_t i = 0; i < size && sampled == best; i++) memory.keys[slot * size + i] *= -1;
        }
        check_exact(memory, units, nullptr, 300, 2);
        const int64_t exclude[] = {1, 0, -1};
        check_exact(memory, units, exclude, 300, 2);
    }
}

void test_changes() {
    const int64_t size = 24;
    TestMemory memory(unit_vectors(300, size), size, 50);
    for (int64_t slot = 0; slot < 300; slot++) memory.empty(slot);
    memory.used = 0;
    ExactIndex index(size, memory.capacity);
    index.rebuild(memory.slots(), 1);
    for (int round = 0; round < 40; round++) {
        std::vector<int64_t> changed;
        for (int64_t slot = 0; slot < memory.capacity; slot++) {
            if (random_int(0, 20)) continue;
            changed.push_back(slot);
            if (random_int(0, 3)) {
                const Keys key = unit_vectors(1, size);
                std::copy(key.begin(), key.end(), &memory.keys[slot * size]);
                memory.values[slot] = round;
                memory.times[slot] = round;
                memory.used = std::max(memory.used, slot + 1);
            } else {
                memory.empty(slot);
            }
        }
        if (round % 10 == 9) index.release();
        index.change(memory.slots(), changed.data(), static_cast<int64_t>(changed.size()), nullptr, 2);
        check_exact(index, memory, unit_vectors(3, size), nullptr, 40, 2);
    }
}

void test_threads_and_variants() {
    for (const char *keys : {"random", "signs"}) {
        const int64_t size = 12, n = 137;
        TestMemory memory(HARD.at(keys)(30000, size), size);
        const Keys units = HARD.at(keys)(n, size);
        ExactIndex index(size, memory.capacity);
        index.rebuild(memory.slots(), 2);
        for (const int64_t asked : {int64_t{1}, int64_t{2}, int64_t{3}, n}) {
            const Found expected = find(index, memory, units.data(), asked, 100, 1);
            for (const char *variant : kernels::variants()) {
                CHECK(kernels::use(variant));
                for (const int threads : {1, 2, 4}) CHECK(find(index, memory, units.data(), asked, 100, threads) == expected);
            }
        }
    }
}

void test_searches_beside_each_other() {
    const int64_t size = 20, n = 6;
    TestMemory memory(unit_vectors(20000, size), size);
    ExactIndex index(size, memory.capacity);
    index.rebuild(memory.slots(), 2);
    const Keys units = unit_vectors(n, size);
    const Found expected = find(index, memory, units.data(), n, 50, 2);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&] {
            for (int round = 0; round < 10; round++) CHECK(find(index, memory, units.data(), n, 50, 2) == expected);
        });
    for (auto &each : threads) each.join();
}

void test_long_keys() {
    const int64_t size = ExactIndex::LONGEST_KEY;
    for (const char *kind : {"random", "signs"}) {
        TestMemory memory(HARD.at(kind)(70, size), size);
        check_exact(memory, Keys(memory.keys.begin(), memory.keys.begin() + 5 * size), nullptr, 20, 2);
    }
}

template <typename Error, typename F>
void check_throws(const F &f) {
    try {
        f();
    } catch (const Error &) {
        return;
    }
    CHECK(!"an error was expected");
}

void test_edges() {
    check_throws<std::invalid_argument>([] { ExactIndex(ExactIndex::LONGEST_KEY + 1, 10); });
    check_throws<std::invalid_argument>([] { ExactIndex(10, int64_t{1} << 31); });
    TestMemory memory(unit_vectors(5, 8), 8);
    ExactIndex index(8, 5);
    const Keys units(8);
    check_throws<std::logic_error>([&] { find(index, memory, units.data(), 1, 3, 1); });
    index.rebuild(memory.slots(), 1);
    check_exact(index, memory, units, nullptr, 3, 1);  // a zero query: the newest
    memory.used = 0;
    check_exact(index, memory, units, nullptr, 3, 1);
    find(index, memory, nullptr, 0, 3, 1);
}

}  // namespace

int main() {
    test_edges();
    test_changes();
    test_threads_and_variants();
    test_searches_beside_each_other();
    for (const char *variant : kernels::variants()) {
        CHECK(kernels::use(variant));
        test_any_size();
        test_hard_keys();
        test_wrong_guess();
        test_long_keys();
    }
}
