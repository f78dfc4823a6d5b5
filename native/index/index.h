// What finds the neighbours of a query.
#pragma once

#include <cstdint>

#include "../memory/recall.h"
#include "../memory/slots.h"

// An index owns what it derives from the keys, and keeps no pointer into the memory past a call.
//
// Threads: any number of `find` may run at once; `change` and `rebuild` run alone. The memory's lock sees to it.
class Index {
  public:
    virtual ~Index() = default;

    // How many numbers `find` leaves of each query, for the `change` that may follow.
    virtual int64_t hints() const { return 0; }

    // Writes the k nearest neighbours of each query, and perhaps the hints.
    virtual void find(const Slots &, float inverse_temperature, int threads, Found &) const = 0;

    // Takes up the keys of n slots (ascending, distinct) as they are now: written, moved or emptied. `asked`: the queries
    // of the update that changed them, found since the last change; null where no update did.
    virtual void change(const Slots &, const int64_t *slots, int64_t n, const Found *asked, int threads) = 0;

    // Takes up all slots as they are now.
    virtual void rebuild(const Slots &, int threads) = 0;
};
