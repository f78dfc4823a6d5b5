#include "update.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace {

// The sum of a key and the queries that confirm it has no direction if it is shorter than this; as in backend/torch_backend.py.
constexpr double CANCELLED = 1e-6;

Change change_of(const Slots &memory, std::vector<int64_t> touched, bool keep) {
    Change change{std::move(touched), {}, {}};
    for (const int64_t slot : change.touched)
        if (keep) change.before.insert(change.before.end(), memory.key(slot), memory.key(slot) + memory.key_size);
    return change;
}

}  // namespace

Plan plan_update(const Slots &memory, const Examples &examples) {
    Plan plan;
    const int64_t size = memory.key_size;
    auto nearest = [&](int64_t i) { return examples.nearest[i * examples.stride]; };
    std::vector<int64_t> right;
    for (int64_t i = 0; i < examples.n; i++) {
        const float *unit = examples.units + i * size;
        plan.zeros += std::all_of(unit, unit + size, [](float x) { return x == 0; });
        (examples.confirms(i) ? right : plan.missed).push_back(i);
    }
    for (const int64_t i : right) {
        const int64_t slot = nearest(i);
        if (slot < 0 || slot >= memory.capacity || memory.values[slot] != examples.values[i]) throw std::out_of_range("slot");
        for (int64_t j = 0; j < size; j += 16) __builtin_prefetch(memory.key(slot) + j);
    }
    // By slot; of one slot in the order of the queries, so that a sum is always the same.
    std::sort(right.begin(), right.end(),
              [&](int64_t a, int64_t b) { return nearest(a) != nearest(b) ? nearest(a) < nearest(b) : a < b; });
    std::vector<double> sum;
    for (size_t first = 0, last; first < right.size(); first = last) {
        const int64_t slot = nearest(right[first]);
        const float *key = memory.key(slot);
        sum.assign(key, key + size);
        if (examples.by_count)
            for (double &x : sum) x *= static_cast<double>(memory.counts[slot]);
        for (last = first; last < right.size() && nearest(right[last]) == slot; last++)
            for (int64_t i = 0; i < size; i++) sum[i] += examples.units[right[last] * size + i];
        double square = 0;
        for (const double x : sum) square += x * x;
        const double length = std::sqrt(square);
        // A query opposite to the key it confirms cancels it; such a sum has no direction, and the key stays.
        for (int64_t i = 0; i < size; i++)
            plan.keys.push_back(length < CANCELLED ? key[i] : static_cast<float>(sum[i] / length));
        plan.confirmed.push_back(slot);
        plan.added.push_back(static_cast<int64_t>(last - first));
    }
    return plan;
}

Change apply_update(const Slots &memory, Book &book, const Examples &examples, const Plan &plan, double age_noise, uint64_t seed,
                    bool keep) {
    const int64_t size = memory.key_size;
    ++*memory.now;
    const std::vector<int64_t> written =
        book.choose(memory, plan.confirmed, static_cast<int64_t>(plan.missed.size()), age_noise, seed);
    std::vector<int64_t> touched = plan.confirmed;
    touched.insert(touched.end(), written.begin(), written.end());
    std::sort(touched.begin(), touched.end());
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    Change change = change_of(memory, std::move(touched), keep);
    book.leave(change.touched);
    for (size_t i = 0; i < plan.confirmed.size(); i++) {
        const int64_t slot = plan.confirmed[i];
        std::copy_n(&plan.keys[i * size], size, memory.key(slot));
        memory.counts[slot] += plan.added[i];
    }
    for (size_t i = 0; i < plan.missed.size(); i++) {
        const int64_t slot = written[i], row = plan.missed[i];
        if (memory.values[slot] >= 0) change.evicted.push_back(memory.values[slot]);
        std::copy_n(examples.units + row * size, size, memory.key(slot));
        memory.values[slot] = examples.values[row];
        memory.sources[slot] = examples.sources ? examples.sources[row] : -1;
        memory.counts[slot] = examples.counts ? examples.counts[row] : 1;
    }
    for (const int64_t slot : change.touched) memory.times[slot] = *memory.now;
    book.follow(memory, change.touched);
    return change;
}

Change put(const Slots &memory, Book &book, std::vector<int64_t> slots, const Slots &rows, bool keep) {
    Change change = change_of(memory, std::move(slots), keep);
    book.leave(change.touched);
    *memory.now = *rows.now;
    for (size_t i = 0; i < change.touched.size(); i++) {
        const int64_t slot = change.touched[i];
        std::copy_n(rows.key(i), memory.key_size, memory.key(slot));
        for (const auto &field : Slots::FIELDS) (memory.*field.numbers)[slot] = (rows.*field.numbers)[i];
    }
    book.follow(memory, change.touched);
    return change;
}
