// Lists by the region of their centroids, so that a query of a large memory need not be compared with all of them.
//
// A region holds what is nearest to one of AXES random directions or to its opposite: a hash of cross-polytope LSH
// (Andoni, Indyk, Laarhoven, Razenshteyn and Schmidt, "Practical and Optimal LSH for Angular Distance", NeurIPS 2015).
// Ours differs: there is one table only, of centroids and not of keys, and a query probes the regions in the order of
// its own coordinates. The directions are those of the rotations of sign codes, so nothing is drawn or saved: a list's
// region follows from its centroid.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "lists_chains.h"
#include "lists_codes.h"

// Random directions, two regions each. More of them hold fewer lists each, so that a query finds more of what it looks
// for among as many lists, but cost more to rotate to.
constexpr int64_t AXES = 2048;

class Regions {
  public:
    Regions(int64_t max_lists, const CodeSize &size)
        : lists(2 * AXES, 2 * AXES + max_lists / BLOCK, max_lists), signs(lists.members.size(), size), nearest(max_lists) {
        for (int32_t region = 0; region < 2 * AXES; region++) lists.start(region);
    }

    Chains lists;            // the lists in each region
    Signs signs;             // of each place: the sign code of the list's centroid, once more
    Array<int32_t> nearest;  // of each list: the region of its centroid, into which `follow` puts it

    static int32_t side(int64_t axis, int32_t coordinate) { return static_cast<int32_t>(2 * axis + (coordinate < 0)); }

    // The largest of AXES coordinates, without its sign.
    static int32_t largest(const int32_t *along) {
        int32_t most = 0;
        for (int64_t axis = 0; axis < AXES; axis++) most = std::max(most, std::abs(along[axis]));
        return most;
    }

    // The region of a code: of equally near ones, the lowest.
    static int32_t of(const int16_t *code, int64_t width) {
        const int32_t *along = rotated(code, width, AXES), most = largest(along);
        int64_t axis = 0;
        while (std::abs(along[axis]) != most) axis++;
        return side(axis, along[axis]);
    }

    void leave(int32_t list) {
        const int32_t place = lists.places[list];
        if (place < 0) return;
        lists.places[list] = -1;
        const int32_t last = lists.give_up(place);
        if (place != last) signs.copy(signs, last, place);
    }

    // Moves a list whose centroid has changed to its region, and copies the sign code of the centroid.
    void follow(int32_t list, const Signs &of_centroids) {
        if (lists.chain_of(list) != nearest[list]) {
            leave(list);
            lists.add(list, nearest[list]);
        }
        signs.copy(of_centroids, list, lists.places[list]);
    }
};
