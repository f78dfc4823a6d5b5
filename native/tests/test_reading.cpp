// A reading is what its formulas say, computed class by class, on any number of threads.
#include <cmath>
#include <map>
#include <stdexcept>
#include <vector>

#include "../memory/reading.h"
#include "check.h"
#include "memory.h"

namespace {

constexpr int64_t KEY_SIZE = 24, CAPACITY = 300, CLASSES = 40;

// Neighbours of random classes, nearest first, fewer than k for some queries.
Found neighbours(int64_t n, int64_t k, const std::vector<int64_t> &rows) {
    Found found(n, KEY_SIZE, k, 0, false);
    const std::vector<float> units = unit_vectors(n, KEY_SIZE);
    std::copy(units.begin(), units.end(), found.units);
    for (int64_t i = 0; i < n; i++) {
        const int64_t there = i % 5 == 4 ? 0 : random_int(1, k);
        for (int64_t j = 0; j < k; j++) {
            const int64_t slot = j < there ? random_int(0, CAPACITY - 1) : -1;
            found.slots[i * k + j] = slot;
            found.values[i * k + j] = slot < 0 ? -1 : 1000 * rows[slot];
            found.similarities[i * k + j] = slot < 0 ? -INFINITY : 1 - 0.9f * static_cast<float>(j + 1) / static_cast<float>(k + 1);
        }
    }
    return found;
}

void check_reading(int64_t n, int64_t k, int64_t most, bool sums, bool with_classes, int threads) {
    std::vector<int64_t> rows(CAPACITY);
    for (int64_t &row : rows) row = random_int(0, CLASSES - 1);
    const std::vector<float> vectors = unit_vectors(CLASSES, KEY_SIZE), offsets(CLASSES, 0.25f);
    const Classes classes{with_classes ? rows.data() : nullptr, vectors.data(), offsets.data(), CAPACITY, CLASSES};
    const Found found = neighbours(n, k, rows);
    const Reader reader{sums, 40, 10, 0.5, -1, 0.95f, 5};
    std::vector<int64_t> values(n * most);
    std::vector<float> probabilities(n * most), known(n);
    const int64_t width = read(found, classes, reader, most, threads, values.data(), probabilities.data(), known.data());
    int64_t widest = 0;
    for (int64_t i = 0; i < n; i++) {
        std::map<int64_t, double> votes;
        for (int64_t j = 0; j < k && found.values[i * k + j] >= 0; j++) {
            const double weight = std::exp(40.0 * found.similarities[i * k + j]);
            double &vote = votes[found.values[i * k + j]];
            vote = sums ? vote + weight : std::max(vote, weight);
        }
        double best = -INFINITY, total = 0;
        for (auto &[value, score] : votes) {
            score = 10 * std::log(score) / 40;
            for (int64_t d = 0; with_classes && d < KEY_SIZE; d++) score += double{found.units[i * KEY_SIZE + d]} * vectors[value / 1000 * KEY_SIZE + d];
            if (with_classes) score += 0.25;
            best = std::max(best, score);
        }
        CHECK(std::abs(known[i] - (votes.empty() ? 0 : 1 / (1 + std::exp(1 - 0.5 * best)))) < 1e-4);
        if (!votes.empty() && found.similarities[i * k] >= 0.95f) votes[found.values[i * k]] = best + 5;
        for (const auto &[value, score] : votes) total += std::exp(score);
        const auto count = std::min<int64_t>(static_cast<int64_t>(votes.size()), most);
        widest = std::max(widest, count);
        for (int64_t j = 0; j < most; j++) {
            CHECK((values[i * most + j] < 0) == (j >= count));
            const double expected = j < count ? std::exp(votes.at(values[i * most + j])) / total : 0;
            CHECK(std::abs(probabilities[i * most + j] - expected) < 1e-4);
            CHECK(j == 0 || probabilities[i * most + j] <= probabilities[i * most + j - 1]);
        }
    }
    CHECK(width == widest);
}

void test_readings() {
    for (const int64_t n : {0, 1, 7, 200})
        for (const int64_t k : {1, 5, 256})
            for (const int64_t most : {int64_t{1}, std::min<int64_t>(k, 32), k})
                for (const bool sums : {false, true})
                    for (const bool with_classes : {false, true}) check_reading(n, k, most, sums, with_classes, n == 200 ? 4 : 1);
}

void test_a_slot_that_is_not_there_is_refused() {
    const std::vector<int64_t> rows(CAPACITY);
    const std::vector<float> vectors(KEY_SIZE), offsets(1);
    Found found = neighbours(1, 3, rows);
    int64_t values[3];
    float probabilities[3], known[1];
    for (const int64_t slot : {int64_t{-1}, CAPACITY}) {
        found.slots[0] = slot;
        bool refused = false;
        try {
            read(found, {rows.data(), vectors.data(), offsets.data(), CAPACITY, 1}, {true, 40, 10, 1, 0, 1, 5}, 3, 1, values,
                 probabilities, known);
        } catch (const std::out_of_range &) {
            refused = true;
        }
        CHECK(refused);
    }
}

}  // namespace

int main() {
    test_readings();
    test_a_slot_that_is_not_there_is_refused();
}
