// The paper's margin loss.
#pragma once

#include <cstdint>

#include "book.h"
#include "recall.h"
#include "slots.h"

// Returns the mean of relu(q . K[n_b] - q . K[n_p] + margin) over the queries that have both a positive and a negative; 0
// where none has. targets: (n,). mask: (n,), false where a query takes no part, or null. gradient: (n, key_size), of the mean
// by the queries before they were normalised, or null. Throws std::out_of_range where `found` names a slot that is not there.
float margin_loss(const Slots &, const Book &, const Found &, const int64_t *targets, const bool *mask, float margin,
                  float *gradient);
