// The slots of a memory as an object of Python, which tells whether its tensors are still those that it was made of.
#pragma once

#include "binding.h"
#include "newest.h"
#include "recall.h"

struct HeldSlots {
    PyObject_HEAD;
    PyObject *tensors;  // keys, values and sources
    Slots slots;
    int64_t capacity;
    int64_t version;  // how often torch wrote to them, when they were asked last; what was made in inference mode does not count
    PyObject *chain_tensors;  // what the chains are in, or null
    Chains chains;
    int64_t chained;  // the version of the slots that the chains are of
    PyObject *drawn;  // a tensor of one number, drawn by torch, or null

    // The chains, or null where there are none of the slots as they were when they were asked last.
    const Chains *chains_or_null() const { return chain_tensors && chained == version ? &chains : nullptr; }
};

// Reads HeldSlots; on failure, of a memory without slots.
HeldSlots &held_slots(Arguments &arguments);

// Whether a module's buffers are still these tensors, and ids is a tensor of int64, one for each query of a shape, none less
// than a number. The version is then known anew.
bool fits(HeldSlots &held, PyObject *buffers, PyObject *ids, PyObject *shape, int64_t at_least, const int64_t *&numbers);

// Draws a number by a generator of torch's, or by its own for None; whether that worked.
bool draw(HeldSlots &held, PyObject *generator, uint64_t &number);

// Tells torch, and whoever else asks for the version, that all three tensors were written to, and the chains with them;
// whether that worked.
bool wrote(HeldSlots &held);

// Adds the type to the module, as Slots; whether that worked.
bool add_held_slots(PyObject *module);
