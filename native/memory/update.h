// The paper's update, and what else changes slots.
#pragma once

#include <cstdint>
#include <vector>

#include "book.h"
#include "slots.h"

// Examples to remember.
struct Examples {
    const float *units = nullptr;      // (n, key_size): normalised
    const int64_t *values = nullptr;   // (n,): 0 or greater
    const int64_t *sources = nullptr;  // (n,), or null for -1
    const int64_t *counts = nullptr;   // (n,): how many examples each stands for, or null for 1
    int64_t n = 0;
    // The nearest slot of each, `stride` numbers apart, and its value; null where none is to be confirmed.
    const int64_t *nearest = nullptr, *answers = nullptr;
    int64_t stride = 0;
    bool by_count = false;  // whether a key that is confirmed weighs as much as the examples it stands for, or as one

    bool confirms(int64_t i) const { return nearest && answers[i * stride] == values[i]; }
};

// What an update is going to do; nothing is changed yet.
struct Plan {
    std::vector<int64_t> confirmed;  // slots whose answer was right, ascending
    std::vector<float> keys;         // (confirmed, key_size): what becomes of their keys
    std::vector<int64_t> added;      // (confirmed): examples that confirm each
    std::vector<int64_t> missed;     // examples that need a slot of their own
    int64_t zeros = 0;               // examples without a direction: they are refused
};

// Throws std::out_of_range where an example confirms a slot that does not hold its value.
Plan plan_update(const Slots &, const Examples &);

// What became of slots.
struct Change {
    std::vector<int64_t> touched;  // ascending
    std::vector<float> before;     // (touched, key_size): their keys as they were, where these are to be kept
    std::vector<int64_t> evicted;  // the values that were written over
};

// Confirms and writes by the plan, one update later; where a slot is both, it is written. `seed` is drawn where slots are to
// be written over, as Book::choose says.
Change apply_update(const Slots &, Book &, const Examples &, const Plan &, double age_noise, uint64_t seed, bool keep);

// Puts a row of each field, and the time of the memory from then on, into slots, ascending. A slot of value -1 is emptied.
Change put(const Slots &, Book &, std::vector<int64_t> slots, const Slots &rows, bool keep);
