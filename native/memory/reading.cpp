#include "reading.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "../kernels/kernels.h"
#include "parallel.h"

namespace {

constexpr int64_t SHARE = 1 << 14;  // neighbours that are worth a thread

// The classes of a query's neighbours, in the order of the nearest of each. Its room is used again for the next query.
struct Groups {
    std::vector<int64_t> first, rows;  // the nearest neighbour of each; its row in Classes
    std::vector<float> scores;
    std::vector<int32_t> table, order;  // open addressing by value; best first

    // The scores are sums of weights then, relative to the nearest of the class: 1 where it is the only one.
    void gather(const int64_t *values, const float *similarities, int64_t k, float inverse_temperature) {
        uint64_t size = 4;
        while (size < 2 * static_cast<uint64_t>(k)) size *= 2;
        table.assign(size, -1), first.clear(), scores.clear();
        for (int64_t j = 0; j < k && values[j] >= 0; j++) {  // there are none after -1
            uint64_t at = static_cast<uint64_t>(values[j]) * 0x9E3779B97F4A7C15u >> 32;
            while (table[at &= size - 1] >= 0 && values[first[table[at]]] != values[j]) at++;
            if (table[at] < 0) {
                table[at] = static_cast<int32_t>(first.size());
                first.push_back(j), scores.push_back(1);
            } else {
                scores[table[at]] += std::exp(inverse_temperature * (similarities[j] - similarities[first[table[at]]]));
            }
        }
    }

    void find_rows(const Classes &classes, const int64_t *slots) {
        rows.clear();
        for (const int64_t j : first) {
            if (slots[j] < 0 || slots[j] >= classes.capacity) throw std::out_of_range("slot");
            __builtin_prefetch(classes.rows + slots[j]);
        }
        for (const int64_t j : first) {
            rows.push_back(classes.rows[slots[j]]);
            if (rows.back() < 0 || rows.back() >= classes.count) throw std::out_of_range("class");
        }
    }

    void sort(size_t width) {
        order.resize(scores.size());
        std::iota(order.begin(), order.end(), 0);
        std::partial_sort(order.begin(), order.begin() + width, order.end(), [&](int32_t a, int32_t b) {
            return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
        });
    }
};

}  // namespace

int64_t read(const Found &found, const Classes &classes, const Reader &reader, int64_t most, int threads, int64_t *values,
             float *probabilities, float *known) {
    const int64_t k = found.k, size = found.key_size;
    std::vector<int64_t> widths(found.n);
    threads = worth(found.n * k, SHARE, threads);
    std::vector<Groups> of_threads(threads);
    std::fill_n(values, found.n * most, -1);
    std::fill_n(probabilities, found.n * most, 0.0f);
    std::fill_n(known, found.n, 0.0f);
    parallel(found.n, threads, [&](int64_t row, int thread) {
        const int64_t *its_values = found.values + row * k;
        const float *similarities = found.similarities + row * k, *unit = found.units + row * size;
        Groups &groups = of_threads[thread];
        groups.gather(its_values, similarities, k, reader.inverse_temperature);
        if (groups.first.empty()) return;
        if (classes.rows) groups.find_rows(classes, found.slots + row * k);
        std::vector<float> &scores = groups.scores;
        for (size_t i = 0; i < scores.size(); i++) {
            const float more = reader.sums && scores[i] > 1 ? std::log(scores[i]) / reader.inverse_temperature : 0;
            scores[i] = reader.weight * (similarities[groups.first[i]] + more);
            if (!classes.rows) continue;
            const float *ahead = classes.vectors + groups.rows[std::min(i + kernels::ROWS_AHEAD, scores.size() - 1)] * size;
            for (int64_t j = 0; j < size; j += 16) __builtin_prefetch(ahead + j);
            const int64_t its_row = groups.rows[i];
            scores[i] += classes.offsets[its_row] + kernels::dot(unit, classes.vectors + its_row * size, static_cast<int>(size));
        }
        float best = *std::max_element(scores.begin(), scores.end()), total = 0;
        known[row] = 1 / (1 + std::exp(-(reader.slope * best + reader.offset)));
        if (similarities[0] >= reader.same) best = scores[0] = best + reader.same_odds;
        for (const float score : scores) total += std::exp(score - best);
        const size_t width = std::min<size_t>(scores.size(), most);
        groups.sort(width);
        for (size_t i = 0; i < width; i++) {
            values[row * most + i] = its_values[groups.first[groups.order[i]]];
            probabilities[row * most + i] = std::exp(scores[groups.order[i]] - best) / total;
        }
        widths[row] = static_cast<int64_t>(width);
    });
    return found.n > 0 ? *std::max_element(widths.begin(), widths.end()) : 0;
}
