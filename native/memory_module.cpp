// The functions of the Python module that Memory itself uses; see module.cpp.
#include <algorithm>

#include "binding.h"
#include "clock.h"
#include "margin.h"
#include "newest.h"
#include "recall.h"
#include "update.h"

namespace {

PyObject *recall_(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const auto memory = arguments.packed<Slots>();
    const int64_t k = arguments.integer();
    const auto queries = arguments.rows<float>(memory.key_size);
    const int64_t n = queries.n, m = arguments.integer();
    const auto *found = arguments.tensor<int64_t>(n * m), *exclude = arguments.tensor_or_null<int64_t>(n);
    const auto inverse_temperature = static_cast<float>(arguments.number());
    const auto threads = static_cast<int>(arguments.integer());
    const Neighbours neighbours{arguments.tensor<int64_t>(n * k), arguments.tensor<float>(n * k),
                                arguments.tensor<int64_t>(n * k), arguments.tensor<float>(n * k), k};
    if (!arguments.complete()) return nullptr;
    return compute([&] { recall(memory, queries.at, n, found, m, exclude, inverse_temperature, threads, neighbours); });
}

PyObject *recall_gradient_(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const auto memory = arguments.packed<Slots>();
    const auto changed = arguments.rows<int64_t>(1);
    const Before before{changed.at, arguments.tensor<float>(changed.n * memory.key_size), changed.n};
    const auto units = arguments.rows<float>(memory.key_size);
    const int64_t n = units.n, k = arguments.integer();
    const Recalled recalled{arguments.tensor<int64_t>(n * k), arguments.tensor<float>(n * k), units.at,
                            arguments.tensor<float>(n), n, k};
    const Gradients of{arguments.tensor_or_null<float>(n * memory.key_size), arguments.tensor_or_null<float>(n * k),
                       arguments.tensor_or_null<float>(n * k)};
    const auto inverse_temperature = static_cast<float>(arguments.number());
    const auto threads = static_cast<int>(arguments.integer());
    auto *of_queries = arguments.tensor<float>(n * memory.key_size);
    if (!arguments.complete()) return nullptr;
    return compute([&] { recall_gradient(memory, before, recalled, of, inverse_temperature, threads, of_queries); });
}

PyObject *normalise_(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const int64_t size = arguments.integer();
    const auto vectors = arguments.rows<float>(size);
    auto *units = arguments.tensor<float>(vectors.n * size), *inverse_lengths = arguments.tensor_or_null<float>(vectors.n);
    if (!arguments.complete()) return nullptr;
    return compute([&] { return normalise(vectors.at, vectors.n, static_cast<int>(size), units, inverse_lengths); });
}

// The chains of a memory, or null where there are none.
const Chains *or_null(const Chains &chains) { return chains.heads ? &chains : nullptr; }

PyObject *margin_loss_(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const auto memory = arguments.packed<Slots>();
    const auto chains = arguments.packed_or_null<Chains>();
    const int64_t k = arguments.integer();
    const auto queries = arguments.rows<float>(memory.key_size);
    const int64_t n = queries.n;
    const Asked asked{queries.at, arguments.tensor<float>(n * k), arguments.tensor<int64_t>(n * k),
                      arguments.tensor_or_null<int64_t>(n), n, k};
    const auto *targets = arguments.tensor<int64_t>(n);
    const auto *mask = arguments.tensor_or_null<bool>(n);
    const auto margin = static_cast<float>(arguments.number());
    const Kept kept{arguments.tensor_or_null<int64_t>(2 * n), arguments.tensor_or_null<float>(n),
                    arguments.tensor_or_null<float>(n * memory.key_size)};
    auto *mean = arguments.tensor<float>(1);
    if (!arguments.complete()) return nullptr;
    Loss loss{};
    PyObject *done = compute([&] {
        loss = margin_loss(memory, asked, targets, mask, or_null(chains), margin, kept);
        *mean = static_cast<float>(loss.sum / static_cast<double>(std::max<int64_t>(loss.count, 1)));
    });
    Py_XDECREF(done);
    return done ? Py_BuildValue("LL", static_cast<long long>(loss.count), static_cast<long long>(loss.newest)) : nullptr;
}

PyObject *margin_gradient_(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const int64_t k = arguments.integer(), key_size = arguments.integer();
    const auto columns = arguments.rows<int64_t>(2);
    const int64_t n = columns.n;
    const Kept kept{columns.at, arguments.tensor<float>(n), arguments.tensor<float>(n * key_size)};
    const auto by = static_cast<float>(arguments.number());
    auto *similarities = arguments.tensor<float>(n * k), *queries = arguments.tensor_or_null<float>(n * key_size);
    if (!arguments.complete()) return nullptr;
    return compute([&] { margin_gradient(kept, n, k, static_cast<int>(key_size), by, similarities, queries); });
}

template <void (*change)(const Chains &, const int64_t *, const int64_t *, int64_t)>
PyObject *change_chains(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const auto chains = arguments.packed<Chains>();
    const auto memory = arguments.packed<Slots>();
    const auto slots = arguments.rows<int64_t>(1);
    if (!arguments.complete()) return nullptr;
    return compute([&] { change(chains, memory.values, slots.at, slots.n); });
}

PyObject *newest_(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const auto chains = arguments.packed<Chains>();
    const auto memory = arguments.packed<Slots>();
    const auto targets = arguments.rows<int64_t>(1);
    const auto *exclude = arguments.tensor_or_null<int64_t>(targets.n);
    auto *slots = arguments.tensor<int64_t>(targets.n);
    if (!arguments.complete()) return nullptr;
    return compute([&] {
        for (int64_t i = 0; i < targets.n; i++)
            slots[i] = newest(chains, memory.values, memory.sources, targets.at[i], exclude ? exclude[i] : -1);
    });
}

PyObject *are_ids_(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    PyObject *tensor = count > 0 ? given[0] : nullptr;
    const auto ids = arguments.rows<int64_t>(1);
    PyObject *queries = arguments.object();
    const int64_t at_least = arguments.integer();
    if (!arguments.complete()) {
        if (PyErr_ExceptionMatches(PyExc_ValueError)) {
            PyErr_Clear();
            Py_RETURN_FALSE;
        }
        return nullptr;
    }
    const bool are = is_one_for_each_row(tensor, queries) &&
                     std::all_of(ids.at, ids.at + ids.n, [&](int64_t id) { return id >= at_least; });
    return PyErr_Occurred() ? nullptr : PyBool_FromLong(are);
}

PyObject *version_(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const auto memory = arguments.packed<Slots>();
    PyObject *buffers = arguments.object();
    if (!arguments.complete()) return nullptr;
    static PyObject *const names[] = {PyUnicode_InternFromString("keys"), PyUnicode_InternFromString("values"),
                                      PyUnicode_InternFromString("sources")};
    const void *const at[] = {memory.keys, memory.values, memory.sources};
    int64_t version = 0;
    for (int i = 0; i < 3; i++) {
        PyObject *tensor = PyDict_GetItemWithError(buffers, names[i]);
        if (!tensor || data_ptr(tensor) != at[i]) return PyErr_Occurred() ? nullptr : PyLong_FromLong(-1);
        version += times_written(tensor);
    }
    return PyLong_FromLongLong(version);
}

PyObject *update_(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const auto memory = arguments.packed<Slots>();
    const auto clock = arguments.packed<Clock>();
    const auto chains = arguments.packed_or_null<Chains>();
    const int64_t k = arguments.integer();
    const auto queries = arguments.rows<float>(memory.key_size);
    const int64_t n = queries.n;
    const Batch batch{queries.at, arguments.tensor<int64_t>(n * k), arguments.tensor<int64_t>(n * k), k,
                      arguments.tensor<int64_t>(n), arguments.tensor_or_null<int64_t>(n), n};
    const double age_noise = arguments.number();
    PyObject *draw = arguments.object(), *generator = arguments.object();
    auto *touched = arguments.tensor<int64_t>(n);
    auto *before = arguments.tensor_or_null<float>(n * memory.key_size);
    if (!arguments.complete()) return nullptr;
    uint64_t seed = 0;
    if (draws(clock, batch)) {
        PyObject *drawn = PyObject_CallOneArg(draw, generator);
        if (drawn) seed = PyLong_AsUnsignedLongLong(drawn);
        Py_XDECREF(drawn);
        if (PyErr_Occurred()) return nullptr;
    }
    Updated updated{};
    PyObject *done =
        compute([&] { updated = update(memory, clock, or_null(chains), batch, age_noise, seed, touched, before); });
    Py_XDECREF(done);
    return done ? Py_BuildValue("LLLN", static_cast<long long>(updated.zeros), static_cast<long long>(updated.missed),
                                static_cast<long long>(updated.touched), PyBool_FromLong(updated.logged))
                : nullptr;
}

}  // namespace

PyMethodDef memory_methods[] = {
    function("normalise", normalise_, "Makes vectors of length 1; returns how many numbers are bad; see recall.h."),
    function("recall", recall_, "Scores, sorts and weighs the slots that a search found; see recall.h."),
    function("recall_gradient", recall_gradient_, "The gradient of both; see recall.h."),
    function("margin_loss", margin_loss_, "(count, newest) of the loss, and its mean; see margin.h."),
    function("margin_gradient", margin_gradient_, "The gradient of that; see margin.h."),
    function("link", change_chains<link>, "Puts slots at the heads of their values' chains; see newest.h."),
    function("unlink", change_chains<unlink>, "Takes slots out of their values' chains; see newest.h."),
    function("newest", newest_, "Finds the newest slot of each value; see newest.h."),
    function("are_ids", are_ids_, "Whether these are int64, one for each row of a tensor, and none less than a number."),
    function("version", version_, "How often torch wrote to a memory's tensors; -1 where they are not these."),
    function("update", update_, "(zeros, missed, touched, logged) of an update; see update.h."),
    {nullptr, nullptr, 0, nullptr},
};
