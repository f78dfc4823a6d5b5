#include "lists.h"

#include <algorithm>

#include "../memory/parallel.h"

namespace {

constexpr int64_t QUERIES_AT_ONCE = 8;  // from which on a second thread pays

}  // namespace

Lists::Lists(int64_t key_size, int64_t capacity, int64_t many) : store_(key_size, capacity, many) {}

void Lists::find(const Slots &memory, const Queries &queries, float inverse_temperature, int threads, int32_t *hints,
                 const Neighbours &neighbours) const {
    const int64_t k = neighbours.k;
    threads = queries.n >= QUERIES_AT_ONCE ? threads : 1;
    auto &probes = Probe::pool(threads);
    parallel((queries.n + TILE - 1) / TILE, threads, [&](int64_t tile, int thread) {
        Probe *const own = &probes[thread * TILE];
        const int64_t first = tile * TILE;
        const int n = static_cast<int>(std::min<int64_t>(queries.n - first, TILE));
        for (int i = 0; i < n; i++)
            own[i].set_query(store_, queries.units + (first + i) * memory.key_size, queries.excluded(first + i));
        Probe::scan_centroids(store_, own, n, static_cast<int>(learned_.extent.level));
        for (int i = 0; i < n; i++) {
            own[i].choose_first(store_, k, learned_.extent);
            if (!hints) continue;
            const auto &nearest = own[i].nearest;
            const auto of_this = hints + HINTS * (first + i);
            for (size_t j = 0; j < 2; j++) of_this[j] = nearest[std::min(j, nearest.size() - 1)].id;
            of_this[2] = static_cast<int32_t>(std::min<int64_t>(k, INT32_MAX));
        }
        for (int i = 0; i < n; i++)
            neighbours.set(memory, first + i, own[i].read(store_, memory, k, learned_.extent), inverse_temperature);
    });
}
