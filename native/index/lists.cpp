#include "lists.h"

#include <algorithm>
#include <cmath>

#include "../memory/parallel.h"

namespace {

constexpr int64_t QUERIES_AT_ONCE = 8;  // from which on a second thread pays

// Queries searched again to learn nprobe: 1 / FIRST_STEP of the first FIRST; later about SAMPLES while as many queries come as there
// are keys, but at most 1 / STEP. A search in all keys takes time in proportion to the keys, so a query pays the same at any size.
constexpr int64_t FIRST = 4096, FIRST_STEP = 4, SAMPLES = 512, STEP = 32;
// Samples after which one counts for 1/e: more give a steadier estimate, and follow changes of the stream later.
constexpr double MEMORY = 1024;

int bin_of(int64_t nprobe) { return std::min(static_cast<int>(4 * std::log2(nprobe)), ListsState::RANK_BINS - 1); }

// The nprobe that was enough for a share of target_recall of the samples, plus two standard deviations of what so many samples
// tell of the true share; ALL where that is more than half of the lists.
int64_t enough(const std::vector<double> &ranks, double target_recall, int64_t lists) {
    double seen = 0, so_far = 0;
    for (const double rank : ranks) seen += rank;
    const double share = std::min(target_recall + 2 * std::sqrt(target_recall * (1 - target_recall) / seen), 1.0);
    int bin = 0;
    while (bin < ListsState::RANK_BINS && (so_far += ranks[bin]) < (share - 1e-9) * seen) bin++;
    const double highest = std::ceil(std::exp2((bin + 1) / 4.0)) - 1;  // nprobe of that bin
    return highest <= static_cast<double>(lists) / 2 ? static_cast<int64_t>(highest) : Lists::ALL;
}

}  // namespace

Lists::Lists(int64_t key_size, int64_t capacity, int64_t many) : store_(key_size, capacity, many) { restore(ListsState()); }

void Lists::find(const Slots &memory, const Queries &queries, float inverse_temperature, int threads, int32_t *hints,
                 const Neighbours &neighbours) const {
    const int64_t k = neighbours.k, count = Probe::lists_to_rank(store_, k, lists_to_read_);
    threads = queries.n >= QUERIES_AT_ONCE ? threads : 1;
    auto &probes = Probe::pool(threads);
    parallel((queries.n + TILE - 1) / TILE, threads, [&](int64_t tile, int thread) {
        Probe *const own = &probes[thread * TILE];
        const int64_t first = tile * TILE;
        const int n = static_cast<int>(std::min<int64_t>(queries.n - first, TILE));
        for (int i = 0; i < n; i++)
            own[i].set_query(store_, queries.units + (first + i) * memory.key_size, queries.excluded(first + i));
        Probe::scan_centroids(store_, own, n, count, lists_to_read_);
        for (int i = 0; i < n; i++) {
            own[i].choose_blocks(store_, k, lists_to_read_);
            const auto &nearest = own[i].nearest;
            for (int64_t j = 0; hints && j < HINTS; j++)
                hints[HINTS * (first + i) + j] = nearest[std::min<size_t>(j, nearest.size() - 1)].id;
        }
        for (int i = 0; i < n; i++) neighbours.set(memory, first + i, own[i].read(store_, memory, k), inverse_temperature);
    });
}

void Lists::learn(const Slots &memory, const Queries &queries, double target_recall, int threads) {
    const int64_t step = asked < FIRST ? FIRST_STEP : std::max<int64_t>(STEP, store_.n_keys / SAMPLES);
    const int64_t first = (step - asked % step) % step, samples = first < queries.n ? (queries.n - 1 - first) / step + 1 : 0;
    std::vector<int64_t> needed(samples);
    auto &probes = Probe::pool(threads);
    parallel(samples, threads, [&](int64_t i, int thread) {
        Probe &own = probes[thread * TILE];
        const int64_t query = first + i * step;
        own.set_query(store_, queries.units + query * memory.key_size, queries.excluded(query));
        needed[i] = own.nprobe_needed(store_, memory);
    });
    asked += queries.n;
    for (const int64_t nprobe : needed) {
        if (nprobe == 0) continue;
        for (double &rank : ranks) rank *= 1 - 1 / MEMORY;
        ranks[bin_of(nprobe)] += 1;
    }
    if (samples > 0) lists_to_read_ = enough(ranks, target_recall, store_.n_lists);
}
