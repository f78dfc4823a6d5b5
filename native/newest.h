// The newest slot of a value: the positive of a query none of whose neighbours is right.
#pragma once

#include <cstdint>

// newest: (n,): for each target the slot of this value that was touched last, the highest among equals, -1 where there
// is none. exclude: (n,) or null: slots of this source are left out, none where it is -1.
void find_newest(const int64_t *values, const int64_t *sources, const int64_t *touched, int64_t used,
                 const int64_t *targets, const int64_t *exclude, int64_t n, int threads, int64_t *newest);
