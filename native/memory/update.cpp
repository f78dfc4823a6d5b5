#include "update.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace {

// The sum of a key and the queries that confirm it has no direction if it is shorter than this; as in backend/torch.py.
constexpr double CANCELLED = 1e-6;

void copy_keys(const Slots &memory, const int64_t *slots, int64_t n, std::vector<float> *to) {
    if (!to) return;
    to->resize(n * memory.key_size);
    for (int64_t i = 0; i < n; i++) std::copy_n(memory.key(slots[i]), memory.key_size, to->data() + i * memory.key_size);
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

std::vector<int64_t> apply_update(const Slots &memory, Book &book, const Examples &examples, const Plan &plan, double age_noise,
                                  uint64_t seed, std::vector<float> *before, std::vector<int64_t> &evicted) {
    const int64_t size = memory.key_size;
    std::vector<int64_t> written, touched;
    ++*memory.now;
    book.choose(memory, plan.confirmed, static_cast<int64_t>(plan.missed.size()), age_noise, seed, written);
    touched = plan.confirmed;
    touched.insert(touched.end(), written.begin(), written.end());
    std::sort(touched.begin(), touched.end());
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    const auto n = static_cast<int64_t>(touched.size());
    copy_keys(memory, touched.data(), n, before);
    book.leave(touched.data(), n);
    for (size_t i = 0; i < plan.confirmed.size(); i++) {
        const int64_t slot = plan.confirmed[i];
        std::copy_n(&plan.keys[i * size], size, memory.keys + slot * size);
        memory.counts[slot] += plan.added[i];
    }
    for (size_t i = 0; i < plan.missed.size(); i++) {
        const int64_t slot = written[i], row = plan.missed[i];
        if (memory.values[slot] >= 0) evicted.push_back(memory.values[slot]);
        std::copy_n(examples.units + row * size, size, memory.keys + slot * size);
        memory.values[slot] = examples.values[row];
        memory.sources[slot] = examples.sources ? examples.sources[row] : -1;
        memory.counts[slot] = examples.counts ? examples.counts[row] : 1;
    }
    book.touch(memory, touched.data(), n);
    return touched;
}

void put(const Slots &memory, Book &book, const Rows &rows, std::vector<float> *before) {
    copy_keys(memory, rows.slots, rows.n, before);
    book.leave(rows.slots, rows.n);
    *memory.now = rows.now;
    bool follows = true;
    for (int64_t i = 0; i < rows.n; i++) {
        const int64_t slot = rows.slots[i];
        follows = follows && rows.values[i] >= 0 && rows.times[i] > memory.times[slot];
        std::copy_n(rows.keys + i * memory.key_size, memory.key_size, memory.keys + slot * memory.key_size);
        memory.values[slot] = rows.values[i];
        memory.sources[slot] = rows.sources[i];
        memory.counts[slot] = rows.counts[i];
        memory.times[slot] = rows.times[i];
    }
    book.put(memory, rows.slots, rows.n, follows);
}

void erase(const Slots &memory, Book &book, const int64_t *slots, int64_t n, std::vector<float> *before) {
    copy_keys(memory, slots, n, before);
    book.erase(slots, n);
    for (int64_t i = 0; i < n; i++) {
        const int64_t slot = slots[i];
        std::fill_n(memory.keys + slot * memory.key_size, memory.key_size, 0.0f);
        memory.values[slot] = memory.sources[slot] = memory.times[slot] = -1;
        memory.counts[slot] = 0;
    }
}
