#include "newest.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "parallel.h"

void find_newest(const int64_t *values, const int64_t *sources, const int64_t *touched, int64_t used,
                 const int64_t *targets, const int64_t *exclude, int64_t n, int threads, int64_t *newest) {
    std::vector<int64_t> order(n);  // the queries, by target
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return targets[a] < targets[b]; });
    // All but a few of the values are of no interest: a table of single bits, small enough for the first-level cache,
    // turns them away.
    std::vector<uint64_t> wanted(1024);
    auto bit = [](int64_t value) { return uint64_t(value) * 0x9E3779B97F4A7C15u >> 48; };
    for (int64_t i = 0; i < n; i++) wanted[bit(targets[i]) / 64] |= uint64_t(1) << bit(targets[i]) % 64;

    constexpr int64_t CHUNK = 1 << 16;
    threads = int(std::min<int64_t>(threads, 1 + used / (4 * CHUNK)));
    std::vector<std::vector<int64_t>> found(threads, std::vector<int64_t>(n, -1));
    auto newer = [&](int64_t a, int64_t b) {
        return b < 0 || touched[a] > touched[b] || (touched[a] == touched[b] && a > b);
    };
    parallel((used + CHUNK - 1) / CHUNK, threads, [&](int64_t task, int thread) {
        for (int64_t slot = task * CHUNK; slot < std::min(used, (task + 1) * CHUNK); slot++) {
            const int64_t value = values[slot];
            if (!(wanted[bit(value) / 64] >> bit(value) % 64 & 1)) continue;
            auto query = std::lower_bound(order.begin(), order.end(), value,
                                          [&](int64_t i, int64_t v) { return targets[i] < v; });
            for (; query != order.end() && targets[*query] == value; ++query) {
                const bool own = exclude && exclude[*query] >= 0 && exclude[*query] == sources[slot];
                if (!own && newer(slot, found[thread][*query])) found[thread][*query] = slot;
            }
        }
    });
    for (int64_t i = 0; i < n; i++) {
        newest[i] = -1;
        for (const auto &of_thread : found)
            if (of_thread[i] >= 0 && newer(of_thread[i], newest[i])) newest[i] = of_thread[i];
    }
}
