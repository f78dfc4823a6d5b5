// What follows from the values and times of the slots: which are empty, which is written next, which is the newest of a value.
#pragma once

#include <cstdint>
#include <vector>

#include "array.h"
#include "slots.h"

// What is another when one of the tensors of a memory was replaced or moved, or written to.
struct Stamp {
    uint64_t tensors = 0;  // which they are and where, mixed
    int64_t counted = 0;   // those of which torch counts
    int64_t written = 0;   // how often they were written to
    uint64_t mark = 0;     // that the last change left: it tells of what torch does not count, such as another process

    bool operator==(const Stamp &other) const {
        return tensors == other.tensors && counted == other.counted && written == other.written && mark == other.mark;
    }
};

// It owns all of that, so that an update costs what it touches and not what the memory holds.
class Book {
  public:
    Stamp stamp;  // of the tensors whose slots it knows, for whoever reads them

    // Makes it anew. A slot has a value and a time of 0 to now, or -1 for both: the caller has checked it.
    void rebuild(const Slots &);

    int64_t used() const { return used_; }  // no slot from this one on is filled
    int64_t filled() const { return used_ - holes_left(); }
    int64_t room() const { return capacity_ - filled(); }  // empty slots

    // Chooses `count` slots to write, at most capacity of them: empty ones first, the lowest before the others, then those of
    // the largest age + r, r in [0, age_noise), which follows from the seed and the slot. A confirmed slot (ascending) is
    // taken only where no other is left. They count as used from now on.
    std::vector<int64_t> choose(const Slots &, const std::vector<int64_t> &confirmed, int64_t count, double age_noise,
                                uint64_t seed);

    // What the slots that `choose` would write over have, if `count` were to be: their time less their noise, the least first.
    // Changes nothing. Of several memories that are one, the least of all are written over.
    std::vector<double> offers(const Slots &, const std::vector<int64_t> &confirmed, int64_t count, double age_noise,
                               uint64_t seed);

    // To be called before and after slots (ascending) are written, confirmed or emptied. That costs what it touches where all
    // times are later than those before; else the book is made anew.
    void leave(const std::vector<int64_t> &slots);
    void follow(const Slots &, const std::vector<int64_t> &slots);

    // The slot of this value that was touched last and was not founded by the excluded source (-1: none), or -1.
    int64_t newest(const Slots &, int64_t value, int64_t excluded) const;

  private:
    // Every touch of a slot is a line of a log, in order of time: the oldest slots stand at its head. A line is live while
    // its slot has not been touched again. A full log is written anew, once in capacity / 4 touches or more.
    struct Line {
        int64_t slot, time;
        bool operator<(const Line &other) const { return time != other.time ? time < other.time : slot < other.slot; }
    };

    int64_t capacity_ = 0, used_ = 0, head_ = 0, tail_ = 0;
    Array<Line> log_;
    std::vector<int64_t> holes_;  // empty slots below used_, ascending; those before next_hole_ are filled again
    size_t next_hole_ = 0;
    // Slots in chains by a hash of their value, the one touched last at the head. The slot before the first of a chain is
    // -2 - its bucket, so that a slot leaves its chain whatever has become of its value; LOOSE: it is in none.
    static constexpr int32_t LOOSE = INT32_MIN;
    int bits_ = 1;
    Array<int32_t> heads_, next_, previous_;

    int64_t holes_left() const { return static_cast<int64_t>(holes_.size() - next_hole_); }
    int32_t bucket(int64_t value) const;
    void link(int64_t slot, int64_t value);
    void unlink(int64_t slot);
    void write_log(const Slots &);
    struct Aged {
        double since;  // the time less the noise: where it is least, age + noise is largest
        int64_t slot;
        bool operator<(const Aged &other) const { return since != other.since ? since < other.since : slot < other.slot; }
    };
    std::vector<Aged> oldest(const Slots &, int64_t count, double age_noise, uint64_t seed);
};
