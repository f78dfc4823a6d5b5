// The clock of a memory: when each slot was last touched, and which of them are written next; see rarecall/clock.py.
#pragma once

#include <cstdint>
#include <vector>

struct Clock {
    int64_t *touched;  // (capacity,): when each slot was last touched, -1 in an empty one
    int64_t capacity;
    int64_t *now;  // how many updates there were
    // The log: every touch of a slot is a line of it, in order of time; a line is live while its slot has not been touched
    // again.
    int64_t *slots, *times;  // (lines,)
    int64_t lines;
    const int64_t *holes;  // (hole_count,): empty slots, ascending
    int64_t hole_count;
    // No line before head is live; those before tail are written. No slot from `used` on was ever written; of the holes, all
    // of them before it, the first `filled_holes` are holes no longer.
    struct State {
        int64_t head, tail, used, filled_holes;
    } *state;
};

// Chooses the slots to write, `written`: empty ones first, then those of the largest age + r, r in [0, age_noise), drawn by
// this seed. One of the confirmed slots (ascending) is taken only where no other is left. Moves head, used and filled_holes on.
void choose(const Clock &clock, const std::vector<int64_t> &confirmed, int64_t count, double age_noise, uint64_t seed,
            std::vector<int64_t> &written);

// Touches slots, (count,), ascending, and logs it where there is room: as a log made anew from `touched` would have it, so
// that a run that was saved and resumed goes on the same. Returns whether there was room.
bool touch(const Clock &clock, const int64_t *slots, int64_t count);
