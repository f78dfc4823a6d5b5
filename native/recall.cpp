#include "recall.h"

#include <algorithm>
#include <cmath>
#include <cstring>
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

// e^x for x at most 0, to about 1e-7 of it, but not less than e^-87: 2^whole * e^rest, by a polynomial. Compilers do several
// at once, where no floats are compared.
inline float exp_of(float x) {
    constexpr uint32_t least = 0xC2AE0000u;  // the bits of -87; those of numbers below are more
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    bits = std::min(bits, least);
    std::memcpy(&x, &bits, sizeof x);
    constexpr float rounding = 12582912.0f;  // 1.5 * 2^23: what is added to it is rounded, and its last bits say to what
    const float shifted = x * 1.44269504f + rounding, whole = shifted - rounding;
    const float rest = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;  // ln 2 in two parts: the first product is exact
    float sum = 1.9875691500e-4f;
    sum = sum * rest + 1.3981999507e-3f;
    sum = sum * rest + 8.3334519073e-3f;
    sum = sum * rest + 4.1665795894e-2f;
    sum = sum * rest + 1.6666665459e-1f;
    sum = sum * rest + 5.0000001201e-1f;
    sum = sum * rest + 1.0f;
    sum = sum * rest + 1.0f;
    uint32_t doublings;
    std::memcpy(&doublings, &shifted, sizeof doublings);
    std::memcpy(&bits, &sum, sizeof bits);
    bits += doublings << 23;
    std::memcpy(&sum, &bits, sizeof sum);
    return sum;
}

// Of n similarities, the nearest first.
void softmax(const float *__restrict similarities, int64_t n, float inverse_temperature, float *__restrict weights) {
    constexpr int LANES = 8;  // sums side by side: one alone would wait for itself
    float sums[LANES] = {}, sum = 0;
    const float nearest = n > 0 ? similarities[0] : 0;
    for (int64_t i = 0; i < n; i++) weights[i] = exp_of(inverse_temperature * (similarities[i] - nearest));
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; lane++) sums[lane] += weights[i + lane];
    for (; i < n; i++) sum += weights[i];
    for (const float each : sums) sum += each;
    const float inverse = 1 / sum;
    for (i = 0; i < n; i++) weights[i] *= inverse;
}

}  // namespace

// By 16 bits of the similarity first, the upper ones of those in which they differ, a byte at a time, which has no branches
// to guess; few are equal in these. What is too far by the upper byte is left out before.
void Ranking::sort(size_t k) {
    constexpr int DIGITS = 256;
    size_t n = similarities.size();
    falling.resize(n);
    order.resize(n + 1);
    uint32_t least = ~0u, most = 0;
    for (size_t i = 0; i < n; i++) {
        similarities[i] += 0.0f;  // -0 is 0
        uint32_t bits;
        std::memcpy(&bits, &similarities[i], sizeof bits);
        falling[i] = bits >> 31 ? bits : 0x7FFFFFFFu - bits;
        least = std::min(least, falling[i]);
        most = std::max(most, falling[i]);
    }
    int shift = 0;  // past what is below the 16 bits
    while (n > 0 && (most - least) >> shift > 0xFFFF) shift++;
    uint32_t upper[DIGITS + 1] = {}, lower[DIGITS + 1] = {};  // how many there are of a digit, then where those begin
    for (size_t i = 0; i < n; i++) upper[((falling[i] - least) >> (shift + 8)) + 1]++;
    uint32_t last = 0;
    for (; last < DIGITS; last++) {
        if (upper[last] >= k) break;
        upper[last + 1] += upper[last];
    }
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t each = falling[i] - least;
        order[kept] = static_cast<uint64_t>(each) << 32 | i;
        kept += each >> (shift + 8) < last;
    }
    n = kept;
    order.resize(n);
    other.resize(n);
    shift += 32;  // past the number of the slot
    for (const uint64_t each : order) lower[(each >> shift & 255) + 1]++;
    for (int digit = 0; digit < DIGITS; digit++) lower[digit + 1] += lower[digit];
    for (const uint64_t each : order) other[lower[each >> shift & 255]++] = each;
    for (const uint64_t each : other) order[upper[each >> (shift + 8)]++] = each;
    auto slot = [&](uint64_t each) { return slots[each & 0xFFFFFFFFu]; };
    auto before = [&](uint64_t a, uint64_t b) { return a >> 32 != b >> 32 ? a >> 32 < b >> 32 : slot(a) < slot(b); };
    for (size_t first = 0, last; first < n; first = last) {
        for (last = first + 1; last < n && order[last] >> shift == order[first] >> shift; last++) continue;
        if (last > first + 1) std::sort(order.begin() + first, order.begin() + last, before);
    }
}

void Neighbours::set(int64_t row, Ranking &ranking, float inverse_temperature) const {
    ranking.sort(static_cast<size_t>(k));
    const int64_t count = std::min(static_cast<int64_t>(ranking.order.size()), k);
    int64_t *const its_slots = slots + row * k, *const its_values = values + row * k;
    float *const its_similarities = similarities + row * k, *const its_weights = weights + row * k;
    for (int64_t j = 0; j < count; j++) {
        const uint64_t i = ranking.order[j] & 0xFFFFFFFFu;
        its_slots[j] = ranking.slots[i];
        its_values[j] = ranking.values[i];
        its_similarities[j] = ranking.similarities[i];
    }
    softmax(its_similarities, count, inverse_temperature, its_weights);
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
    std::vector<Ranking> rankings(threads);
    parallel(n, threads, [&](int64_t row, int thread) {
        Ranking &ranking = rankings[thread];
        auto &slots = ranking.slots;
        slots.clear();
        const bool excludes = exclude && exclude[row] >= 0;
        for (int64_t j = 0; j < m; j++) {
            const int64_t slot = found[row * m + j];
            if (slot < 0 || memory.values[slot] < 0 || (excludes && memory.sources[slot] == exclude[row])) continue;
            slots.push_back(slot);
        }
        const auto count = static_cast<int64_t>(slots.size());
        ranking.resize(count);
        for (int64_t j = 0; j < std::min<int64_t>(AHEAD, count); j++) prefetch(memory.keys + slots[j] * size, size);
        for (int64_t j = 0; j < count; j++) {
            if (j + AHEAD < count) prefetch(memory.keys + slots[j + AHEAD] * size, size);
            ranking.similarities[j] = dot(queries + row * size, memory.keys + slots[j] * size, size);
            ranking.values[j] = memory.values[slots[j]];
        }
        neighbours.set(row, ranking, inverse_temperature);
    });
}

int64_t normalise(const float *vectors, int64_t n, int size, float *units, float *inverse_lengths) {
    int64_t bad = 0;
    for (int64_t row = 0; row < n; row++) {
        const float *vector = vectors + row * size;
        // As doubles, since no float32 is then too large or too small to be squared; four sums, which need not wait for each
        // other.
        double sums[4] = {};
        for (int i = 0; i < size; i++) sums[i % 4] += static_cast<double>(vector[i]) * vector[i];
        const double square = (sums[0] + sums[1]) + (sums[2] + sums[3]);
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
