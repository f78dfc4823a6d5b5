// The clock of a memory: when each slot was last touched, and which of them are written next; see rarecall/clock.py.
#pragma once

#include <cstdint>
#include <vector>

struct Clock {
    int64_t *touched;  // (capacity,): when each slot was last touched, -1 in an empty one
    // The log: every touch of a slot is a line of it, in order of time; a line is live while its slot has not been touched
    // again. No line before head is live; those before tail are written.
    int64_t *slots, *times;  // (lines,)
    int64_t lines, head, tail;
    // No slot from `used` on was ever written; the empty ones before it, ascending.
    int64_t used, capacity;
    const int64_t *holes;  // (hole_count,)
    int64_t hole_count;
    int64_t now;
};

// Chooses the slots to write, `written`: empty ones first, then those of the largest age + r, r in [0, age_noise), drawn by
// this seed. One of the confirmed slots (ascending) is taken only where no other is left. Moves head, used and holes on.
void choose(Clock &clock, const std::vector<int64_t> &confirmed, int64_t count, double age_noise, uint64_t seed,
            std::vector<int64_t> &written);

// Touches slots, (count,), ascending, and logs it where there is room: as a log made anew from `touched` would have it, so
// that a run that was saved and resumed goes on the same. Returns whether there was room.
bool touch(Clock &clock, const int64_t *slots, int64_t count);
