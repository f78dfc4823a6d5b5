#include "update.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace {

// The sum of a key and the queries that confirm it has no direction if it is shorter than this; as in rarecall/rules.py.
constexpr double CANCELLED = 1e-6;

}  // namespace

void plan(const Slots &memory, const float *queries, const int64_t *nearest, const int64_t *answers,
          const int64_t *targets, int64_t n, Plan &plan) {
    const int size = memory.key_size;
    std::vector<int64_t> right;
    plan.confirmed_count = plan.missed_count = plan.zeros = 0;
    for (int64_t i = 0; i < n; i++) {
        const float *query = queries + i * size;
        plan.zeros += std::all_of(query, query + size, [](float x) { return x == 0; });
        if (answers[i] == targets[i]) {
            right.push_back(i);
        } else {
            plan.missed[plan.missed_count++] = i;
        }
    }
    // By slot; of one slot in the order of the queries, so that a sum is always the same.
    std::sort(right.begin(), right.end(),
              [&](int64_t a, int64_t b) { return nearest[a] != nearest[b] ? nearest[a] < nearest[b] : a < b; });
    std::vector<double> sum(size);
    for (size_t first = 0, last; first < right.size(); first = last) {
        const int64_t slot = nearest[right[first]];
        const float *key = memory.keys + slot * size;
        std::copy(key, key + size, sum.begin());
        for (last = first; last < right.size() && nearest[right[last]] == slot; last++)
            for (int i = 0; i < size; i++) sum[i] += queries[right[last] * size + i];
        double square = 0;
        for (double x : sum) square += x * x;
        const double length = std::sqrt(square);
        float *into = plan.keys + plan.confirmed_count * size;
        // A query opposite to the key it confirms cancels it; such a sum has no direction, and the key stays.
        if (length < CANCELLED)
            std::copy(key, key + size, into);
        else
            for (int i = 0; i < size; i++) into[i] = static_cast<float>(sum[i] / length);
        plan.confirmed[plan.confirmed_count++] = slot;
    }
}

void write(const Plan &plan, const float *queries, const int64_t *targets, const int64_t *sources_given,
           const int64_t *written, int key_size, float *keys, int64_t *values, int64_t *sources) {
    for (int64_t i = 0; i < plan.confirmed_count; i++)
        std::copy_n(plan.keys + i * key_size, key_size, keys + plan.confirmed[i] * key_size);
    for (int64_t i = 0; i < plan.missed_count; i++) {
        const int64_t slot = written[i], row = plan.missed[i];
        std::copy_n(queries + row * key_size, key_size, keys + slot * key_size);
        values[slot] = targets[row];
        sources[slot] = sources_given ? sources_given[row] : -1;
    }
}
