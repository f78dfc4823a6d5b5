// Exact search: a copy of the keys in 7 bits is scanned; what could be among the k best is scored in float32.
#pragma once

#include <cstdint>

#include "../memory/array.h"
#include "index.h"

// Finds the k slots of the largest inner products, all of them, always: those that comparing every key in float32 would
// find, in the same order, for any number of threads. docs/exact-search.md has the proof.
class ExactIndex final : public Index {
  public:
    // The longest key: of more numbers, sums of products of codes would not be exact in float32.
    static constexpr int64_t LONGEST_KEY = 16384;

    // Throws std::invalid_argument for keys of more than LONGEST_KEY numbers and for more than 2^31 - 65 slots. Allocates
    // nothing before the first `rebuild` or `change`.
    ExactIndex(int64_t key_size, int64_t capacity);

    // Throws std::logic_error where there is no copy: before the first `rebuild`, and after `release`.
    void find(const Slots &, float inverse_temperature, int threads, Found &) const override;
    void change(const Slots &, const int64_t *slots, int64_t n, const Found *, int threads) override;
    void rebuild(const Slots &, int threads) override;

    // Frees the copy, key_size (rounded up to a multiple of 8) + 8 bytes a slot. The next `rebuild` or `change` makes it anew.
    void release();
    bool ready() const { return codes_.size() > 0; }

  private:
    class Search;

    int64_t width() const { return (key_size_ + 7) / 8 * 8; }
    float copy_key(const Slots &, int64_t slot, int8_t *room);

    int64_t key_size_, capacity_;
    Array<uint8_t> codes_;        // (slots, width) in kernels::PANEL slots; slots: capacity rounded up to whole steps
    Array<float> inverse_scale_;  // (slots,): 1 / s, where a key is s * its codes + a residual
    Array<float> residual_;       // (slots,): an upper bound of the residual's length, in units of s
    float longest_ = 0;           // no key, and no key as copied, is longer than this
};
