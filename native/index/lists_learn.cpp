// How far searches have to go, learned from some of the queries of updates.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "lists.h"

namespace {

// Queries that are samples: 1 / FIRST_STEP of the first FIRST; later about SAMPLES while as many queries come as there are keys,
// but at most 1 / STEP. A sample takes time in proportion to the keys, so a query pays the same at any size.
constexpr int64_t FIRST = 4096, FIRST_STEP = 4, SAMPLES = 512, STEP = 32;
// Samples after which one counts for 1/e. Many give a steady estimate; the recent ones tell at once when queries have become harder.
constexpr double MEMORY = 1024, RECENT = 64;
// Standard deviations of the cosine, if keys spread alike in all dimensions. Lists up to here are always within reach, but not
// farther than MOST_LEAST bins: where queries are easy there are hardly any, and hard queries that come after a long time of easy
// ones mostly find the nearest key even so.
constexpr float LEAST_REACH = 4.5f;
constexpr int MOST_LEAST = REACH_BINS / 2;
// Share of all lists. A search that would read more reads all keys in order; from TOO_MANY on, until it would be less than FEW.
constexpr double TOO_MANY = 0.5, FEW = 0.25;

using Counts = std::vector<double>;

double sum(const Counts &counts, int64_t from = 0) { return std::accumulate(counts.begin() + from, counts.end(), 0.0); }

// The bin up to which there is this share of what was counted, or the number of bins.
int quantile(const Counts &counts, double share) {
    const double enough = (share - 1e-9) * sum(counts);
    double so_far = 0;
    size_t bin = 0;
    while (bin < counts.size() && (so_far += counts[bin]) < enough) bin++;
    return static_cast<int>(bin);
}

void count(Counts &counts, double memory, int bin) {
    for (double &each : counts) each *= 1 - 1 / memory;
    counts[bin] += 1;
}

int bin_of(float cosine) { return static_cast<int>(std::min(cosine / BIN_WIDTH, REACH_BINS - 1.0f)); }

// At most half of the nearest keys that are missed are so for starting at too low a level.
int level_for(const Learned &learned, double target_recall) {
    return std::min(quantile(learned.levels, 1 - (1 - target_recall) / 2), LEVELS - 1);
}

// In bins: as far as was enough for a share of target_recall of the samples, plus those that are missed at this level, and two
// standard deviations of what so many samples tell of the true share; and as far as was enough for somewhat more of the recent.
int reach_for(const Learned &learned, double target_recall, int64_t key_size) {
    const double missed = sum(learned.levels, level_for(learned, target_recall) + 1) / std::max(sum(learned.levels), 1.0);
    const double doubt = 2 * std::sqrt(target_recall * (1 - target_recall) / sum(learned.cosines));
    const int all = quantile(learned.cosines, std::min(target_recall + missed + doubt, 1.0));
    const int recent = quantile(learned.recent, target_recall + 0.4 * (1 - target_recall));
    const int least = bin_of(LEAST_REACH / std::sqrt(static_cast<float>(key_size)));
    return std::max({all, recent, std::min(least, MOST_LEAST)}) + 1;
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
        const int reach = reach_for(learned_, target_recall, memory.key_size);
        const auto sample = probe.sample(store_, memory, k, level_for(learned_, target_recall), reach);
        if (!sample.exists) continue;
        count(learned_.cosines, MEMORY, bin_of(sample.cosine));
        count(learned_.recent, RECENT, bin_of(sample.cosine));
        count(learned_.levels, MEMORY, sample.level);
        learned_.share += (sample.share - learned_.share) / RECENT;
    }
    const int reach = reach_for(learned_, target_recall, memory.key_size);
    const bool too_many = learned_.share > (learned_.reach == ALL ? FEW : TOO_MANY);
    learned_.reach = reach >= REACH_BINS || too_many ? ALL : reach;
    learned_.level = level_for(learned_, target_recall);
}
