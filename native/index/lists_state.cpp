// The state of lists in files and copies.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "lists.h"

namespace {

// Keys in a list, so that their sum stays within 32 bits. Lists are split long before.
constexpr int32_t MOST_KEYS = 1 << 15;

void require(bool holds, const char *what) {
    if (!holds) throw std::invalid_argument(std::string("The state of the index cannot be right: ") + what + ".");
}

}  // namespace

ListsState Lists::export_state() const {
    const Chains &keys = store_.keys;
    ListsState state;
    const int32_t *end = keys.places.end();
    while (end > keys.places.begin() && end[-1] < 0) end--;
    state.places.assign(keys.places.begin(), end);
    state.next.assign(keys.next.data(), keys.next.data() + keys.blocks);
    state.owner.assign(keys.owner.data(), keys.owner.data() + keys.blocks);
    state.head.assign(keys.head.data(), keys.head.data() + store_.n_lists);
    state.length.assign(keys.length.data(), keys.length.data() + store_.n_lists);
    state.counts = {keys.free_block, keys.blocks, store_.n_lists, store_.n_keys, reassigned, due};
    state.learned = learned_;
    return state;
}

void Lists::restore(const ListsState &state) {
    Chains &keys = store_.keys;
    store_.clear();
    std::copy(state.places.begin(), state.places.end(), keys.places.begin());
    std::copy(state.next.begin(), state.next.end(), keys.next.begin());
    std::copy(state.owner.begin(), state.owner.end(), keys.owner.begin());
    std::copy(state.head.begin(), state.head.end(), keys.head.begin());
    std::copy(state.length.begin(), state.length.end(), keys.length.begin());
    for (int64_t slot = 0; slot < keys.places.size(); slot++)
        if (keys.places[slot] >= 0) keys.members[keys.places[slot]] = static_cast<int32_t>(slot);
    keys.free_block = state.counts[ListsState::FREE_BLOCK];
    keys.blocks = state.counts[ListsState::BLOCKS];
    store_.n_lists = state.counts[ListsState::LISTS];
    store_.n_keys = state.counts[ListsState::KEYS];
    reassigned = state.counts[ListsState::REASSIGNED];
    due = state.counts[ListsState::DUE];
    learned_ = state.learned;
}

void Lists::check_state(const ListsState &state, int64_t capacity) {
    require(state.counts.size() == ListsState::COUNTS, "it has another number of counts");
    const int64_t blocks = state.counts[ListsState::BLOCKS], n = state.counts[ListsState::LISTS];
    const auto is = [](const auto &vector, int64_t size) { return static_cast<int64_t>(vector.size()) == size; };
    require(is(state.next, blocks) && is(state.owner, blocks), "blocks are missing");
    require(is(state.head, n) && is(state.length, n), "lists are missing");
    require(n <= ListStore::most_lists(capacity) && blocks <= ListStore::most_blocks(capacity), "it has too many lists");
    require(static_cast<int64_t>(state.places.size()) <= capacity, "it is of a larger memory");
    require(state.counts[ListsState::REASSIGNED] >= 0 && state.counts[ListsState::DUE] >= 0 &&
                state.counts[ListsState::DUE] < MOST_DUE,
            "a count is out of range");
    const Learned &learned = state.learned;
    const Extent &extent = learned.extent;
    require(learned.asked >= 0 && extent.reach >= 1 && (extent.reach <= REACH_BINS || extent.reach == ALL) &&
                extent.level >= 0 && extent.level < LEVELS && extent.first >= 1 && extent.first <= ALL,
            "the extent of a search is out of range");
    const auto counted = [&](const std::vector<double> &counts, int64_t bins) {
        return is(counts, bins) && std::all_of(counts.begin(), counts.end(), [](double n) { return n >= 0 && n <= 1e9; });
    };
    require(counted(learned.needed, RANK_BINS * REACH_BINS) && counted(learned.recent, RANK_BINS * REACH_BINS) &&
                counted(learned.levels, LEVELS) && learned.share >= 0 && learned.share <= 1,
            "what was learned is out of range");

    std::vector<int32_t> rows_in(blocks, -1);  // filled rows of each block; -1 while it has not been met
    const auto meet = [&](int64_t block, int32_t owner, int32_t rows) {
        require(block >= 0 && block < blocks && rows_in[block] < 0 && state.owner[block] == owner,
                "a chain of blocks is broken");
        rows_in[block] = rows;
    };
    int64_t keys = 0;
    for (int32_t list = 0; list < n; list++) {
        require(state.length[list] > 0 && state.length[list] <= MOST_KEYS, "the length of a list is out of range");
        int32_t block = state.head[list];
        for (int32_t left = state.length[list]; left > 0; left -= rows_in[block], block = state.next[block])
            meet(block, list, (left - 1) % BLOCK + 1);
        require(block == -1, "a chain of blocks is broken");
        keys += state.length[list];
    }
    for (int32_t block = state.counts[ListsState::FREE_BLOCK]; block != -1; block = state.next[block]) meet(block, -1, 0);
    require(std::count(rows_in.begin(), rows_in.end(), -1) == 0, "a block is in no list and not free");
    require(keys == state.counts[ListsState::KEYS], "the lists have another number of keys");
    std::vector<bool> taken(blocks * BLOCK);
    for (const int64_t place : state.places) {
        if (place == -1) continue;
        require(place >= 0 && place < blocks * BLOCK && place % BLOCK < rows_in[place / BLOCK] && !taken[place],
                "a key is at a place that no list has, or that another key has");
        taken[place] = true;
        keys--;
    }
    require(keys == 0, "a list holds a key of no slot");
}
