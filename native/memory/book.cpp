#include "book.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace {

// A number in [0, 1) that follows from a seed and a slot, by SplitMix64 (Steele et al. 2014). As in backend/torch_backend.py.
double uniform(uint64_t seed, int64_t slot) {
    uint64_t x = seed + (static_cast<uint64_t>(slot) + 1) * 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return static_cast<double>((x ^ x >> 31) >> 11) * 0x1p-53;
}

}  // namespace

void Book::rebuild(const Slots &memory) {
    if (capacity_ != memory.capacity) {
        capacity_ = 0;
        bits_ = 1;
        while (bits_ < 30 && int64_t{1} << bits_ < memory.capacity) bits_++;
        heads_ = Array<int32_t>(int64_t{1} << bits_);
        next_ = Array<int32_t>(memory.capacity);
        previous_ = Array<int32_t>(memory.capacity);
        log_ = Array<Line>(memory.capacity + memory.capacity / 4 + 1024);
        capacity_ = memory.capacity;
    }
    used_ = capacity_;
    while (used_ > 0 && memory.values[used_ - 1] < 0) used_--;
    holes_.clear();
    next_hole_ = 0;
    for (int64_t slot = 0; slot < used_; slot++)
        if (memory.values[slot] < 0) holes_.push_back(slot);
    write_log(memory);
    std::fill(heads_.begin(), heads_.end(), -1);
    std::fill(previous_.begin(), previous_.end(), LOOSE);
    for (int64_t line = head_; line < tail_; line++) link(log_[line].slot, memory.values[log_[line].slot]);
}

// One line for each filled slot, in order of time and then of slots, as `follow` leaves them.
void Book::write_log(const Slots &memory) {
    head_ = tail_ = 0;
    for (int64_t slot = 0; slot < used_; slot++)
        if (memory.times[slot] >= 0) log_[tail_++] = {slot, memory.times[slot]};
    std::sort(log_.data(), log_.data() + tail_);
}

// The `count` slots with the largest age + r, the first of them first; fewer where there are no more. Noise less than
// `age_noise` can lift a slot past the count-th oldest only if it was touched less than `age_noise` updates after it: the log
// is in order of time, so those stand together.
std::vector<Book::Aged> Book::oldest(const Slots &memory, int64_t count, double age_noise, uint64_t seed) {
    constexpr int64_t AHEAD = 32;  // lines; slots stand in no order, and each would be a cache miss to wait for
    const auto reach = static_cast<int64_t>(std::min(std::max(std::ceil(age_noise), 1.0), 0x1p62));
    std::vector<Aged> aged;
    int64_t bound = std::numeric_limits<int64_t>::max(), first = tail_;
    for (int64_t line = head_; line < tail_ && log_[line].time < bound; line++) {
        const auto [slot, time] = log_[line];
        if (line + AHEAD < tail_) __builtin_prefetch(memory.times + log_[line + AHEAD].slot);
        if (memory.times[slot] != time) continue;
        if (aged.empty()) first = line;
        aged.push_back({static_cast<double>(time) - age_noise * uniform(seed, slot), slot});
        if (static_cast<int64_t>(aged.size()) == count) bound = time + reach;
    }
    head_ = first;
    const auto end = aged.begin() + std::min<int64_t>(count, aged.size());
    std::partial_sort(aged.begin(), end, aged.end());
    aged.erase(end, aged.end());
    return aged;
}

std::vector<double> Book::offers(const Slots &memory, const std::vector<int64_t> &confirmed, int64_t count, double age_noise,
                                 uint64_t seed) {
    std::vector<double> since;
    for (const Aged &each : oldest(memory, count + static_cast<int64_t>(confirmed.size()), age_noise, seed))
        if (!std::binary_search(confirmed.begin(), confirmed.end(), each.slot)) since.push_back(each.since);
    since.resize(std::min<int64_t>(count, since.size()));
    return since;
}

std::vector<int64_t> Book::choose(const Slots &memory, const std::vector<int64_t> &confirmed, int64_t count, double age_noise,
                                  uint64_t seed) {
    const int64_t holes = std::min(count, holes_left()), fresh = std::min(count - holes, capacity_ - used_);
    std::vector<int64_t> written(holes_.begin() + next_hole_, holes_.begin() + next_hole_ + holes);
    for (int64_t i = 0; i < fresh; i++) written.push_back(used_ + i);
    next_hole_ += holes;
    used_ += fresh;
    count -= holes + fresh;
    if (count == 0) return written;

    for (const int64_t slot : confirmed) memory.times[slot] = *memory.now;  // so that their lines are no longer live
    const std::vector<Aged> aged = oldest(memory, count, age_noise, seed);
    for (const Aged &each : aged) written.push_back(each.slot);
    written.insert(written.end(), confirmed.begin(), confirmed.begin() + (count - static_cast<int64_t>(aged.size())));
    return written;
}

void Book::leave(const std::vector<int64_t> &slots) {
    for (const int64_t slot : slots) unlink(slot);
}

void Book::follow(const Slots &memory, const std::vector<int64_t> &slots) {
    std::vector<Line> lines;
    for (const int64_t slot : slots)
        if (memory.values[slot] >= 0) lines.push_back({slot, memory.times[slot]});
    for (; !lines.empty() && used_ <= lines.back().slot; used_++) holes_.push_back(used_);
    std::vector<int64_t> changed;  // slots that became holes, or are none any more
    for (const int64_t slot : slots) {
        const bool was_hole = slot >= used_ || std::binary_search(holes_.begin() + next_hole_, holes_.end(), slot);
        if (was_hole != (memory.values[slot] < 0)) changed.push_back(slot);
    }
    if (!changed.empty()) {
        std::vector<int64_t> holes;
        std::set_symmetric_difference(holes_.begin() + next_hole_, holes_.end(), changed.begin(), changed.end(),
                                      std::back_inserter(holes));
        holes_.swap(holes);
        next_hole_ = 0;
    }
    std::sort(lines.begin(), lines.end());
    if (!lines.empty() && tail_ > 0 && lines.front().time <= log_[tail_ - 1].time) return rebuild(memory);
    for (const Line &line : lines) link(line.slot, memory.values[line.slot]);
    if (tail_ + static_cast<int64_t>(lines.size()) > log_.size()) return write_log(memory);
    tail_ = std::copy(lines.begin(), lines.end(), log_.data() + tail_) - log_.data();
}

int32_t Book::bucket(int64_t value) const {
    return static_cast<int32_t>(static_cast<uint64_t>(value) * 0x9E3779B97F4A7C15u >> (64 - bits_));
}

void Book::link(int64_t slot, int64_t value) {
    const int32_t here = bucket(value), first = heads_[here];
    next_[slot] = first;
    previous_[slot] = -2 - here;
    if (first >= 0) previous_[first] = static_cast<int32_t>(slot);
    heads_[here] = static_cast<int32_t>(slot);
}

void Book::unlink(int64_t slot) {
    const int32_t before = previous_[slot];
    if (before == LOOSE) return;
    const int32_t after = next_[slot];
    (before >= 0 ? next_[before] : heads_[-2 - before]) = after;
    if (after >= 0) previous_[after] = before;
    previous_[slot] = LOOSE;
}

int64_t Book::newest(const Slots &memory, int64_t value, int64_t excluded) const {
    int32_t slot = heads_[bucket(value)];
    while (slot >= 0 && (memory.values[slot] != value || memory.is_excluded(slot, excluded))) slot = next_[slot];
    return slot;
}
