// The part of the Python module that Memory itself uses; see module.cpp.
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

PyObject *weigh_(PyObject *, PyObject *args) {
    unsigned long long keys, changed, before, slots, weights, gradient;
    long long count, n, k;
    int key_size, threads;
    if (!PyArg_ParseTuple(args, "KiKKLKKLLiK", &keys, &key_size, &changed, &before, &count, &slots, &weights, &n, &k,
                          &threads, &gradient))
        return nullptr;
    const Slots memory{pointer<float>(keys), nullptr, nullptr, key_size};
    return compute([&] {
        weigh(memory, {pointer<int64_t>(changed), pointer<float>(before), count}, pointer<int64_t>(slots),
              pointer<float>(weights), n, k, threads, pointer<float>(gradient));
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

PyObject *normalise_gradient_(PyObject *, PyObject *args) {
    unsigned long long units, inverse_lengths, of_units, of_vectors;
    long long n;
    int size;
    if (!PyArg_ParseTuple(args, "KKKLiK", &units, &inverse_lengths, &of_units, &n, &size, &of_vectors)) return nullptr;
    return compute([&] {
        normalise_gradient(pointer<float>(units), pointer<float>(inverse_lengths), pointer<float>(of_units), n, size,
                           pointer<float>(of_vectors));
    });
}

PyObject *first_right_and_wrong_(PyObject *, PyObject *args) {
    unsigned long long values, targets, columns;
    long long n, k;
    if (!PyArg_ParseTuple(args, "KKLLK", &values, &targets, &n, &k, &columns)) return nullptr;
    return compute([&] {
        first_right_and_wrong(pointer<int64_t>(values), pointer<int64_t>(targets), n, k, pointer<int64_t>(columns));
    });
}

PyObject *margin_loss_(PyObject *, PyObject *args) {
    unsigned long long similarities, columns, newest, mask, queries, keys, slopes, positives;
    long long n, k;
    int key_size;
    float alpha;
    if (!PyArg_ParseTuple(args, "KKKKLLiKKfKK", &similarities, &columns, &newest, &mask, &n, &k, &key_size, &queries,
                          &keys, &alpha, &slopes, &positives))
        return nullptr;
    const Margin margin{pointer<float>(similarities), pointer<int64_t>(columns), pointer<int64_t>(newest),
                        pointer<uint8_t>(mask), n, k, key_size};
    Total total{};
    PyObject *done = compute([&] {
        total = margin_loss(margin, pointer<float>(queries), pointer<float>(keys), alpha, pointer<float>(slopes),
                            pointer<float>(positives));
    });
    Py_XDECREF(done);
    return done ? Py_BuildValue("dL", total.sum, static_cast<long long>(total.count)) : nullptr;
}

PyObject *margin_gradient_(PyObject *, PyObject *args) {
    unsigned long long columns, slopes, positives, similarities, queries;
    long long n, k;
    int key_size;
    float by;
    if (!PyArg_ParseTuple(args, "KLLiKKfKK", &columns, &n, &k, &key_size, &slopes, &positives, &by, &similarities,
                          &queries))
        return nullptr;
    const Margin margin{nullptr, pointer<int64_t>(columns), nullptr, nullptr, n, k, key_size};
    return compute([&] {
        margin_gradient(margin, pointer<float>(slopes), pointer<float>(positives), by, pointer<float>(similarities),
                        pointer<float>(queries));
    });
}

PyObject *plan_(PyObject *, PyObject *args) {
    unsigned long long keys, queries, nearest, answers, targets, confirmed, new_keys, missed;
    long long n;
    int key_size;
    if (!PyArg_ParseTuple(args, "KiKKKKLKKK", &keys, &key_size, &queries, &nearest, &answers, &targets, &n, &confirmed,
                          &new_keys, &missed))
        return nullptr;
    const Slots memory{pointer<float>(keys), nullptr, nullptr, key_size};
    Plan made{pointer<int64_t>(confirmed), pointer<float>(new_keys), pointer<int64_t>(missed), 0, 0, 0};
    PyObject *done = compute([&] {
        plan(memory, pointer<float>(queries), pointer<int64_t>(nearest), pointer<int64_t>(answers),
             pointer<int64_t>(targets), n, made);
    });
    Py_XDECREF(done);
    return done ? Py_BuildValue("LLL", static_cast<long long>(made.confirmed_count),
                                static_cast<long long>(made.missed_count), static_cast<long long>(made.zeros))
                : nullptr;
}

template <void (*change)(const Chains &, const int64_t *, const int64_t *, int64_t)>
PyObject *change_chains(PyObject *, PyObject *args) {
    unsigned long long heads, next, previous, values, slots;
    long long count;
    int bits;
    if (!PyArg_ParseTuple(args, "KKKiKKL", &heads, &next, &previous, &bits, &values, &slots, &count)) return nullptr;
    const Chains chains{pointer<int32_t>(heads), pointer<int32_t>(next), pointer<int32_t>(previous), bits};
    return compute([&] { change(chains, pointer<int64_t>(values), pointer<int64_t>(slots), count); });
}

PyObject *find_newest_(PyObject *, PyObject *args) {
    unsigned long long heads, next, previous, values, sources, targets, exclude, newest;
    long long n;
    int bits;
    if (!PyArg_ParseTuple(args, "KKKiKKKKLK", &heads, &next, &previous, &bits, &values, &sources, &targets, &exclude, &n,
                          &newest))
        return nullptr;
    const Chains chains{pointer<int32_t>(heads), pointer<int32_t>(next), pointer<int32_t>(previous), bits};
    return compute([&] {
        find_newest(chains, pointer<int64_t>(values), pointer<int64_t>(sources), pointer<int64_t>(targets),
                    pointer<int64_t>(exclude), n, pointer<int64_t>(newest));
    });
}

PyObject *write_(PyObject *, PyObject *args) {
    unsigned long long confirmed, new_keys, missed, queries, targets, sources_given, written, keys, values, sources;
    long long confirmed_count, missed_count;
    int key_size;
    if (!PyArg_ParseTuple(args, "KKLKLKKKKiKKK", &confirmed, &new_keys, &confirmed_count, &missed, &missed_count,
                          &queries, &targets, &sources_given, &written, &key_size, &keys, &values, &sources))
        return nullptr;
    const Plan plan{pointer<int64_t>(confirmed), pointer<float>(new_keys), pointer<int64_t>(missed), confirmed_count,
                    missed_count, 0};
    return compute([&] {
        write(plan, pointer<float>(queries), pointer<int64_t>(targets), pointer<int64_t>(sources_given),
              pointer<int64_t>(written), key_size, pointer<float>(keys), pointer<int64_t>(values),
              pointer<int64_t>(sources));
    });
}

PyObject *oldest_(PyObject *, PyObject *args) {
    unsigned long long touched, slots, times, lines;
    long long head, tail, count, reach, room;
    if (!PyArg_ParseTuple(args, "KKKLLLLKL", &touched, &slots, &times, &head, &tail, &count, &reach, &lines, &room))
        return nullptr;
    const Log log{pointer<int64_t>(touched), pointer<int64_t>(slots), pointer<int64_t>(times)};
    return compute([&] { return oldest(log, head, tail, count, reach, pointer<int64_t>(lines), room); });
}

}  // namespace

PyMethodDef memory_methods[] = {
    {"recall", recall_, METH_VARARGS, "Scores, sorts and weighs the slots that a search found; see recall.h."},
    {"weigh", weigh_, METH_VARARGS, "Sums keys up by weights: the gradient of a recall; see recall.h."},
    {"first_right_and_wrong", first_right_and_wrong_, METH_VARARGS, "Positive and negative; see margin.h."},
    {"plan", plan_, METH_VARARGS, "What an update does to the keys: (confirmed, missed, zeros); see update.h."},
    {"link", change_chains<link>, METH_VARARGS, "Puts slots at the heads of their values' chains; see newest.h."},
    {"unlink", change_chains<unlink>, METH_VARARGS, "Takes slots out of their values' chains; see newest.h."},
    {"find_newest", find_newest_, METH_VARARGS, "Finds the newest slot of each value; see newest.h."},
    {"oldest", oldest_, METH_VARARGS, "Finds the oldest live lines of the clock's log; see clock.h."},
    {"normalise", normalise_, METH_VARARGS, "Makes vectors of length 1; returns how many numbers are bad; see recall.h."},
    {"normalise_gradient", normalise_gradient_, METH_VARARGS, "The gradient of that; see recall.h."},
    {"margin_loss", margin_loss_, METH_VARARGS, "(sum, count) of the loss; see margin.h."},
    {"margin_gradient", margin_gradient_, METH_VARARGS, "The gradient of that; see margin.h."},
    {"write", write_, METH_VARARGS, "Writes what was planned; see update.h."},
    {nullptr, nullptr, 0, nullptr},
};
