#include <algorithm>
#include <cmath>
#include <vector>

#include "lists_find.h"
#include "parallel.h"

namespace {

// One in 4 of the first 4096 queries is asked again; later 512 while the memory's keys are replaced once, but at most one
// in 32: so asking again costs a query about the same at any size.
constexpr int64_t FIRST = 4096, FIRST_SAMPLE = 4;
constexpr int64_t SAMPLES = 512, SAMPLE = 32;
// What was seen so many samples ago counts for less than half of what is seen now.
constexpr double MEMORY = 1024;

int bin_of(int rank) { return std::min(static_cast<int>(4 * std::log2(rank)), RANK_BINS - 1); }

// As many lists as were enough for this share of the samples, and two standard deviations more of what so many samples say
// of the true share.
int64_t enough(const Lists &lists, double recall) {
    double seen = 0, so_far = 0;
    for (int bin = 0; bin < RANK_BINS; bin++) seen += lists.ranks[bin];
    const double share = std::min(recall + 2 * std::sqrt(recall * (1 - recall) / seen), 1.0);
    int bin = 0;
    while (bin < RANK_BINS && (so_far += lists.ranks[bin]) < (share - 1e-9) * seen) bin++;
    const double highest = std::ceil(std::exp2((bin + 1) / 4.0)) - 1;  // rank of that bin
    return highest <= lists.counts[LISTS] / 2.0 ? static_cast<int64_t>(highest) : ALL;
}

}  // namespace

void lists_learn(const Lists &lists, const float *queries, int64_t n, const int64_t *exclude, double recall, int threads) {
    const int64_t before = *lists.asked;
    *lists.asked += n;
    const int64_t every = before < FIRST ? FIRST_SAMPLE : std::max(SAMPLE, lists.counts[FILLED] / SAMPLES);
    const int64_t first = (every - before % every) % every;
    if (first >= n) return;
    std::vector<int> ranks((n - 1 - first) / every + 1);
    auto &all = finders(threads);
    parallel(static_cast<int64_t>(ranks.size()), threads, [&](int64_t i, int thread) {
        Finder &own = all[thread * TILE];
        const int64_t query = first + i * every;
        own.ask(lists, queries + query * lists.key_size, exclude ? exclude[query] : -1);
        ranks[i] = own.rank(lists);
    });
    for (const int rank : ranks) {
        if (rank == 0) continue;
        for (int bin = 0; bin < RANK_BINS; bin++) lists.ranks[bin] *= 1 - 1 / MEMORY;
        lists.ranks[bin_of(rank)] += 1;
    }
    *lists.lists_to_read = enough(lists, recall);
}
