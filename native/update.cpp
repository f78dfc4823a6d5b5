#include "update.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace {

// The sum of a key and the queries that confirm it has no direction if it is shorter than this; as in rarecall/rules.py.
constexpr double CANCELLED = 1e-6;

struct Plan {
    std::vector<int64_t> confirmed;  // the slots whose answer was right, ascending
    std::vector<float> keys;         // what becomes of their keys
    std::vector<int64_t> missed;     // the queries that need a slot of their own
    std::vector<int64_t> written;    // and these slots
    std::vector<int64_t> right;      // the queries whose answer was right
    std::vector<double> sum;
};

// What an update does to the keys, before anything is changed.
void make(Plan &plan, const float *keys, int size, const Batch &batch) {
    auto nearest = [&](int64_t i) { return batch.nearest(i); };
    auto &[confirmed, new_keys, missed, written, right, sum] = plan;
    for (auto *each : {&confirmed, &missed, &written, &right}) each->clear();
    new_keys.clear();
    for (int64_t i = 0; i < batch.asked.n; i++) (batch.is_right(i) ? right : missed).push_back(i);
    for (const int64_t i : right)
        for (int j = 0; j < size; j += 16) __builtin_prefetch(keys + nearest(i) * size + j);
    // By slot; of one slot in the order of the queries, so that a sum is always the same.
    std::sort(right.begin(), right.end(),
              [&](int64_t a, int64_t b) { return nearest(a) != nearest(b) ? nearest(a) < nearest(b) : a < b; });
    for (size_t first = 0, last; first < right.size(); first = last) {
        const int64_t slot = nearest(right[first]);
        const float *key = keys + slot * size;
        sum.assign(key, key + size);
        for (last = first; last < right.size() && nearest(right[last]) == slot; last++)
            for (int i = 0; i < size; i++) sum[i] += batch.asked.queries[right[last] * size + i];
        double square = 0;
        for (double x : sum) square += x * x;
        const double length = std::sqrt(square);
        // A query opposite to the key it confirms cancels it; such a sum has no direction, and the key stays.
        for (int i = 0; i < size; i++)
            new_keys.push_back(length < CANCELLED ? key[i] : static_cast<float>(sum[i] / length));
        confirmed.push_back(slot);
    }
}

int64_t zeros(const Batch &batch, int size) {
    int64_t count = 0;
    for (int64_t i = 0; i < batch.asked.n; i++)
        count += std::all_of(batch.asked.queries + i * size, batch.asked.queries + (i + 1) * size, [](float x) { return x == 0; });
    return count;
}

}  // namespace

bool draws(const Clock &clock, const Batch &batch) {
    int64_t room = clock.capacity - clock.state->used + clock.hole_count - clock.state->filled_holes;
    for (int64_t i = 0; i < batch.asked.n; i++) room -= !batch.is_right(i);
    return room < 0;
}

Updated update(const Slots &memory, const Clock &clock, const Chains *chains, const Batch &batch, double age_noise,
               uint64_t seed, int64_t *touched, float *before) {
    const auto size = static_cast<int>(memory.key_size);
    thread_local Plan plan;
    make(plan, memory.keys, size, batch);
    Updated updated{zeros(batch, size), static_cast<int64_t>(plan.missed.size()), 0, true, false};
    if (updated.zeros || updated.missed > clock.capacity) return updated;

    ++*clock.now;
    choose(clock, plan.confirmed, updated.missed, age_noise, seed, plan.written);
    int64_t *end = std::copy(plan.confirmed.begin(), plan.confirmed.end(), touched);
    end = std::copy(plan.written.begin(), plan.written.end(), end);
    std::sort(touched, end);
    updated.touched = std::unique(touched, end) - touched;
    if (before)
        for (int64_t i = 0; i < updated.touched; i++) std::copy_n(memory.keys + touched[i] * size, size, before + i * size);
    if (chains) unlink(*chains, memory.values, touched, updated.touched);

    for (size_t i = 0; i < plan.confirmed.size(); i++)
        std::copy_n(&plan.keys[i * size], size, memory.keys + plan.confirmed[i] * size);
    for (size_t i = 0; i < plan.missed.size(); i++) {
        const int64_t slot = plan.written[i], row = plan.missed[i];
        std::copy_n(batch.asked.queries + row * size, size, memory.keys + slot * size);
        memory.values[slot] = batch.targets[row];
        memory.sources[slot] = batch.sources ? batch.sources[row] : -1;
    }
    updated.done = true;
    updated.logged = touch(clock, touched, updated.touched);
    if (chains) link(*chains, memory.values, touched, updated.touched);
    return updated;
}
