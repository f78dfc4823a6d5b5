#include "clock.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace {

// Numbers in [0, 1), by SplitMix64 (Steele et al. 2014).
struct Uniform {
    uint64_t state;

    double next() {
        uint64_t x = state += 0x9E3779B97F4A7C15u;
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
        x = (x ^ x >> 27) * 0x94D049BB133111EBu;
        return static_cast<double>((x ^ x >> 31) >> 11) * 0x1p-53;
    }
};

// The oldest live lines: at least `count` of them, and all that are less than `reach` younger than the count-th; fewer
// where there are no more.
void oldest(const Clock &clock, int64_t count, int64_t reach, std::vector<int64_t> &lines) {
    constexpr int64_t ahead = 32;  // slots stand in no order: in a large memory each is a wait of its own
    lines.clear();
    int64_t bound = std::numeric_limits<int64_t>::max();
    const auto [head, tail, used, filled_holes] = *clock.state;
    for (int64_t line = head; line < std::min(head + ahead, tail); line++)
        __builtin_prefetch(clock.touched + clock.slots[line]);
    for (int64_t line = head; line < tail && clock.times[line] < bound; line++) {
        if (line + ahead < tail) __builtin_prefetch(clock.touched + clock.slots[line + ahead]);
        if (clock.touched[clock.slots[line]] != clock.times[line]) continue;
        lines.push_back(line);
        if (static_cast<int64_t>(lines.size()) == count) bound = clock.times[line] + reach;
    }
}

}  // namespace

void choose(const Clock &clock, const std::vector<int64_t> &confirmed, int64_t count, double age_noise, uint64_t seed,
            std::vector<int64_t> &written) {
    auto &[head, tail, used, filled_holes] = *clock.state;
    const int64_t holes = std::min(count, clock.hole_count - filled_holes);
    const int64_t fresh = std::min(count - holes, clock.capacity - used);
    written.assign(clock.holes + filled_holes, clock.holes + filled_holes + holes);
    for (int64_t i = 0; i < fresh; i++) written.push_back(used + i);
    filled_holes += holes;
    used += fresh;
    count -= holes + fresh;
    if (count == 0) return;

    for (const int64_t slot : confirmed) clock.touched[slot] = *clock.now;  // so that their lines are no longer live
    // Noise less than `age_noise` can lift a slot past the count-th oldest only if it was touched less than `age_noise`
    // updates after it: the log is in order of time, so those stand together.
    thread_local std::vector<int64_t> lines;
    oldest(clock, count, std::max<int64_t>(static_cast<int64_t>(std::ceil(age_noise)), 1), lines);
    if (!lines.empty()) head = lines.front();
    struct Aged {
        double since;  // the time less the noise: where it is least, age + noise is largest
        int64_t line;
        bool operator<(const Aged &other) const { return since != other.since ? since < other.since : line < other.line; }
    };
    thread_local std::vector<Aged> aged;
    aged.clear();
    Uniform uniform{seed};
    for (const int64_t line : lines) aged.push_back({static_cast<double>(clock.times[line]) - age_noise * uniform.next(), line});
    const int64_t chosen = std::min<int64_t>(count, aged.size());
    std::partial_sort(aged.begin(), aged.begin() + chosen, aged.end());
    for (int64_t i = 0; i < chosen; i++) written.push_back(clock.slots[aged[i].line]);
    for (int64_t i = 0; i < count - chosen; i++) written.push_back(confirmed[i]);
}

bool touch(const Clock &clock, const int64_t *slots, int64_t count) {
    int64_t &tail = clock.state->tail;
    for (int64_t i = 0; i < count; i++) clock.touched[slots[i]] = *clock.now;
    if (tail + count > clock.lines) return false;
    std::copy(slots, slots + count, clock.slots + tail);
    std::fill_n(clock.times + tail, count, *clock.now);
    tail += count;
    return true;
}
