// The regions that lists stand in, where a memory has room for many keys; see lists.h.
//
// A region is what is nearest to one of AXES random directions, or to its opposite. The directions are those of the rotations
// that sign codes are made by, and of more of them: they are the same for all keys and at all times, so that nothing is drawn,
// saved or drawn anew, and the region of a list follows from its centre alone.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "lists.h"
#include "lists_kernels.h"
#include "sign_codes.h"

namespace regions {

// On which side of an axis.
inline int32_t side(int64_t axis, int32_t along) { return static_cast<int32_t>(2 * axis + (along < 0)); }

// How far a code goes along each axis; returns the most.
inline int32_t along_axes(const Lists &lists, const int8_t *code, std::vector<int32_t> &along) {
    along.resize(std::max(AXES, 2 * lists.width));
    kernels::rotate(code, lists.width, AXES, along.data());
    return kernels::farthest(along.data(), AXES);
}

// The one that a code is in: of equal ones, the lowest.
inline int32_t of(const Lists &lists, const int8_t *code, std::vector<int32_t> &along) {
    const int32_t most = along_axes(lists, code, along);
    int64_t axis = 0;
    while (std::abs(along[axis]) != most) axis++;
    return side(axis, along[axis]);
}

inline void clear(const Regions &regions) {
    std::fill(regions.head, regions.head + regions.count, -1);
    std::fill(regions.length, regions.length + regions.count, 0);
    regions.blocks[0] = -1;
    regions.blocks[1] = 0;
}

// Takes a list out of the region it stands in, if there is one: the last of the region takes its place.
inline void leave(const Lists &lists, int32_t list) {
    const Regions &regions = lists.regions;
    const int32_t place = regions.places[list];
    if (place < 0) return;
    const int32_t region = regions.owner[place / BLOCK], head = regions.head[region];
    const int row = --regions.length[region] % BLOCK;
    const int32_t last = head * BLOCK + row;
    if (place != last) {
        regions.members[place] = regions.members[last];
        regions.places[regions.members[place]] = place;
        sign_codes::copy(regions.signs, last, regions.signs, place, lists.bits);
    }
    if (row == 0) {
        regions.head[region] = regions.next[head];
        regions.next[head] = regions.blocks[0];
        regions.blocks[0] = head;
    }
    regions.places[list] = -1;
}

inline void join(const Lists &lists, int32_t list, int32_t region) {
    const Regions &regions = lists.regions;
    const int row = regions.length[region]++ % BLOCK;
    if (row == 0) {
        int32_t block = regions.blocks[0];
        if (block >= 0)
            regions.blocks[0] = regions.next[block];
        else
            block = regions.blocks[1]++;
        regions.next[block] = regions.head[region];
        regions.owner[block] = region;
        regions.head[region] = block;
    }
    const int32_t place = regions.head[region] * BLOCK + row;
    regions.members[place] = list;
    regions.places[list] = place;
}

// A list whose centre has changed moves to the region that this is in now, with its sign code.
inline void follow(const Lists &lists, int32_t list) {
    const Regions &regions = lists.regions;
    if (regions.count == 0) return;
    const int32_t place = regions.places[list], region = regions.nearest[list];
    if (place < 0 || regions.owner[place / BLOCK] != region) {
        leave(lists, list);
        join(lists, list, region);
    }
    sign_codes::copy(lists.centres.signs, list, regions.signs, regions.places[list], lists.bits);
}

}  // namespace regions
