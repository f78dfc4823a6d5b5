// The part of the Python module that Memory itself uses; see module.cpp.
#include <algorithm>

#include "binding.h"
#include "clock.h"
#include "margin.h"
#include "newest.h"
#include "recall.h"
#include "update.h"

namespace {

PyObject *recall_(PyObject *, PyObject *args) {
    unsigned long long keys, values, sources, queries, found, exclude, slots, similarities, neighbour_values, weights;
    long long n, m, k;
    int key_size, threads;
    float inverse_temperature;
    if (!PyArg_ParseTuple(args, "KKKiKLKLKfiKKKKL", &keys, &values, &sources, &key_size, &queries, &n, &found, &m,
                          &exclude, &inverse_temperature, &threads, &slots, &similarities, &neighbour_values, &weights,
                          &k))
        return nullptr;
    const Slots memory{pointer<float>(keys), pointer<int64_t>(values), pointer<int64_t>(sources), key_size};
    const Neighbours neighbours{pointer<int64_t>(slots), pointer<float>(similarities),
                                pointer<int64_t>(neighbour_values), pointer<float>(weights), k};
    return compute([&] {
        recall(memory, pointer<float>(queries), n, pointer<int64_t>(found), m, pointer<int64_t>(exclude),
               inverse_temperature, threads, neighbours);
    });
}

PyObject *recall_gradient_(PyObject *, PyObject *args) {
    unsigned long long keys, changed, before, slots, weights, units, inverse_lengths, of_units, of_similarities, of_weights,
        of_queries;
    long long count, n, k;
    int key_size, threads;
    float inverse_temperature;
    if (!PyArg_ParseTuple(args, "KiKKLKKKKLLKKKfiK", &keys, &key_size, &changed, &before, &count, &slots, &weights, &units,
                          &inverse_lengths, &n, &k, &of_units, &of_similarities, &of_weights, &inverse_temperature,
                          &threads, &of_queries))
        return nullptr;
    const Slots memory{pointer<float>(keys), nullptr, nullptr, key_size};
    const Recalled recalled{pointer<int64_t>(slots), pointer<float>(weights), pointer<float>(units),
                            pointer<float>(inverse_lengths), n, k};
    const Gradients of{pointer<float>(of_units), pointer<float>(of_similarities), pointer<float>(of_weights)};
    return compute([&] {
        recall_gradient(memory, {pointer<int64_t>(changed), pointer<float>(before), count}, recalled, of,
                        inverse_temperature, threads, pointer<float>(of_queries));
    });
}

PyObject *normalise_(PyObject *, PyObject *args) {
    unsigned long long vectors, units, inverse_lengths;
    long long n;
    int size;
    if (!PyArg_ParseTuple(args, "KLiKK", &vectors, &n, &size, &units, &inverse_lengths)) return nullptr;
    return compute([&] {
        return normalise(pointer<float>(vectors), n, size, pointer<float>(units), pointer<float>(inverse_lengths));
    });
}

// The chains of a memory, or none where heads is 0.
struct MaybeChains {
    unsigned long long heads = 0, next = 0, previous = 0;
    int bits = 0;
    Chains chains{};

    const Chains *get() {
        chains = {pointer<int32_t>(heads), pointer<int32_t>(next), pointer<int32_t>(previous), bits};
        return heads ? &chains : nullptr;
    }
};

PyObject *margin_loss_(PyObject *, PyObject *args) {
    unsigned long long keys, values, sources, queries, similarities, of_neighbours, exclude, targets, mask, columns, slopes,
        positives;
    long long n, k;
    int key_size;
    float margin;
    MaybeChains chains;
    if (!PyArg_ParseTuple(args, "KKKiKKKKLLKK(KKKi)fKKK", &keys, &values, &sources, &key_size, &queries, &similarities,
                          &of_neighbours, &exclude, &n, &k, &targets, &mask, &chains.heads, &chains.next,
                          &chains.previous, &chains.bits, &margin, &columns, &slopes, &positives))
        return nullptr;
    const Slots memory{pointer<float>(keys), pointer<int64_t>(values), pointer<int64_t>(sources), key_size};
    const Asked asked{pointer<float>(queries), pointer<float>(similarities), pointer<int64_t>(of_neighbours),
                      pointer<int64_t>(exclude), n, k};
    Loss loss{};
    PyObject *done = compute([&] {
        loss = margin_loss(memory, asked, pointer<int64_t>(targets), pointer<uint8_t>(mask), chains.get(), margin,
                           {pointer<int64_t>(columns), pointer<float>(slopes), pointer<float>(positives)});
    });
    Py_XDECREF(done);
    return done ? Py_BuildValue("dLL", loss.sum, static_cast<long long>(loss.count), static_cast<long long>(loss.newest))
                : nullptr;
}

PyObject *margin_gradient_(PyObject *, PyObject *args) {
    unsigned long long columns, slopes, positives, similarities, queries;
    long long n, k;
    int key_size;
    float by;
    if (!PyArg_ParseTuple(args, "KKKLLifKK", &columns, &slopes, &positives, &n, &k, &key_size, &by, &similarities,
                          &queries))
        return nullptr;
    const Kept kept{pointer<int64_t>(columns), pointer<float>(slopes), pointer<float>(positives)};
    return compute([&] {
        margin_gradient(kept, n, k, key_size, by, pointer<float>(similarities), pointer<float>(queries));
    });
}

template <void (*change)(const Chains &, const int64_t *, const int64_t *, int64_t)>
PyObject *change_chains(PyObject *, PyObject *args) {
    unsigned long long values, slots;
    long long count;
    MaybeChains chains;
    if (!PyArg_ParseTuple(args, "(KKKi)KKL", &chains.heads, &chains.next, &chains.previous, &chains.bits, &values, &slots,
                          &count))
        return nullptr;
    return compute([&] { change(*chains.get(), pointer<int64_t>(values), pointer<int64_t>(slots), count); });
}

PyObject *newest_(PyObject *, PyObject *args) {
    unsigned long long values, sources, targets, exclude, slots;
    long long n;
    MaybeChains chains;
    if (!PyArg_ParseTuple(args, "(KKKi)KKKKLK", &chains.heads, &chains.next, &chains.previous, &chains.bits, &values,
                          &sources, &targets, &exclude, &n, &slots))
        return nullptr;
    const int64_t *excluded = pointer<int64_t>(exclude);
    return compute([&] {
        for (int64_t i = 0; i < n; i++)
            pointer<int64_t>(slots)[i] = newest(*chains.get(), pointer<int64_t>(values), pointer<int64_t>(sources),
                                                pointer<int64_t>(targets)[i], excluded ? excluded[i] : -1);
    });
}

PyObject *least_(PyObject *, PyObject *args) {
    unsigned long long numbers;
    long long n;
    if (!PyArg_ParseTuple(args, "KL", &numbers, &n)) return nullptr;
    const int64_t *first = pointer<int64_t>(numbers);
    return PyLong_FromLongLong(n ? *std::min_element(first, first + n) : 0);
}

PyObject *update_(PyObject *, PyObject *args) {
    unsigned long long keys, values, sources, times, log_slots, log_times, holes, queries, nearest, answers, targets, given,
        now, seed, touched, before;
    long long lines, head, tail, used, capacity, hole_count, stride, n;
    int key_size;
    double age_noise;
    MaybeChains chains;
    if (!PyArg_ParseTuple(args, "KKKi(KKKLLLLLKLK)(KKKi)KKKLKKLdKKK", &keys, &values, &sources, &key_size, &times,
                          &log_slots, &log_times, &lines, &head, &tail, &used, &capacity, &holes, &hole_count, &now,
                          &chains.heads, &chains.next, &chains.previous, &chains.bits, &queries, &nearest, &answers,
                          &stride, &targets, &given, &n, &age_noise, &seed, &touched, &before))
        return nullptr;
    const Changing memory{pointer<float>(keys), pointer<int64_t>(values), pointer<int64_t>(sources), key_size,
                          chains.get()};
    Clock clock{pointer<int64_t>(times), pointer<int64_t>(log_slots), pointer<int64_t>(log_times), lines, head, tail, used,
                capacity, pointer<int64_t>(holes), hole_count, *pointer<int64_t>(now)};
    const Batch batch{pointer<float>(queries), pointer<int64_t>(nearest), pointer<int64_t>(answers), stride,
                      pointer<int64_t>(targets), pointer<int64_t>(given), n};
    Updated updated{};
    PyObject *done = compute([&] {
        updated = update(memory, clock, batch, age_noise, seed, pointer<int64_t>(touched), pointer<float>(before));
        *pointer<int64_t>(now) = clock.now;
    });
    Py_XDECREF(done);
    return done ? Py_BuildValue("LLL(LLLLi)", static_cast<long long>(updated.zeros),
                                static_cast<long long>(updated.missed), static_cast<long long>(updated.touched),
                                static_cast<long long>(clock.head), static_cast<long long>(clock.tail),
                                static_cast<long long>(clock.used), static_cast<long long>(clock.hole_count),
                                static_cast<int>(updated.logged))
                : nullptr;
}

}  // namespace

PyMethodDef memory_methods[] = {
    {"normalise", normalise_, METH_VARARGS, "Makes vectors of length 1; returns how many numbers are bad; see recall.h."},
    {"recall", recall_, METH_VARARGS, "Scores, sorts and weighs the slots that a search found; see recall.h."},
    {"recall_gradient", recall_gradient_, METH_VARARGS, "The gradient of both; see recall.h."},
    {"margin_loss", margin_loss_, METH_VARARGS, "(sum, count, newest) of the loss; see margin.h."},
    {"margin_gradient", margin_gradient_, METH_VARARGS, "The gradient of that; see margin.h."},
    {"link", change_chains<link>, METH_VARARGS, "Puts slots at the heads of their values' chains; see newest.h."},
    {"unlink", change_chains<unlink>, METH_VARARGS, "Takes slots out of their values' chains; see newest.h."},
    {"newest", newest_, METH_VARARGS, "Finds the newest slot of each value; see newest.h."},
    {"least", least_, METH_VARARGS, "The least of some numbers, or 0."},
    {"update", update_, METH_VARARGS, "(zeros, missed, touched, clock) of an update; see update.h."},
    {nullptr, nullptr, 0, nullptr},
};
