// The margin loss.
#pragma once

#include <cstdint>

// One row for each of n queries.
struct Margin {
    const float *similarities;  // (n, k)
    const int64_t *columns;     // (n, 2): the first right neighbour and the first wrong one, -1 where there is none
    const int64_t *newest;      // (n,): a slot to take for the right one where there is none, or -1; null where not needed
    const uint8_t *mask;        // (n,): 0 where a query takes no part; null where all do
    int64_t n, k;
    int key_size;
};

// Finds the columns in values, (n, k).
void first_right_and_wrong(const int64_t *values, const int64_t *targets, int64_t n, int64_t k, int64_t *columns);

struct Total {
    double sum;     // of relu(negative - positive + margin)
    int64_t count;  // of the queries that have a positive and a negative
};

// slopes, (n,): 1 where a query adds to the loss, else 0. positives, (n, key_size): the keys of `newest`, where taken.
Total margin_loss(const Margin &margin, const float *queries, const float *keys, float alpha, float *slopes,
                  float *positives);

// The gradients of the sum, times `by`: of the similarities, (n, k), and of the queries, (n, key_size); both are 0 before.
void margin_gradient(const Margin &margin, const float *slopes, const float *positives, float by, float *similarities,
                     float *queries);
