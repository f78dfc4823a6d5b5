// The Python module rarecall._native. Tensors come as the integers of their data_ptr(): the caller (rarecall/native.py)
// has checked their types, shapes and strides, and keeps them alive. The GIL is released while anything is computed.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstring>

#include <exception>

#include "binding.h"
#include "clock.h"
#include "cpu.h"
#include "exact.h"
#include "recall.h"
#include "update.h"

namespace {

constexpr const char *names[] = {"plain", "avx2"};
constexpr int count = 2;

Variant best() {
    for (int i = count - 1; i > 0; i--)
        if (has(static_cast<Variant>(i))) return static_cast<Variant>(i);
    return Variant::plain;
}

PyObject *variants(PyObject *, PyObject *) {
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < count; i++) {
        if (!has(static_cast<Variant>(i))) continue;
        PyObject *name = PyUnicode_FromString(names[i]);
        if (!name || PyList_Append(list, name) < 0) Py_CLEAR(list);
        Py_XDECREF(name);
    }
    return list;
}

PyObject *use_variant(PyObject *, PyObject *name) {
    const char *wanted = PyUnicode_AsUTF8(name);
    if (!wanted) return nullptr;
    for (int i = 0; i < count; i++)
        if (!std::strcmp(wanted, names[i]) && has(static_cast<Variant>(i))) {
            variant = static_cast<Variant>(i);
            Py_RETURN_NONE;
        }
    return PyErr_Format(PyExc_ValueError, "use_variant got %R; expected one of variants().", name);
}

PyObject *copy_keys_(PyObject *, PyObject *args) {
    unsigned long long codes, inverse_scale, residual, longest, keys, values, slots;
    long long count;
    int key_size, threads;
    if (!PyArg_ParseTuple(args, "KKKKiKKKLi", &codes, &inverse_scale, &residual, &longest, &key_size, &keys, &values,
                          &slots, &count, &threads))
        return nullptr;
    const Copy copy{pointer<uint8_t>(codes), pointer<float>(inverse_scale), pointer<float>(residual),
                    pointer<float>(longest), key_size};
    const Memory memory{pointer<float>(keys), pointer<int64_t>(values), nullptr, 0};
    return compute([&] { copy_keys(copy, memory, pointer<int64_t>(slots), count, threads); });
}

PyObject *find_(PyObject *, PyObject *args) {
    unsigned long long codes, inverse_scale, residual, longest, keys, sources, queries, exclude, found, scores;
    long long used, n, k;
    int key_size, threads;
    if (!PyArg_ParseTuple(args, "KKKKiKKLKKLLiKK", &codes, &inverse_scale, &residual, &longest, &key_size, &keys,
                          &sources, &used, &queries, &exclude, &n, &k, &threads, &found, &scores))
        return nullptr;
    const Copy copy{pointer<uint8_t>(codes), pointer<float>(inverse_scale), pointer<float>(residual),
                    pointer<float>(longest), key_size};
    const Memory memory{pointer<float>(keys), nullptr, pointer<int64_t>(sources), used};
    return compute([&] {
        find(copy, memory, pointer<float>(queries), pointer<int64_t>(exclude), n, k, threads, pointer<int64_t>(found),
             pointer<float>(scores));
    });
}

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

PyObject *first_right_and_wrong_(PyObject *, PyObject *args) {
    unsigned long long values, targets, columns;
    long long n, k;
    if (!PyArg_ParseTuple(args, "KKLLK", &values, &targets, &n, &k, &columns)) return nullptr;
    return compute([&] {
        first_right_and_wrong(pointer<int64_t>(values), pointer<int64_t>(targets), n, k, pointer<int64_t>(columns));
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
    if (!done) return nullptr;
    Py_DECREF(done);
    return Py_BuildValue("LLL", static_cast<long long>(made.confirmed_count), static_cast<long long>(made.missed_count),
                         static_cast<long long>(made.zeros));
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

PyObject *oldest_(PyObject *, PyObject *args) {
    unsigned long long touched, slots, times, lines;
    long long head, tail, count, reach, room;
    if (!PyArg_ParseTuple(args, "KKKLLLLKL", &touched, &slots, &times, &head, &tail, &count, &reach, &lines, &room))
        return nullptr;
    const Log log{pointer<int64_t>(touched), pointer<int64_t>(slots), pointer<int64_t>(times)};
    return PyLong_FromLongLong(oldest(log, head, tail, count, reach, pointer<int64_t>(lines), room));
}

PyMethodDef methods[] = {
    {"copy_keys", copy_keys_, METH_VARARGS, "Copies keys for the exact search; see exact.h."},
    {"find", find_, METH_VARARGS, "Finds the k best slots of each query; see exact.h."},
    {"recall", recall_, METH_VARARGS, "Scores, sorts and weighs the slots that a search found; see recall.h."},
    {"weigh", weigh_, METH_VARARGS, "Sums keys up by weights: the gradient of a recall; see recall.h."},
    {"first_right_and_wrong", first_right_and_wrong_, METH_VARARGS, "Positive and negative; see recall.h."},
    {"plan", plan_, METH_VARARGS, "What an update does to the keys: (confirmed, missed, zeros); see update.h."},
    {"link", change_chains<link>, METH_VARARGS, "Puts slots at the heads of their values' chains; see update.h."},
    {"unlink", change_chains<unlink>, METH_VARARGS, "Takes slots out of their values' chains; see update.h."},
    {"find_newest", find_newest_, METH_VARARGS, "Finds the newest slot of each value; see update.h."},
    {"oldest", oldest_, METH_VARARGS, "Finds the oldest live lines of the clock's log; see clock.h."},
    {"variants", variants, METH_NOARGS, "The kernels that this CPU can run, the best one last."},
    {"use_variant", use_variant, METH_O, "Runs the kernels of this name from now on; the best ones by default."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

extern PyMethodDef lists_methods[];

Variant variant = best();

PyMODINIT_FUNC PyInit__native() {
    PyObject *module = PyModule_Create(&definition);
    if (module && PyModule_AddFunctions(module, lists_methods) < 0) Py_CLEAR(module);
    return module;
}
