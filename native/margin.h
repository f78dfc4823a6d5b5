// The margin loss.
#pragma once

#include <cstdint>

#include "newest.h"
#include "recall.h"

// What the gradient of the loss needs, one row for each query; all null where none is wanted.
struct Kept {
    int64_t *columns;  // (n, 2): the first right neighbour and the first wrong one, -1 where there is none
    float *slopes;     // (n,): 1 where the query adds to the loss, else 0
    float *positives;  // (n, key_size): where no neighbour is right, the key that takes its place
};

struct Loss {
    double sum;      // of relu(negative - positive + margin)
    int64_t count;   // of the queries that have a positive and a negative
    int64_t newest;  // of these, those without a right neighbour; -1 where there is one and no chains were given
};

// targets: (n,). mask: (n,), false where a query takes no part, or null where all do. chains: null until they are needed.
Loss margin_loss(const Slots &memory, const Asked &asked, const int64_t *targets, const bool *mask,
                 const Chains *chains, float margin, const Kept &kept);

// The gradients of the sum, times `by`: of the similarities, (n, k), and of the queries, (n, key_size), or null where all
// have a right neighbour; both are 0 before.
void margin_gradient(const Kept &kept, int64_t n, int64_t k, int key_size, float by, float *similarities, float *queries);
