// A memory for tests: its arrays, filled at random.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "../memory/recall.h"
#include "../memory/slots.h"
#include "check.h"

inline void normalise(float *vector, int64_t size) {
    double square = 0;
    for (int64_t i = 0; i < size; i++) square += double{vector[i]} * vector[i];
    for (int64_t i = 0; i < size && square > 0; i++) vector[i] = static_cast<float>(vector[i] / std::sqrt(square));
}

inline std::vector<float> unit_vectors(int64_t n, int64_t size) {
    std::vector<float> out(n * size);
    for (float &each : out) each = random_normal();
    for (int64_t i = 0; i < n; i++) normalise(&out[i * size], size);
    return out;
}

struct TestMemory {
    std::vector<float> keys;
    std::vector<int64_t> values, sources, counts, times;
    int64_t now = 9, capacity, key_size, used;

    // `room`: slots behind the keys that were never used.
    TestMemory(std::vector<float> of, int64_t size, int64_t room = 0)
        : keys(std::move(of)), capacity(static_cast<int64_t>(keys.size()) / size + room), key_size(size),
          used(capacity - room) {
        keys.resize(capacity * size);
        for (int64_t slot = 0; slot < capacity; slot++) {
            values.push_back(slot < used ? random_int(0, 9) : -1);
            sources.push_back(slot < used ? random_int(-1, 5) : -1);
            counts.push_back(slot < used);
            times.push_back(slot < used ? random_int(0, 3) : -1);
        }
    }

    void empty(int64_t slot) {
        std::fill_n(&keys[slot * key_size], key_size, 0.0f);
        values[slot] = sources[slot] = times[slot] = -1;
        counts[slot] = 0;
    }

    Slots slots() {
        return {capacity, key_size, keys.data(), values.data(), sources.data(), counts.data(), times.data(), &now, used};
    }
};

// What is asked of a memory: n normalised queries. exclude: (n,), or null.
inline Found queries_of(const float *units, int64_t n, int64_t size, int64_t k, int64_t hints, const int64_t *exclude) {
    Found found(n, size, k, hints, exclude != nullptr);
    std::copy_n(units, n * size, found.units);
    std::fill_n(found.hints, n * hints, 0);
    if (exclude) std::copy_n(exclude, n, found.exclude);
    return found;
}

// Whether the same was found, and the same hints were left.
inline bool operator==(const Found &a, const Found &b) {
    const int64_t n = a.n * a.k, hints = a.n * a.hint_count;
    return a.n == b.n && a.k == b.k && a.hint_count == b.hint_count && std::equal(a.slots, a.slots + n, b.slots) &&
           std::equal(a.values, a.values + n, b.values) && std::equal(a.similarities, a.similarities + n, b.similarities) &&
           std::equal(a.weights, a.weights + n, b.weights) && std::equal(a.hints, a.hints + hints, b.hints);
}
