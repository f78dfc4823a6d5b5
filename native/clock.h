// The log of a memory's clock: every touch of a slot is a line of it, in order of time; see rarecall/clock.py.
#pragma once

#include <cstdint>

struct Log {
    const int64_t *touched;  // (capacity,): when each slot was last touched, -1 in an empty one
    const int64_t *slots;    // (lines,)
    const int64_t *times;    // (lines,): a line is live while its slot has not been touched again
};

// The oldest live lines between head and tail: at least `count` of them, and all that are less than `reach` younger than
// the count-th; fewer where there are no more. Returns how many; the first `room` are written as lines.
int64_t oldest(const Log &log, int64_t head, int64_t tail, int64_t count, int64_t reach, int64_t *lines, int64_t room);
