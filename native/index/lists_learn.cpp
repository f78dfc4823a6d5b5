// How far searches have to go, learned from some of the queries of updates.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "lists.h"

namespace {

// Queries that are samples: 1 / FIRST_STEP of the first FIRST; later about SAMPLES while as many queries come as there are
// keys, but at most 1 / STEP. A sample takes time in proportion to the keys, so a query pays the same at any size.
constexpr int64_t FIRST = 4096, FIRST_STEP = 4, SAMPLES = 512, STEP = 32;
// Samples after which one counts for 1/e. Many give a steady estimate; the recent ones tell at once when queries have become
// harder.
constexpr double MEMORY = 1024, RECENT = 64;
// Standard deviations of the cosine, if keys spread alike in all dimensions. Lists up to here are always within reach, but
// not farther than MOST_LEAST bins: where queries are easy there are hardly any, and hard queries that come after a long
// time of easy ones mostly find the nearest key even so.
constexpr float LEAST_REACH = 4.5f;
constexpr int MOST_LEAST = REACH_BINS / 2;
// Share of all lists. A search that would read more reads all keys in order: from TOO_MANY on, until it would be less than
// FEW.
constexpr double TOO_MANY = 0.5, FEW = 0.25;

using Counts = std::vector<double>;

double sum(const Counts &counts, int64_t from = 0) { return std::accumulate(counts.begin() + from, counts.end(), 0.0); }

void count(Counts &counts, double memory, int bin) {
    for (double &each : counts) each *= 1 - 1 / memory;
    counts[bin] += 1;
}

// At most half of the nearest keys that are missed are so for starting at too low a level.
int64_t level_for(const Learned &learned, double target_recall) {
    int64_t level = 0;
    while (level + 1 < LEVELS && sum(learned.levels, level + 1) > (1 - target_recall) / 2 * sum(learned.levels)) level++;
    return level;
}

int rank_bin(int64_t rank) {
    int bin = 0;
    while (bin + 1 < RANK_BINS && rank > int64_t{2} << bin) bin++;
    return bin;
}

// The extent that would have found the nearest key: for a share of target_recall of all samples, plus those that are missed
// at its level, and two standard deviations of what so many samples tell of the true share; and for somewhat more of the
// recent ones. With the fewest lists read in any case; but where no reach would do, with as many as let a moderate one do.
Extent enough(const Learned &learned, double target_recall, int64_t key_size) {
    Extent extent{level_for(learned, target_recall), int64_t{1} << (RANK_BINS - 1), REACH_BINS};
    const double seen = sum(learned.needed);
    const double missed = sum(learned.levels, extent.level + 1) / std::max(sum(learned.levels), 1.0);
    const double doubt = 2 * std::sqrt(target_recall * (1 - target_recall) / seen);
    const double most_missed = (1 - std::min(target_recall + missed + doubt, 1.0)) * seen + 1e-9 * seen;
    const double most_recent = 0.6 * (1 - target_recall) * sum(learned.recent) + 1e-9;
    const int least = std::min(Probe::bin_of(LEAST_REACH / std::sqrt(static_cast<float>(key_size))), MOST_LEAST);
    for (int ranks = 0; ranks + 1 < RANK_BINS; ranks++) {
        // Those that are not in the first lists: how many are beyond each reach?
        const auto beyond = [&](const Counts &counts, int bin) {
            double rest = 0;
            for (int rank = ranks + 1; rank < RANK_BINS; rank++)
                for (int i = bin + 1; i < REACH_BINS; i++) rest += counts[rank * REACH_BINS + i];
            return rest;
        };
        int bin = least;
        while (bin < REACH_BINS - 1 &&
               (beyond(learned.needed, bin) > most_missed || beyond(learned.recent, bin) > most_recent))
            bin++;
        if (bin > (ranks == 0 ? REACH_BINS - 2 : MOST_LEAST)) continue;
        extent.first = int64_t{2} << ranks;
        extent.reach = bin + 1;
        break;
    }
    return extent;
}

}  // namespace

void Lists::learn(const Slots &memory, const Queries &queries, const int32_t *hints, double target_recall) {
    const int64_t before = learned_.asked;
    const int64_t step = before < FIRST ? FIRST_STEP : std::max<int64_t>(STEP, store_.n_keys / SAMPLES);
    const int64_t first = (step - before % step) % step;
    learned_.asked += queries.n;
    if (first >= queries.n) return;
    Probe &probe = Probe::pool(1)[0];
    // One after the other, since each search goes as far as those before have shown, however queries are batched.
    for (int64_t row = first; row < queries.n; row += step) {
        probe.set_query(store_, queries.units + row * memory.key_size, queries.excluded(row));
        const int64_t k = hints ? hints[HINTS * row + 2] : 1;
        const auto sample = probe.sample(store_, memory, k, enough(learned_, target_recall, memory.key_size));
        if (!sample.exists) continue;
        const int bin = rank_bin(sample.rank) * REACH_BINS + Probe::bin_of(sample.cosine);
        count(learned_.needed, MEMORY, bin);
        count(learned_.recent, RECENT, bin);
        count(learned_.levels, MEMORY, sample.level);
        learned_.share += (sample.share - learned_.share) / RECENT;
    }
    const bool too_many = learned_.share > (learned_.extent.reach == ALL ? FEW : TOO_MANY);
    learned_.extent = enough(learned_, target_recall, memory.key_size);
    if (too_many || learned_.extent.reach == REACH_BINS) learned_.extent.reach = ALL;
}
