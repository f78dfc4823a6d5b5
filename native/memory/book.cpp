#include "book.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace {

// A number in [0, 1) that follows from a seed and a slot, by SplitMix64 (Steele et al. 2014). As in backend/torch.py.
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

// One line for each filled slot, in order of time and then of slots, as `touch` leaves them.
void Book::write_log(const Slots &memory) {
    head_ = tail_ = 0;
    for (int64_t slot = 0; slot < used_; slot++)
        if (memory.times[slot] >= 0) log_[tail_++] = {slot, memory.times[slot]};
    std::sort(log_.data(), log_.data() + tail_,
              [](const Line &a, const Line &b) { return a.time != b.time ? a.time < b.time : a.slot < b.slot; });
}

// The oldest slots: at least `count` of them, and all that are less than `reach` younger than the last of these; fewer where
// there are no more.
std::vector<int64_t> Book::oldest(const Slots &memory, int64_t count, int64_t reach) {
    constexpr int64_t AHEAD = 32;  // lines; slots stand in no order, and each would be a cache miss to wait for
    std::vector<int64_t> slots;
    int64_t bound = std::numeric_limits<int64_t>::max(), first = tail_;
    for (int64_t line = head_; line < tail_ && log_[line].time < bound; line++) {
        if (line + AHEAD < tail_) __builtin_prefetch(memory.times + log_[line + AHEAD].slot);
        if (memory.times[log_[line].slot] != log_[line].time) continue;
        if (slots.empty()) first = line;
        slots.push_back(log_[line].slot);
        if (static_cast<int64_t>(slots.size()) == count) bound = log_[line].time + reach;
    }
    head_ = first;
    return slots;
}

// The oldest slots with their noise, in no order; the `count` of them with the largest age + r are among them. Noise less than
// `age_noise` can lift a slot past the count-th oldest only if it was touched less than `age_noise` updates after it: the log
// is in order of time, so those stand together.
std::vector<Book::Aged> Book::aged(const Slots &memory, int64_t count, double age_noise, uint64_t seed) {
    std::vector<Aged> aged;
    const auto reach = static_cast<int64_t>(std::min(std::max(std::ceil(age_noise), 1.0), 0x1p62));
    for (const int64_t slot : oldest(memory, count, reach))
        aged.push_back({static_cast<double>(memory.times[slot]) - age_noise * uniform(seed, slot), slot});
    return aged;
}

std::vector<double> Book::offers(const Slots &memory, const std::vector<int64_t> &confirmed, int64_t count, double age_noise,
                                 uint64_t seed) {
    std::vector<Aged> all = aged(memory, count + static_cast<int64_t>(confirmed.size()), age_noise, seed);
    auto is_confirmed = [&](const Aged &each) { return std::binary_search(confirmed.begin(), confirmed.end(), each.slot); };
    all.erase(std::remove_if(all.begin(), all.end(), is_confirmed), all.end());
    const int64_t n = std::min<int64_t>(count, all.size());
    std::partial_sort(all.begin(), all.begin() + n, all.end());
    std::vector<double> since;
    for (int64_t i = 0; i < n; i++) since.push_back(all[i].since);
    return since;
}

void Book::choose(const Slots &memory, const std::vector<int64_t> &confirmed, int64_t count, double age_noise, uint64_t seed,
                  std::vector<int64_t> &written) {
    const int64_t holes = std::min(count, holes_left()), fresh = std::min(count - holes, capacity_ - used_);
    written.assign(holes_.begin() + next_hole_, holes_.begin() + next_hole_ + holes);
    for (int64_t i = 0; i < fresh; i++) written.push_back(used_ + i);
    next_hole_ += holes;
    used_ += fresh;
    count -= holes + fresh;
    if (count == 0) return;

    for (const int64_t slot : confirmed) memory.times[slot] = *memory.now;  // so that their lines are no longer live
    std::vector<Aged> all = aged(memory, count, age_noise, seed);
    const int64_t chosen = std::min<int64_t>(count, all.size());
    std::partial_sort(all.begin(), all.begin() + chosen, all.end());
    for (int64_t i = 0; i < chosen; i++) written.push_back(all[i].slot);
    written.insert(written.end(), confirmed.begin(), confirmed.begin() + (count - chosen));
}

void Book::leave(const int64_t *slots, int64_t count) {
    for (int64_t i = 0; i < count; i++) unlink(slots[i]);
}

void Book::touch(const Slots &memory, const int64_t *slots, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        memory.times[slots[i]] = *memory.now;
        link(slots[i], memory.values[slots[i]]);
    }
    if (tail_ + count > log_.size()) return write_log(memory);
    for (int64_t i = 0; i < count; i++) log_[tail_++] = {slots[i], *memory.now};
}

void Book::put(const Slots &memory, const int64_t *slots, int64_t count, bool follows) {
    const int64_t last = tail_ > 0 ? log_[tail_ - 1].time : -1;
    std::vector<Line> lines;
    for (int64_t i = 0; i < count; i++) {
        follows = follows && memory.times[slots[i]] > last;
        lines.push_back({slots[i], memory.times[slots[i]]});
    }
    if (!follows) return rebuild(memory);
    for (int64_t i = 0; i < count; i++) {
        for (; used_ <= slots[i]; used_++)
            if (used_ < slots[i]) holes_.push_back(used_);
        const auto hole = std::lower_bound(holes_.begin() + next_hole_, holes_.end(), slots[i]);
        if (hole == holes_.end() || *hole != slots[i]) continue;
        if (hole == holes_.begin() + next_hole_)
            next_hole_++;
        else
            holes_.erase(hole);
    }
    std::sort(lines.begin(), lines.end(),
              [](const Line &a, const Line &b) { return a.time != b.time ? a.time < b.time : a.slot < b.slot; });
    for (const Line &line : lines) link(line.slot, memory.values[line.slot]);
    if (tail_ + count > log_.size()) return write_log(memory);
    for (const Line &line : lines) log_[tail_++] = line;
}

void Book::erase(const int64_t *slots, int64_t count) {
    leave(slots, count);
    std::vector<int64_t> all(holes_left() + count);
    std::merge(holes_.begin() + next_hole_, holes_.end(), slots, slots + count, all.begin());
    holes_.swap(all);
    next_hole_ = 0;
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
    auto fits = [&] { return memory.values[slot] == value && !(excluded >= 0 && excluded == memory.sources[slot]); };
    while (slot >= 0 && !fits()) slot = next_[slot];
    return slot;
}
