#include "newest.h"

namespace {

int32_t &head(const Chains &chains, int64_t value) {
    return chains.heads[uint64_t(value) * 0x9E3779B97F4A7C15u >> (64 - chains.bits)];
}

}  // namespace

void link(const Chains &chains, const int64_t *values, const int64_t *slots, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const auto slot = static_cast<int32_t>(slots[i]);
        int32_t &first = head(chains, values[slot]);
        chains.next[slot] = first;
        chains.previous[slot] = -1;
        if (first >= 0) chains.previous[first] = slot;
        first = slot;
    }
}

void unlink(const Chains &chains, const int64_t *values, const int64_t *slots, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const auto slot = static_cast<int32_t>(slots[i]);
        if (values[slot] < 0) continue;  // an empty slot is in no chain
        const int32_t next = chains.next[slot], previous = chains.previous[slot];
        (previous >= 0 ? chains.next[previous] : head(chains, values[slot])) = next;
        if (next >= 0) chains.previous[next] = previous;
    }
}

void find_newest(const Chains &chains, const int64_t *values, const int64_t *sources, const int64_t *targets,
                 const int64_t *exclude, int64_t n, int64_t *newest) {
    for (int64_t i = 0; i < n; i++) {
        int32_t slot = head(chains, targets[i]);
        auto fits = [&] {
            return values[slot] == targets[i] && !(exclude && exclude[i] >= 0 && exclude[i] == sources[slot]);
        };
        while (slot >= 0 && !fits()) slot = chains.next[slot];
        newest[i] = slot;
    }
}
