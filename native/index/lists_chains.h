// Members in chains of blocks: the keys of each list, and the lists of each region.
#pragma once

#include <cstdint>

#include "../memory/array.h"

// Places in a block: a group of sign codes, so that a block is scanned with one kernel call.
constexpr int32_t BLOCK = 32;

struct Block {
    int32_t block, rows;  // its first rows are filled
};

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
