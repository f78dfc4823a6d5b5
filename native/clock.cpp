#include "clock.h"

#include <limits>

int64_t oldest(const Log &log, int64_t head, int64_t tail, int64_t count, int64_t reach, int64_t *lines, int64_t room) {
    int64_t found = 0, bound = std::numeric_limits<int64_t>::max();
    for (int64_t line = head; line < tail && log.times[line] < bound; line++) {
        if (log.touched[log.slots[line]] != log.times[line]) continue;
        if (found < room) lines[found] = line;
        if (++found == count) bound = log.times[line] + reach;
    }
    return found;
}
