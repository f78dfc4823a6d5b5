#include "recall.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels.h"
#include "parallel.h"

namespace {

constexpr int64_t WORTH = 1 << 17;  // numbers of keys to read that are worth one more thread
constexpr int AHEAD = 8;            // keys that are on their way from memory

int worth(int64_t numbers, int threads) {
    return static_cast<int>(std::min<int64_t>(threads, 1 + numbers / WORTH));
}

inline void prefetch(const float *key, int key_size) {
    for (int i = 0; i < key_size; i += 16) __builtin_prefetch(key + i);
}

}  // namespace

// By the upper 24 bits of the similarity first, a byte at a time, which has no branches to guess; few are equal in these.
void Ranking::sort() {
    const size_t n = order.size();
    other.resize(n);
    for (int shift = 40; shift < 64; shift += 8) {
        uint32_t starts[257] = {};
        for (const uint64_t each : order) starts[(each >> shift & 255) + 1]++;
        for (int digit = 0; digit < 255; digit++) starts[digit + 1] += starts[digit];
        for (const uint64_t each : order) other[starts[each >> shift & 255]++] = each;
        order.swap(other);
    }
    auto slot = [&](uint64_t each) { return found[each & 0xFFFFFFFFu].slot; };
    auto before = [&](uint64_t a, uint64_t b) { return a >> 32 != b >> 32 ? a >> 32 < b >> 32 : slot(a) < slot(b); };
    for (size_t first = 0, last; first < n; first = last) {
        for (last = first + 1; last < n && order[last] >> 40 == order[first] >> 40; last++) continue;
        if (last > first + 1) std::sort(order.begin() + first, order.begin() + last, before);
    }
}

void Neighbours::set(int64_t row, Ranking &ranking, float inverse_temperature) const {
    ranking.sort();
    const auto count = static_cast<int64_t>(ranking.order.size());
    int64_t *const its_slots = slots + row * k, *const its_values = values + row * k;
    float *const its_similarities = similarities + row * k, *const its_weights = weights + row * k;
    float sum = 0;
    for (int64_t j = 0; j < count; j++) {
        const auto &[slot, value, similarity] = ranking.found[ranking.order[j] & 0xFFFFFFFFu];
        its_slots[j] = slot;
        its_similarities[j] = similarity;
        its_values[j] = value;
        its_weights[j] = std::exp(inverse_temperature * (similarity - its_similarities[0]));
        sum += its_weights[j];
    }
    for (int64_t j = 0; j < count; j++) its_weights[j] /= sum;
    std::fill(its_slots + count, its_slots + k, -1);
    std::fill(its_similarities + count, its_similarities + k, -std::numeric_limits<float>::infinity());
    std::fill(its_values + count, its_values + k, -1);
    std::fill(its_weights + count, its_weights + k, 0.0f);
}

void recall(const Slots &memory, const float *queries, int64_t n, const int64_t *found, int64_t m,
            const int64_t *exclude, float inverse_temperature, int threads, const Neighbours &neighbours) {
    const auto size = static_cast<int>(memory.key_size);
    const auto dot = kernels().dot;
    threads = worth(n * m * size, threads);
    struct Room {
        std::vector<int64_t> slots;
        Ranking ranking;
    };
    std::vector<Room> rooms(threads);
    parallel(n, threads, [&](int64_t row, int thread) {
        auto &[slots, ranking] = rooms[thread];
        slots.clear();
        const bool excludes = exclude && exclude[row] >= 0;
        for (int64_t j = 0; j < m; j++) {
            const int64_t slot = found[row * m + j];
            if (slot < 0 || memory.values[slot] < 0 || (excludes && memory.sources[slot] == exclude[row])) continue;
            slots.push_back(slot);
        }
        const auto count = static_cast<int64_t>(slots.size());
        ranking.clear();
        for (int64_t j = 0; j < std::min<int64_t>(AHEAD, count); j++) prefetch(memory.keys + slots[j] * size, size);
        for (int64_t j = 0; j < count; j++) {
            if (j + AHEAD < count) prefetch(memory.keys + slots[j + AHEAD] * size, size);
            const float similarity = dot(queries + row * size, memory.keys + slots[j] * size, size);
            ranking.add(similarity, slots[j], memory.values[slots[j]]);
        }
        neighbours.set(row, ranking, inverse_temperature);
    });
}

int64_t normalise(const float *vectors, int64_t n, int size, float *units, float *inverse_lengths) {
    int64_t bad = 0;
    for (int64_t row = 0; row < n; row++) {
        const float *vector = vectors + row * size;
        double square = 0;  // as a double, no float32 is too large or too small to be squared
        for (int i = 0; i < size; i++) square += static_cast<double>(vector[i]) * vector[i];
        if (!std::isfinite(square)) bad += std::count_if(vector, vector + size, [](float x) { return !std::isfinite(x); });
        const double inverse = square > 0 ? 1 / std::sqrt(square) : 2.0;
        if (inverse_lengths) inverse_lengths[row] = static_cast<float>(inverse);
        for (int i = 0; i < size; i++) units[row * size + i] = static_cast<float>(vector[i] * inverse);
    }
    return bad;
}

void recall_gradient(const Slots &memory, const Before &before, const Recalled &recalled, const Gradients &of,
                     float inverse_temperature, int threads, float *of_queries) {
    const auto size = static_cast<int>(memory.key_size);
    const int64_t k = recalled.k;
    auto key = [&](int64_t slot) {
        const int64_t *end = before.slots + before.count, *at = std::lower_bound(before.slots, end, slot);
        return at != end && *at == slot ? before.keys + (at - before.slots) * size : memory.keys + slot * size;
    };
    parallel(recalled.n, worth(recalled.n * k * size, threads), [&](int64_t row, int) {
        const float *unit = recalled.units + row * size, *weights = recalled.weights + row * k;
        const float *of_weights = of.weights ? of.weights + row * k : nullptr;
        float *sum = of_queries + row * size;
        if (of.units)
            std::copy_n(of.units + row * size, size, sum);
        else
            std::fill_n(sum, size, 0.0f);
        float mean = 0;  // of the gradients of the weights, as the softmax weighs them
        for (int64_t j = 0; of_weights && j < k; j++) mean += weights[j] * of_weights[j];
        for (int64_t j = 0; j < k && recalled.slots[row * k + j] >= 0; j++) {  // there are none after -1
            float of_similarity = of.similarities ? of.similarities[row * k + j] : 0;
            if (of_weights) of_similarity += inverse_temperature * weights[j] * (of_weights[j] - mean);
            if (of_similarity == 0) continue;
            const float *its_key = key(recalled.slots[row * k + j]);
            for (int i = 0; i < size; i++) sum[i] += of_similarity * its_key[i];
        }
        const float along = kernels().dot(unit, sum, size);
        for (int i = 0; i < size; i++) sum[i] = (sum[i] - along * unit[i]) * recalled.inverse_lengths[row];
    });
}
