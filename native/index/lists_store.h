// Keys in inverted lists, their codes and the lists' centroids: what is derived from the keys, and how it is kept
// consistent.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "../memory/slots.h"
#include "lists_chains.h"
#include "lists_codes.h"
#include "lists_regions.h"

// Keys. A shorter list is dissolved; no list but the only one stays shorter, so there are at most capacity / SHORTEST +
// 2. Low enough that a list does not split and dissolve in turns.
constexpr int32_t SHORTEST = 12;

// A key as it stands at a place.
struct CodedKey {
    const int8_t *code, *residual;
    float scale;
    int32_t slot;
};

// Keys on their way into a list.
struct Batch {
    int64_t width = 0;
    std::vector<int8_t> codes, residuals;
    std::vector<float> scales;
    std::vector<int32_t> slots;

    int64_t size() const { return static_cast<int64_t>(slots.size()); }
    void resize(int64_t n, int64_t code_width) {
        width = code_width;
        codes.resize(n * width);
        residuals.resize(n * width);
        scales.resize(n);
        slots.resize(n);
    }
    CodedKey operator[](int64_t i) const { return {&codes[i * width], &residuals[i * width], scales[i], slots[i]}; }
    void encode(int64_t i, const float *key, const CodeSize &);
    void copy(int64_t i, const CodedKey &);
};

// How close the keys of a list are to its centroid: their mean cosine with it, and the sine of that angle.
struct Spread {
    float cosine, sine;
};

// All sums are of integers: the same centroids follow from the same keys and places, whatever the order of events and
// the CPU.
class ListStore {
  public:
    // many: keys, from which on lists are short and probed by regions.
    ListStore(int64_t key_size, int64_t capacity, int64_t many);

    const CodeSize size;
    const int64_t width, max_lists, many;
    Chains keys;              // chain: list; member: slot
    Codes at;                 // of each place: the codes of its key
    Array<int8_t> residuals;  // (places, width)
    Array<int32_t> sums;      // (lists, width): of the codes of a list, weighted by their scales
    Codes centroids;          // of each list: its mean key, scaled to length 1
    Array<Spread> spreads;    // (lists,)
    std::optional<Regions> regions;
    int32_t n_lists = 0, n_keys = 0;

    bool are_many() const { return n_keys >= many; }
    int64_t centroid_blocks() const { return (n_lists + BLOCK - 1) / BLOCK; }
    CodedKey key_at(int64_t place) const;
    void prefetch_place(int64_t place) const;

    // Takes all keys out: no list is left.
    void clear();

    // Each of these leaves the centroid of the list as it was, for `refresh`. scratch: for the rotation of a code.
    void add(int32_t list, const CodedKey &, std::vector<int32_t> &scratch);
    void remove(int32_t slot);
    void replace(const CodedKey &, std::vector<int32_t> &scratch);  // in the list that its slot is in
    void empty(int32_t list);                                       // takes all its keys out

    void copy_keys(int32_t list, Batch &out) const;

    int32_t new_list();
    void remove_empty_list(int32_t list, std::vector<int32_t> &scratch);  // the last list takes its number

    // Makes the centroids of these lists (ascending, distinct) from their sums.
    void refresh(const int32_t *lists, int64_t n, std::vector<int32_t> *scratch, int threads);

    // Makes all codes, sums and centroids of the keys, at the places that they have.
    void encode_all(const Slots &, std::vector<int32_t> *scratch, int threads);

    static int64_t most_lists(int64_t capacity) { return capacity / SHORTEST + 2; }
    static int64_t most_blocks(int64_t capacity) { return capacity / BLOCK + most_lists(capacity); }

    // What a key adds to the sum of its list is its code times this: about the same length for every key, in integers.
    static int32_t weight(float scale);

  private:
    int32_t *sum(int64_t list) { return sums.data() + list * width; }
    void write(int64_t place, const CodedKey &);
    void make_centroid(int32_t list, std::vector<int32_t> &scratch);
};
