#include "recall.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "../kernels/kernels.h"
#include "parallel.h"

namespace {

constexpr int64_t NUMBERS_A_THREAD = 1 << 17;  // of keys to read, about 20 us: less is not worth one more thread
constexpr int64_t AHEAD = 8;                   // keys that are fetched ahead: memory latency over the time of a key

template <typename To, typename From>
To bits_of(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

// e^x for x at most 0, with a relative error of about 1e-7, but not less than e^-87: 2^whole * e^rest, the latter by a
// polynomial (the one of Cephes). Without comparisons of floats, so that compilers vectorise it.
inline float exp_of(float x) {
    constexpr uint32_t least = 0xC2AE0000u;  // the bits of -87; those of numbers below are more
    x = bits_of<float>(std::min(bits_of<uint32_t>(x), least));
    constexpr float rounding = 12582912.0f;  // 1.5 * 2^23: a sum with it is rounded to a whole number, kept in its last bits
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
    return bits_of<float>(bits_of<uint32_t>(sum) + (bits_of<uint32_t>(shifted) << 23));
}

// Of n similarities, the largest first.
void softmax(const float *__restrict similarities, int64_t n, float inverse_temperature, float *__restrict weights) {
    constexpr int LANES = 8;  // sums side by side: a single one would wait for each addition
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

// From the gradient of a normalised query to that of the query as it came.
void undo_normalisation(const Found &found, int64_t row, float *gradient) {
    const float *unit = found.unit(row);
    const float along = kernels::dot(unit, gradient, static_cast<int>(found.key_size));
    for (int64_t i = 0; i < found.key_size; i++) gradient[i] = (gradient[i] - along * unit[i]) * found.inverse_lengths[row];
}

}  // namespace

// A radix sort by 16 bits of the similarity, the upper ones of those in which they differ: no branch is mispredicted, and
// few are equal in these bits. What is too far by the upper 8 bits is left out before. `order` is then of (how much less
// than the largest, row); returns by how much to shift it to the right to get these 16 bits.
int Ranking::sort_roughly(size_t k) {
    constexpr int DIGITS = 256;
    constexpr float ONE = 1 << 29;
    const size_t n = similarities.size();
    fixed.resize(n);
    order.resize(n + 1);
    int32_t least = INT32_MAX, most = INT32_MIN;
    for (size_t i = 0; i < n; i++) {
        fixed[i] = static_cast<int32_t>(similarities[i] * ONE);
        least = std::min(least, fixed[i]);
        most = std::max(most, fixed[i]);
    }
    const auto below = [&](size_t i) { return static_cast<uint32_t>(most) - static_cast<uint32_t>(fixed[i]); };
    int shift = 0;  // past what is below the 16 bits
    while (n > 0 && (static_cast<uint32_t>(most) - static_cast<uint32_t>(least)) >> shift > 0xFFFF) shift++;
    uint32_t upper[DIGITS + 1] = {}, lower[DIGITS + 1] = {};  // how many there are of a digit, then where those begin
    for (size_t i = 0; i < n; i++) upper[(below(i) >> (shift + 8)) + 1]++;
    uint32_t last = 0;
    for (; last < DIGITS && upper[last] < k; last++) upper[last + 1] += upper[last];
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        order[kept] = static_cast<uint64_t>(below(i)) << 32 | i;
        kept += below(i) >> (shift + 8) < last;
    }
    order.resize(kept);
    other.resize(kept);
    shift += 32;  // past the row
    for (const uint64_t each : order) lower[(each >> shift & 255) + 1]++;
    for (int digit = 0; digit < DIGITS; digit++) lower[digit + 1] += lower[digit];
    for (const uint64_t each : order) other[lower[each >> shift & 255]++] = each;
    for (const uint64_t each : other) order[upper[each >> (shift + 8)]++] = each;
    return shift;
}

Found::Found(int64_t n, int64_t key_size, int64_t k, int64_t hint_count, bool excludes)
    : n(n), key_size(key_size), k(k), hint_count(hint_count), excludes(excludes) {
    constexpr int64_t LINE = 64;  // bytes of a cache line, in which each field begins
    int64_t bytes = 0;
    const auto place = [&](const char *, auto field, int64_t width) {
        auto *&numbers = this->*field;
        numbers = nullptr;
        if (block && width > 0) numbers = reinterpret_cast<std::remove_reference_t<decltype(numbers)>>(block->data() + bytes);
        bytes += (n * width * static_cast<int64_t>(sizeof *numbers) + LINE - 1) / LINE * LINE;
    };
    each_field(place);  // to know how much room it takes
    block = std::make_shared<Array<char>>(std::exchange(bytes, 0));
    each_field(place);
}

Found Found::select(const bool *mask) const {
    Found chosen(std::count(mask, mask + n, true), key_size, k, hint_count, excludes);
    each_field([&](const char *, auto field, int64_t width) {
        auto *to = chosen.*field;
        for (int64_t row = 0; row < n; row++)
            if (mask[row]) to = std::copy_n(this->*field + row * width, width, to);
    });
    return chosen;
}

void Found::set(const Slots &memory, int64_t row, Ranking &ranking, float inverse_temperature) {
    ranking.sort(static_cast<size_t>(k), [&](int64_t a, int64_t b) { return memory.newer(a, b); });
    const int64_t count = std::min(static_cast<int64_t>(ranking.order.size()), k);
    int64_t *const its_slots = slots + row * k, *const its_values = values + row * k;
    float *const its_similarities = similarities + row * k, *const its_weights = weights + row * k;
    for (int64_t j = 0; j < count; j++) {
        const uint32_t i = Ranking::row(ranking.order[j]);
        its_slots[j] = ranking.slots[i];
        its_similarities[j] = ranking.similarities[i];
        __builtin_prefetch(memory.values + its_slots[j]);
    }
    softmax(its_similarities, count, inverse_temperature, its_weights);
    for (int64_t j = 0; j < count; j++) its_values[j] = memory.values[its_slots[j]];
    std::fill(its_slots + count, its_slots + k, -1);
    std::fill(its_similarities + count, its_similarities + k, -std::numeric_limits<float>::infinity());
    std::fill(its_values + count, its_values + k, -1);
    std::fill(its_weights + count, its_weights + k, 0.0f);
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

void rank_given(const Slots &memory, const int64_t *candidates, int64_t m, float inverse_temperature, int threads,
                Found &found) {
    const auto size = static_cast<int>(memory.key_size);
    auto prefetch = [&](int64_t slot) {
        for (int i = 0; i < size; i += 16) __builtin_prefetch(memory.key(slot) + i);
    };
    threads = worth(found.n * m * size, NUMBERS_A_THREAD, threads);
    std::vector<Ranking> rankings(threads);
    parallel(found.n, threads, [&](int64_t row, int thread) {
        Ranking &ranking = rankings[thread];
        ranking.resize(0);
        for (int64_t j = 0; j < m; j++) {
            const int64_t slot = candidates[row * m + j];
            if (slot >= 0 && memory.values[slot] >= 0 && !memory.is_excluded(slot, found.excluded(row))) ranking.add(slot, 0);
        }
        const auto count = static_cast<int64_t>(ranking.slots.size());
        for (int64_t j = 0; j < std::min(AHEAD, count); j++) prefetch(ranking.slots[j]);
        for (int64_t j = 0; j < count; j++) {
            if (j + AHEAD < count) prefetch(ranking.slots[j + AHEAD]);
            ranking.similarities[j] = kernels::dot(found.unit(row), memory.key(ranking.slots[j]), size);
        }
        found.set(memory, row, ranking, inverse_temperature);
    });
}

void rank_scored(const Slots &all, const int64_t *names, const float *similarities, int64_t m, float inverse_temperature,
                 Found &found) {
    Ranking ranking;
    for (int64_t row = 0; row < found.n; row++) {
        ranking.resize(0);
        for (int64_t slot = row * m; slot < (row + 1) * m; slot++)
            if (names[slot] >= 0) ranking.add(slot, similarities[slot]);
        found.set(all, row, ranking, inverse_temperature);
        int64_t *its_slots = found.slots + row * found.k;
        for (int64_t j = 0; j < found.k && its_slots[j] >= 0; j++) its_slots[j] = names[its_slots[j]];
    }
}

float margin_loss(const Slots &memory, const Book &book, const Found &found, const int64_t *targets, const bool *mask,
                  float margin, float *gradient) {
    const int64_t size = memory.key_size, k = found.k;
    double sum = 0;
    int64_t count = 0;
    if (gradient) std::fill_n(gradient, found.n * size, 0.0f);
    for (int64_t row = 0; row < found.n; row++) {
        const int64_t *values = found.values + row * k, *slots = found.slots + row * k;
        const float *similarities = found.similarities + row * k, *unit = found.unit(row);
        int64_t right = -1, wrong = -1;
        for (int64_t j = 0; j < k && (right < 0 || wrong < 0) && values[j] >= 0; j++) {  // there are none after -1
            int64_t &first = values[j] == targets[row] ? right : wrong;
            if (first < 0) first = j;
        }
        if (wrong < 0 || (mask && !mask[row])) continue;
        // Where no neighbour is right, the newest slot with the right value takes its place.
        const int64_t positive = right >= 0 ? slots[right] : book.newest(memory, targets[row], found.excluded(row));
        if (positive < 0) continue;
        const int64_t negative = slots[wrong];
        if (positive >= memory.capacity || negative < 0 || negative >= memory.capacity) throw std::out_of_range("slot");
        const float to_positive =
            right >= 0 ? similarities[right] : kernels::dot(unit, memory.key(positive), static_cast<int>(size));
        const float loss = similarities[wrong] - to_positive + margin;
        count++;
        if (loss <= 0) continue;
        sum += loss;
        if (!gradient) continue;
        float *const its_gradient = gradient + row * size;
        for (int64_t i = 0; i < size; i++) its_gradient[i] = memory.key(negative)[i] - memory.key(positive)[i];
        undo_normalisation(found, row, its_gradient);
    }
    if (count == 0) return 0;
    const float share = 1 / static_cast<float>(count);
    for (int64_t i = 0; gradient && i < found.n * size; i++) gradient[i] *= share;
    return static_cast<float>(sum / static_cast<double>(count));
}

void recall_gradient(const float *keys, int64_t capacity, const Before &before, const Found &found, const Gradients &of,
                     float inverse_temperature, int threads, float *of_queries) {
    const int64_t size = found.key_size, k = found.k;
    auto key = [&](int64_t slot) {
        if (slot >= capacity) throw std::out_of_range("slot");
        const int64_t *end = before.slots + before.count, *at = std::lower_bound(before.slots, end, slot);
        return at != end && *at == slot ? before.keys + (at - before.slots) * size : keys + slot * size;
    };
    threads = worth(found.n * k * size, NUMBERS_A_THREAD, threads);
    parallel(found.n, threads, [&](int64_t row, int) {
        const float *weights = found.weights + row * k;
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
        undo_normalisation(found, row, sum);
    });
}
