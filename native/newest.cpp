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

int64_t newest(const Chains &chains, const int64_t *values, const int64_t *sources, int64_t value, int64_t excluded) {
    int32_t slot = head(chains, value);
    auto fits = [&] { return values[slot] == value && !(excluded >= 0 && excluded == sources[slot]); };
    while (slot >= 0 && !fits()) slot = chains.next[slot];
    return slot;
}
