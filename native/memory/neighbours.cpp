#include "neighbours.h"

#include <algorithm>
#include <cstring>
#include <limits>

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

void Neighbours::set(const Slots &memory, int64_t row, Ranking &ranking, float inverse_temperature) const {
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

void rank_scored(const Scored &all, float inverse_temperature, const Neighbours &neighbours) {
    Ranking ranking;
    for (int64_t row = 0; row < all.n; row++) {
        const int64_t first = row * all.m;
        Slots columns;  // in place of slots: the row's own columns, which have values and times
        columns.values = all.values + first;
        columns.times = all.times + first;
        ranking.resize(0);
        for (int64_t column = 0; column < all.m; column++) {
            if (all.slots[first + column] < 0) continue;
            ranking.slots.push_back(column);
            ranking.similarities.push_back(all.similarities[first + column]);
        }
        neighbours.set(columns, row, ranking, inverse_temperature);
        int64_t *its_slots = neighbours.slots + row * neighbours.k;
        for (int64_t j = 0; j < neighbours.k && its_slots[j] >= 0; j++) its_slots[j] = all.slots[first + its_slots[j]];
    }
}

void rank_given(const Slots &memory, const Queries &queries, const int64_t *found, int64_t m, float inverse_temperature,
                int threads, const Neighbours &neighbours) {
    const auto size = static_cast<int>(memory.key_size);
    auto prefetch = [&](int64_t slot) {
        for (int i = 0; i < size; i += 16) __builtin_prefetch(memory.key(slot) + i);
    };
    threads = worth(queries.n * m * size, NUMBERS_A_THREAD, threads);
    std::vector<Ranking> rankings(threads);
    parallel(queries.n, threads, [&](int64_t row, int thread) {
        Ranking &ranking = rankings[thread];
        auto &slots = ranking.slots;
        slots.clear();
        const int64_t excluded = queries.excluded(row);
        for (int64_t j = 0; j < m; j++) {
            const int64_t slot = found[row * m + j];
            if (slot < 0 || memory.values[slot] < 0 || (excluded >= 0 && memory.sources[slot] == excluded)) continue;
            slots.push_back(slot);
        }
        const auto count = static_cast<int64_t>(slots.size());
        ranking.resize(count);
        for (int64_t j = 0; j < std::min(AHEAD, count); j++) prefetch(slots[j]);
        for (int64_t j = 0; j < count; j++) {
            if (j + AHEAD < count) prefetch(slots[j + AHEAD]);
            ranking.similarities[j] = kernels::dot(queries.units + row * size, memory.key(slots[j]), size);
        }
        neighbours.set(memory, row, ranking, inverse_temperature);
    });
}
