#include "recall.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "../kernels/kernels.h"
#include "parallel.h"

namespace {

constexpr int64_t LINE = 64;         // bytes of a cache line
constexpr int64_t WORTH = 1 << 17;   // numbers of keys to read that are worth one more thread

int64_t lines(int64_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

}  // namespace

Found::Found(int64_t n, int64_t key_size, int64_t k, int64_t hint_count, bool excludes)
    : n(n), key_size(key_size), k(k), hint_count(hint_count) {
    const int64_t of_ids = lines(n * k * 8), of_floats = lines(n * k * 4), of_units = lines(n * key_size * 4);
    const int64_t of_lengths = lines(n * 4), of_hints = lines(n * hint_count * 4), of_exclude = excludes ? lines(n * 8) : 0;
    block = std::make_shared<Array<char>>(2 * of_ids + 2 * of_floats + of_units + of_lengths + of_hints + of_exclude);
    char *next = block->data();
    auto take = [&](auto *&field, int64_t bytes) {
        field = reinterpret_cast<std::remove_reference_t<decltype(field)>>(std::exchange(next, next + bytes));
    };
    take(slots, of_ids);
    take(values, of_ids);
    take(similarities, of_floats);
    take(weights, of_floats);
    take(units, of_units);
    take(inverse_lengths, of_lengths);
    take(hints, of_hints);
    take(exclude, of_exclude);
    if (!excludes) exclude = nullptr;
}

Found Found::select(const bool *mask) const {
    Found chosen(std::count(mask, mask + n, true), key_size, k, hint_count, exclude != nullptr);
    int64_t to = 0;
    auto copy = [&](auto *from_all, auto *to_all, int64_t row, int64_t width) {
        std::copy_n(from_all + row * width, width, to_all + to * width);
    };
    for (int64_t row = 0; row < n; row++) {
        if (!mask[row]) continue;
        copy(slots, chosen.slots, row, k);
        copy(values, chosen.values, row, k);
        copy(similarities, chosen.similarities, row, k);
        copy(weights, chosen.weights, row, k);
        copy(units, chosen.units, row, key_size);
        copy(inverse_lengths, chosen.inverse_lengths, row, 1);
        copy(hints, chosen.hints, row, hint_count);
        if (exclude) copy(exclude, chosen.exclude, row, 1);
        to++;
    }
    return chosen;
}

int64_t normalise(const float *vectors, int64_t n, int64_t size, float *units, float *inverse_lengths) {
    int64_t bad = 0;
    for (int64_t row = 0; row < n; row++) {
        const float *vector = vectors + row * size;
        // In double, no float32 is too large or too small to be squared; four sums, which need not wait for each other.
        double sums[4] = {};
        for (int64_t i = 0; i < size; i++) sums[i % 4] += static_cast<double>(vector[i]) * vector[i];
        const double square = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        if (!std::isfinite(square)) bad += std::count_if(vector, vector + size, [](float x) { return !std::isfinite(x); });
        const double inverse = square > 0 ? 1 / std::sqrt(square) : 2.0;
        if (inverse_lengths) inverse_lengths[row] = static_cast<float>(inverse);
        for (int64_t i = 0; i < size; i++) units[row * size + i] = static_cast<float>(vector[i] * inverse);
    }
    return bad;
}

void recall_gradient(const float *keys, int64_t capacity, const Before &before, const Found &found, const Gradients &of,
                     float inverse_temperature, int threads, float *of_queries) {
    const int64_t size = found.key_size, k = found.k;
    auto key = [&](int64_t slot) {
        if (slot >= capacity) throw std::out_of_range("slot");
        const int64_t *end = before.slots + before.count, *at = std::lower_bound(before.slots, end, slot);
        return at != end && *at == slot ? before.keys + (at - before.slots) * size : keys + slot * size;
    };
    threads = static_cast<int>(std::min<int64_t>(threads, 1 + found.n * k * size / WORTH));
    parallel(found.n, threads, [&](int64_t row, int) {
        const float *unit = found.units + row * size, *weights = found.weights + row * k;
        const int64_t *slots = found.slots + row * k;
        const float *of_weights = of.weights ? of.weights + row * k : nullptr;
        float *sum = of_queries + row * size;
        if (of.units)
            std::copy_n(of.units + row * size, size, sum);
        else
            std::fill_n(sum, size, 0.0f);
        float mean = 0;  // of the gradients of the weights, as the softmax weighs them
        for (int64_t j = 0; of_weights && j < k; j++) mean += weights[j] * of_weights[j];
        for (int64_t j = 0; j < k && slots[j] >= 0; j++) {  // there are none after -1
            float of_similarity = of.similarities ? of.similarities[row * k + j] : 0;
            if (of_weights) of_similarity += inverse_temperature * weights[j] * (of_weights[j] - mean);
            if (of_similarity == 0) continue;
            const float *its_key = key(slots[j]);
            for (int64_t i = 0; i < size; i++) sum[i] += of_similarity * its_key[i];
        }
        const float along = kernels::dot(unit, sum, static_cast<int>(size));
        for (int64_t i = 0; i < size; i++) sum[i] = (sum[i] - along * unit[i]) * found.inverse_lengths[row];
    });
}
