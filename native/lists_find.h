// Reading lists; one Finder for each thread.
#pragma once

#include <cstdint>
#include <vector>

#include "lists.h"

// Codes of the vector x of n numbers: x = code * scale, all of them in [-127, 127]; up to width filled with 0.
float quantise(const float *x, int64_t n, int64_t width, int8_t *code);

// What a query pays for each nibble of a sign code: the numbers of its rotated code at the signs that differ.
struct Costs {
    std::vector<int32_t> rotated;
    std::vector<uint8_t> costs;  // (bits / 4, 16)

    void set(const Lists &, const int8_t *code);
};

struct Scored {
    float similarity;
    int32_t id;
    bool operator<(const Scored &other) const {  // the nearest first; of equal ones, the lowest
        return similarity != other.similarity ? similarity > other.similarity : id < other.id;
    }
};

// Changes nothing; its room is used again from query to query, in cache lines of its own.
class alignas(128) Finder {
public:
    std::vector<Scored> order;  // the nearest lists, in order

    // What is looked for from now on: a vector, or a code.
    void ask(const Lists &, const float *vector, int64_t excluded);
    void ask(const Lists &, const int8_t *of, float its_scale);

    void nearest_lists(const Lists &, int64_t count);

    // Reads the `probes` nearest lists, and more of them until they hold k keys.
    void read(const Lists &, int k, int64_t probes);

    // The k best of what was read, by their keys where their codes cannot tell; returns how many there are.
    int choose(const Lists &, int k, int64_t *out);

    // How many lists have to be read to find the nearest key; 0 where there is none.
    int rank(const Lists &);

    Costs costs;

private:
    struct Piece {
        int32_t block, rows;  // the first rows of a block
    };

    const float *vector = nullptr;
    int64_t exclude = -1;
    const int8_t *code = nullptr;
    float scale = 0;
    std::vector<int8_t> own_code;
    std::vector<Piece> pieces;  // to be read
    std::vector<uint8_t> distance;
    std::vector<int32_t> bins, dots, slots;
    // What was read: places and similarities.
    std::vector<int32_t> places;
    std::vector<float> similarities;

    void collect(const Lists &, int64_t ranks);
    void score_keys(const Lists &, int64_t total, int64_t wanted);
    void score_all(const Lists &, int64_t total);
    void score_places(const Lists &, const Codes &);
    void nearest_codes(int64_t n, int64_t wanted);
    void take_slots(const Lists &);
};

// One for each of the threads that this one starts, and for itself. They are this thread's own, so that theirs need not
// ask for memory each time.
std::vector<Finder> &finders(int threads);
