// What queries found, as an object of Python.
//
// A tensor takes a microsecond to make, and as long to be read again, a few of them more than a whole search: so a recall is
// one piece of memory, from which tensors are made where they are asked for.
#pragma once

#include "binding.h"
#include "recall.h"

struct Found {
    PyObject_HEAD;
    int64_t n, key_size, k;
    void *block;  // in which all of these are
    int64_t bytes;
    int64_t *slots, *values;         // (n, k)
    float *similarities, *weights;   // (n, k)
    float *units, *inverse_lengths;  // (n, key_size), the normalised queries, and by what each was multiplied, (n,)
    int64_t *exclude;                // (n,), or null

    Neighbours neighbours() const { return {slots, similarities, values, weights, k}; }
};

// Normalises n queries, (n, key_size), to be answered by k neighbours each. exclude: (n,) or null. Returns null, with an error
// set, where a number is nan or infinite, or there is no memory left.
Found *ask(const float *queries, int64_t n, int64_t key_size, int64_t k, const int64_t *exclude);

// Reads Found, or null for None.
Found *found_or_null(Arguments &arguments);

// Reads either Found or a tuple of five tensors: queries, slots, similarities, values, and what each query excludes, or None.
Asked asked(Arguments &arguments, int64_t key_size, int64_t k);

// Adds the type to the module; whether that worked.
bool add_found(PyObject *module);
