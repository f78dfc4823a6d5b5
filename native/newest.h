// Which slot of a value was touched last; see rarecall/newest.py.
#pragma once

#include <cstdint>

// The slots in chains by a hash of their value, the one that was touched last at the head.
struct Chains {
    int32_t *heads;           // (1 << bits,): a slot, or -1
    int32_t *next, *previous; // (capacity,): slots, or -1
    int64_t bits;
};

// Puts slots, (count,), at the heads of their values' chains, one after the other.
void link(const Chains &chains, const int64_t *values, const int64_t *slots, int64_t count);

// Takes slots out of the chains of the values that they have now.
void unlink(const Chains &chains, const int64_t *values, const int64_t *slots, int64_t count);

// The slot of this value that was touched last and was not founded by the source `excluded` (-1: none), or -1.
int64_t newest(const Chains &chains, const int64_t *values, const int64_t *sources, int64_t value, int64_t excluded);
