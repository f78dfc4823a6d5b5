// Approximate search on keys that never stop changing: an inverted file that is never trained and never rebuilt.
//
// The keys stand in short lists of similar ones, as int8 codes and as sign codes, the signs of the rotated code, block
// after block, so that a list is read in one go. A list's centre is the mean of its keys as they are now. A query
// compares itself with all centres, several queries at once, by their sign codes and then by the int8 codes of the best;
// then with the keys in the lists of the nearest: where there are many by sign codes first, and by the int8 codes of the
// best. Of the k best, and of all where there are few more, 8 more bits of each number are read, which stand beside: so
// their similarities are true to about 1e-5, and nothing is read from their slots, which would cost more than all else.
//
// The centres are what grows with the memory. Where there are many keys, a query meets those of the regions that it is
// nearest to: a list stands in the region that its centre is in, see lists_regions.h. Lists are short there, so that the
// keys of one are of one kind, and a query that looks for them is near to their centre: of random directions, those that
// the centre is nearest to are then among the query's nearest too, and one list in 32 is met. (Of longer lists, which mix
// several kinds, half had to be.) A query that looks for more lists meets more of them, in proportion, but reads few more:
// so where keys are not like that, as many are met as find the nearest, since how many lists are looked for is learnt from
// what a search would have found. In the end that is all: by half of their sign codes first, and by the whole of the best and of those that stand
// with them.
//
// A key that moves leaves its list (the last one takes its place) and joins the nearest one. A list that grows long is
// cut in two, the keys of one that grows short join others. All sums are of integers, so that the same centres follow
// from the same keys and places, whatever the order of events and the CPU.
#pragma once

#include <cstdint>

#include "recall.h"

// As in rarecall.search.lists.
constexpr int BLOCK = 32;             // places of a block
constexpr int SHORTEST = 12;          // a list of fewer keys is given up
constexpr int NEAR = 2;               // lists that are kept of a query
constexpr int64_t AXES = 2048;        // random directions, two regions on each
constexpr int RANK_BINS = 80;         // four to each doubling
constexpr int64_t ALL = 2147483647;   // as lists to read: all keys, in order

// Of each place: a code, its scale (vector = code * scale), and its sign code; see kernels::distances.
struct Codes {
    int8_t *codes;
    float *scales;
    uint8_t *signs;
};

// Lists by the region of their centres, in blocks as keys are in lists; where the memory has no room for many keys, none.
struct Regions {
    int64_t count;  // 2 * AXES or 0
    // Of each region: its first block, the only one that may be partly filled, and how many lists stand in it.
    int32_t *head, *length;
    // Of each block: the next one of its region (-1 at the end), or of the free blocks; and its region.
    int32_t *next, *owner;
    int32_t *blocks;  // the first free one or -1; how many were ever used
    // Of each place of a block: a list, and the sign code of its centre once more.
    int32_t *members;
    uint8_t *signs;
    // Of each list: its place, or -1; and the region that its centre is in, to which it moves by regions::follow.
    int32_t *places, *nearest;
};

// The tensors of rarecall.search.lists.Lists, in this order.
struct Lists {
    int64_t key_size, width, bits;  // width: key_size rounded up to 32; bits: of a sign code, 128 or 256
    int64_t capacity, most_blocks, most_lists;
    int64_t many;  // keys, from which on lists are shorter, and met by regions
    // The memory's own.
    const float *keys;
    const int64_t *values, *sources;
    // Of each place of a block: a key, what its code leaves of it (in 256ths of the scale), its slot and the value in it.
    Codes at;
    int8_t *rests;
    int32_t *slots;
    int64_t *held;
    // Of each slot: its place, block * BLOCK + row, or -1.
    int32_t *places;
    // Of each block: the next one of its list (-1 at the end), or of the free blocks; and its list, or -1.
    int32_t *next, *owner;
    // Of each list: its first block, the only one that may be partly filled; its length; the weighted sum of its codes,
    // and the centre that follows from it.
    int32_t *head, *length, *sums;
    Codes centres;
    Regions regions;
    int32_t *near;    // the lists nearest to queries, NEAR of each; see lists_change
    int32_t *counts;  // what `Count` names
    // How often of late the nearest key was found by looking for so many lists, (RANK_BINS,); how many are to be looked for,
    // and the queries of all updates so far.
    double *ranks;
    int64_t *lists_to_read, *asked;
};

// The first free block or -1; blocks ever used; lists; keys in lists; the next block to look after, counting on for
// each round, and what part of a key is due.
enum Count { FREE_BLOCK, BLOCKS, LISTS, FILLED, TENDED, UNTENDED };

inline bool are_many(const Lists &lists) { return lists.counts[FILLED] >= lists.many; }

// Takes up the keys of n distinct slots as they are now: written, moved or emptied.
// An update writes queries, or moves keys towards them: their lists are among those nearest to the queries that were asked
// since the last change, or are those that they are in. Where these `near` lists are known, no others are looked at, which
// costs the same in a memory of any size; where they are not, near is 0.
void lists_change(const Lists &, const int64_t *slots, int64_t n, int64_t near, int threads);

// Makes codes, slots, sums and centres anew, from the keys and all that says where they are.
void lists_restore(const Lists &, int threads);

// The nearest of the keys in the `probes` nearest lists (in more, where these hold less than twice k; of many keys, where more
// than a few are looked for, in part of them), sorted and weighed.
// exclude: (n,) or null. near: where to write the queries' nearest lists, or null.
void lists_recall(const Lists &, const float *queries, int64_t n, const int64_t *exclude, int probes,
                  float inverse_temperature, int threads, int32_t *near, const Neighbours &);

// Asks some of the n queries of an update again, of all keys, and counts how many lists each would have had to read to find
// the nearest. So many are to be read from now on that this share of queries finds it; ALL where that is too many.
void lists_learn(const Lists &, const float *queries, int64_t n, const int64_t *exclude, double recall, int threads);

// Whether all that says where the keys are fits together: every place once, every chain of blocks whole. What was read
// from a file must be asked before anything else is done with it.
bool lists_valid(const Lists &);
