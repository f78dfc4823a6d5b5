// Keys in inverted lists, their codes and the lists' centroids: what is derived from the keys, and how it is kept
// consistent.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <vector>

#include "../memory/array.h"
#include "../memory/slots.h"
#include "lists_codes.h"

// Places in a block: a group of sign codes, so that a block is scanned with one kernel call.
constexpr int32_t BLOCK = 32;

struct Block {
    int32_t block, rows;  // its first rows are filled
};

// Members in chains of blocks: the keys of each list, and the lists of each region.
struct Chains {
    // Of each chain: its first block (-1: none), the only one that may be partly filled; and how many members it has.
    Array<int32_t> head, length;
    // Of each block: the next one of its chain (-1 at the end) or of the free blocks; and its chain.
    Array<int32_t> next, owner;
    Array<int32_t> members;               // of each place, block * BLOCK + row
    Array<int32_t> places;                // of each member: its place, or -1
    int32_t free_block = -1, blocks = 0;  // the first free block or -1; blocks ever used

    Chains(int64_t chains, int64_t most_blocks, int64_t most_members)
        : head(chains), length(chains), next(most_blocks), owner(most_blocks), members(most_blocks * BLOCK),
          places(most_members, -1) {}

    // The chain of a member, or -1.
    int32_t chain_of(int32_t member) const { return places[member] < 0 ? -1 : owner[places[member] / BLOCK]; }

    // The place that the next member of a chain gets, if its first block has room.
    int64_t next_place(int32_t chain) const { return int64_t{BLOCK} * head[chain] + length[chain] % BLOCK; }

    template <typename Visit>
    void for_each_block(int32_t chain, const Visit &visit) const {
        int32_t rows = (length[chain] - 1) % BLOCK + 1;
        for (int32_t block = head[chain]; block >= 0; block = next[block], rows = BLOCK) visit(Block{block, rows});
    }

    template <typename Visit>
    void for_each_place(int32_t chain, const Visit &visit) const {
        for_each_block(chain, [&](Block block) {
            for (int32_t row = 0; row < block.rows; row++) visit(block.block * BLOCK + row);
        });
    }

    void start(int32_t chain) {
        head[chain] = -1;
        length[chain] = 0;
    }

    void clear() {
        std::fill(places.begin(), places.end(), -1);
        free_block = -1;
        blocks = 0;
    }

    // Appends a member and returns its place; the one that it had before, if any, is to be given up.
    int32_t add(int32_t member, int32_t chain) {
        if (length[chain] % BLOCK == 0) {
            const int32_t block = free_block >= 0 ? free_block : blocks++;
            if (block == free_block) free_block = next[block];
            next[block] = head[chain];
            owner[block] = chain;
            head[chain] = block;
        }
        const auto place = static_cast<int32_t>(next_place(chain));
        length[chain]++;
        members[place] = member;
        places[member] = place;
        return place;
    }

    // Gives up a place, which the last member of its chain takes; returns the place that this one had. What is kept per
    // place has to be copied from there.
    int32_t give_up(int32_t place) {
        const int32_t chain = owner[place / BLOCK], block = head[chain];
        const int32_t row = --length[chain] % BLOCK, last = block * BLOCK + row;
        if (place != last) {
            members[place] = members[last];
            places[members[place]] = place;
        }
        if (row == 0) {
            head[chain] = next[block];
            next[block] = free_block;
            free_block = block;
        }
        return last;
    }
};

// Random directions, two regions each. More of them hold fewer lists each, so that a query finds more of what it looks
// for among as many lists, but cost more to rotate to.
constexpr int64_t AXES = 2048;

// Lists by the region of their centroids, so that a query of a large memory need not be compared with all of them.
//
// A region holds what is nearest to one of AXES random directions or to its opposite: a hash of cross-polytope LSH
// (Andoni, Indyk, Laarhoven, Razenshteyn and Schmidt, "Practical and Optimal LSH for Angular Distance", NeurIPS 2015).
// Ours differs: there is one table only, of centroids and not of keys, and a query probes the regions in the order of
// its own coordinates. The directions are those of the rotations of sign codes, so nothing is drawn or saved: a list's
// region follows from its centroid.
struct Regions {
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

// Keys. A shorter list is dissolved; no list but the only one stays shorter, so there are at most capacity / SHORTEST +
// 2. Low enough that a list does not split and dissolve in turns.
constexpr int32_t SHORTEST = 12;

// How close the keys of a list are to its centroid: their mean cosine with it, and the sine of that angle.
struct Spread {
    float cosine, sine;
};

// All sums are of integers: the same centroids follow from the same keys and lists, whatever the order of events and the CPU.
class ListStore {
  public:
    // many: keys, from which on lists are short and probed by regions.
    ListStore(int64_t key_size, int64_t capacity, int64_t many);

    const CodeSize size;
    const int64_t width, max_lists, many;
    Chains keys;            // chain: list; member: slot
    Codes at;               // of each place: the codes of its key
    Array<int32_t> sums;    // (lists, width): of the codes of a list
    Codes centroids;        // of each list: its mean key, scaled to length 1
    Array<Spread> spreads;  // (lists,)
    std::optional<Regions> regions;
    int32_t n_lists = 0, n_keys = 0;

    bool are_many() const { return n_keys >= many; }
    void prefetch_place(int64_t place) const;
    std::vector<int32_t> slots_of(int32_t list) const;  // ascending

    // Takes up all keys: each in its list of `list_of` (-1, or past its end: in none).
    void rebuild(const Slots &, const std::vector<int32_t> &list_of, int threads);

    // Each of these leaves the centroid of the list as it was, for `refresh`.
    void add(int32_t list, int32_t slot, const int16_t *code);
    void remove(int32_t slot);
    void move(int32_t slot, int32_t list);

    int32_t new_list();
    void remove_empty_list(int32_t list);  // the last list takes its number

    // Makes the centroids of these lists (ascending, distinct) from their sums.
    void refresh(const std::vector<int32_t> &lists, int threads);

    static int64_t most_lists(int64_t capacity) { return capacity / SHORTEST + 2; }

  private:
    void count(int32_t list, const int16_t *code, int32_t times);
    void give_up(int32_t place);
    void make_centroid(int32_t list);
};
