#include "auto.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "../memory/parallel.h"
#include "lists_probe.h"

namespace {

// So that places, of which there are less than 4 per slot, fit into 32 bits.
constexpr int64_t MOST_SLOTS = int64_t{1} << 29;
constexpr int64_t QUERIES_AT_ONCE = 8;  // from which on a second thread pays
// Keys in a list, so that their sum stays within 32 bits. Lists are split long before.
constexpr int64_t MOST_KEYS = 1 << 15;

// Queries that are samples: 1 / FIRST_STEP of the first FIRST; later about SAMPLES while as many queries come as there are
// keys, but at most 1 / STEP. A sample takes time in proportion to the keys, so a query pays the same at any size.
constexpr int64_t FIRST = 4096, FIRST_STEP = 4, SAMPLES = 512, STEP = 32;
// Samples after which one counts for 1/e. Many give a steady estimate; the recent ones tell at once when queries have become
// harder.
constexpr double MEMORY = 1024, RECENT = 64;
// Share of all lists. A search that would read more reads all keys in order: from TOO_MANY on, until it would be less than
// FEW.
constexpr double TOO_MANY = 0.5, FEW = 0.25;

// How many lists a bin stands for: 2, 3, 4, 6, 8, 12, ...
int64_t lists_of(int64_t bin) { return (2 + bin % 2) << bin / 2; }

// The lists that would have found the nearest key for all but a part of the samples, and of the recent ones: half of what
// may be missed, since the next queries may be harder.
int64_t enough(const ListsState &state, double target_recall) {
    const auto most = [&](const std::vector<double> &counts) {
        return (1 - target_recall) / 2 * std::accumulate(counts.begin(), counts.end(), 1e-9);
    };
    const double most_missed = most(state.needed), most_recent = most(state.recent);
    double missed = 0, recent = 0;
    int64_t bin = ListsState::BINS - 1;
    for (; bin > 0; bin--) {
        missed += state.needed[bin];
        recent += state.recent[bin];
        if (missed > most_missed || recent > most_recent) break;
    }
    return lists_of(bin);
}

void require(bool holds, const char *what) {
    if (!holds) throw std::invalid_argument(std::string("The state of the index cannot be right: ") + what + ".");
}

}  // namespace

void ListsState::check(int64_t capacity) const {
    require(static_cast<int64_t>(list_of.size()) <= capacity, "it is of a larger memory");
    std::vector<int64_t> lengths;
    for (const int64_t list : list_of) {
        require(list >= -1 && list < ListStore::most_lists(capacity), "it has too many lists");
        if (list >= static_cast<int64_t>(lengths.size())) lengths.resize(list + 1);
        if (list >= 0) lengths[list]++;
    }
    for (const int64_t length : lengths) require(length > 0 && length <= MOST_KEYS, "the length of a list is out of range");
    require(reassigned >= 0 && reassigned <= INT32_MAX && due >= 0 && due < MOST_DUE && asked >= 0,
            "a count is out of range");
    const auto counted = [](const std::vector<double> &counts) {
        return counts.size() == BINS && std::all_of(counts.begin(), counts.end(), [](double n) { return n >= 0 && n <= 1e9; });
    };
    require(counted(needed) && counted(recent) && share >= 0 && share <= 1 && lists_to_read > 0 && lists_to_read <= ALL,
            "what was learned is out of range");
}

AutoIndex::AutoIndex(int64_t key_size, int64_t capacity, double target_recall, int64_t small, int64_t many)
    : capacity_(capacity), small_(small), target_recall_(target_recall), exact_(key_size, capacity) {
    if (!(target_recall > 0 && target_recall < 1))
        throw std::invalid_argument("target_recall must be more than 0 and less than 1.");
    if (capacity > MOST_SLOTS) throw std::invalid_argument("An approximate index has room for at most 2^29 slots.");
    if (capacity > small) lists_.emplace(key_size, capacity, many);
}

void AutoIndex::find(const Slots &memory, float inverse_temperature, int threads, Found &found) const {
    if (!reads_) return exact_.find(memory, inverse_temperature, threads, found);
    const int64_t to_read = state_.lists_to_read;
    threads = found.n >= QUERIES_AT_ONCE ? threads : 1;
    auto &probes = Probe::pool(threads);
    parallel((found.n + TILE - 1) / TILE, threads, [&](int64_t tile, int thread) {
        Probe *const own = &probes[thread * TILE];
        const int64_t first = tile * TILE;
        const int n = static_cast<int>(std::min<int64_t>(found.n - first, TILE));
        for (int i = 0; i < n; i++) own[i].set_query(*lists_, found.unit(first + i), found.excluded(first + i));
        Probe::scan_centroids(*lists_, own, n, to_read);
        for (int i = 0; i < n; i++) {
            own[i].choose_first(*lists_, found.k, to_read);
            for (int64_t j = 0; j < found.hint_count; j++) found.hints[found.hint_count * (first + i) + j] = own[i].nearest(j);
        }
        for (int i = 0; i < n; i++)
            found.set(memory, first + i, own[i].read(*lists_, memory, found.k, to_read), inverse_temperature);
    });
}

void AutoIndex::change(const Slots &memory, const int64_t *slots, int64_t n, const Found *asked, int threads) {
    if (asked && are_enough()) learn(memory, *asked);
    if (lists_) change_lists(memory, slots, n, asked, threads);
    reads_ = should_read();
    if (reads_)
        exact_.release();
    else
        exact_.change(memory, slots, n, nullptr, threads);
}

void AutoIndex::rebuild(const Slots &memory, int threads) {
    if (lists_) rebuild_lists(memory, std::exchange(restored_, ListsState()), threads);
    reads_ = should_read();
    if (reads_)
        exact_.release();
    else
        exact_.rebuild(memory, threads);
}

void AutoIndex::learn(const Slots &memory, const Found &asked) {
    const int64_t before = state_.asked;
    const int64_t step = before < FIRST ? FIRST_STEP : std::max<int64_t>(STEP, lists_->n_keys / SAMPLES);
    state_.asked += asked.n;
    Probe &probe = Probe::pool(1)[0];
    // One after the other, since each search reads as much as those before have shown, however queries are batched.
    for (int64_t row = (step - before % step) % step; row < asked.n; row += step) {
        probe.set_query(*lists_, asked.unit(row), asked.excluded(row));
        probe.search(*lists_, memory, asked.k, enough(state_, target_recall_));
        const double share = static_cast<double>(probe.lists_read()) / lists_->n_lists;
        const float nearest = probe.nearest_of_all(*lists_, memory);
        if (nearest < -1) continue;
        int64_t bin = 0;  // the fewest lists by which a search finds it
        for (; bin + 1 < ListsState::BINS && lists_of(bin) < lists_->n_lists; bin++) {
            probe.search(*lists_, memory, asked.k, lists_of(bin));
            if (probe.best() >= nearest) break;
        }
        for (auto *counts : {&state_.needed, &state_.recent}) {
            for (double &each : *counts) each *= 1 - 1 / (counts == &state_.needed ? MEMORY : RECENT);
            (*counts)[bin] += 1;
        }
        state_.share += (share - state_.share) / RECENT;
        const bool too_many = state_.share > (state_.lists_to_read != ListsState::ALL ? TOO_MANY : FEW);
        state_.lists_to_read = too_many ? ListsState::ALL : enough(state_, target_recall_);
    }
}

ListsState AutoIndex::export_state() const {
    ListsState state = state_;
    for (int32_t slot = 0; lists_ && slot < static_cast<int32_t>(lists_->keys.places.size()); slot++)
        state.list_of.push_back(lists_->keys.chain_of(slot));
    while (!state.list_of.empty() && state.list_of.back() < 0) state.list_of.pop_back();
    return state;
}

void AutoIndex::restore(ListsState state) {
    state.check(capacity_);
    restored_ = std::move(state);
}
