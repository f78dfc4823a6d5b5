#include "found.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <utility>

namespace {

PyTypeObject *type = nullptr;
constexpr int64_t LINE = 64;  // of the cache

// The last block that was given up, unless it was large: the next recall is mostly as long, and a block that is in the cache
// need not be fetched. Held by the GIL.
struct Spare {
    static constexpr int64_t LARGE = 1 << 20;
    void *block = nullptr;
    int64_t bytes = 0;

    void *take(int64_t wanted) {
        if (bytes != wanted) return std::aligned_alloc(LINE, wanted);
        bytes = 0;
        return std::exchange(block, nullptr);
    }

    void give(void *other, int64_t its_bytes) {
        if (other && its_bytes <= LARGE) {
            std::swap(block, other);
            bytes = its_bytes;
        }
        std::free(other);
    }
} spare;

void free_found(PyObject *self) {
    spare.give(reinterpret_cast<Found *>(self)->block, reinterpret_cast<Found *>(self)->bytes);
    PyTypeObject *its_type = Py_TYPE(self);
    its_type->tp_free(self);
    Py_DECREF(its_type);
}

int get_buffer(PyObject *self, Py_buffer *view, int flags) {
    auto *found = reinterpret_cast<Found *>(self);
    return PyBuffer_FillInfo(view, self, found->block, found->bytes, 0, flags);
}

// A tensor of n rows of `width` numbers, or of n numbers where it is 0, which shares the memory of `found`.
PyObject *tensor(Found *found, const void *at, PyObject *dtype, int64_t width) {
    static PyObject *const frombuffer = of_torch("frombuffer"), *const empty = of_torch("empty");
    if (!frombuffer || !empty) return nullptr;
    const auto n = static_cast<long long>(found->n), count = n * std::max<long long>(width, 1);
    const long long offset = static_cast<const char *>(at) - static_cast<const char *>(found->block);
    // Of nothing, torch makes no tensor that shares it.
    PyObject *positional = count > 0 ? Py_BuildValue("(O)", found) : Py_BuildValue("(L)", 0LL);
    PyObject *named = count > 0 ? Py_BuildValue("{sOsLsL}", "dtype", dtype, "count", count, "offset", offset)
                                : Py_BuildValue("{sO}", "dtype", dtype);
    PyObject *flat = positional && named ? PyObject_Call(count > 0 ? frombuffer : empty, positional, named) : nullptr;
    Py_XDECREF(positional);
    Py_XDECREF(named);
    if (width == 0) return flat;
    PyObject *shaped = flat ? PyObject_CallMethod(flat, "view", "LL", n, static_cast<long long>(width)) : nullptr;
    Py_XDECREF(flat);
    return shaped;
}

template <auto Field>
PyObject *get(PyObject *self, void *) {
    auto *found = reinterpret_cast<Found *>(self);
    using Number = std::remove_pointer_t<std::remove_reference_t<decltype(found->*Field)>>;
    return tensor(found, found->*Field, dtype_of<Number>(), found->k);
}

PyObject *get_units(PyObject *self, void *) {
    auto *found = reinterpret_cast<Found *>(self);
    return tensor(found, found->units, dtype_of<float>(), found->key_size);
}

PyObject *get_inverse_lengths(PyObject *self, void *) {
    auto *found = reinterpret_cast<Found *>(self);
    return tensor(found, found->inverse_lengths, dtype_of<float>(), 0);
}

PyGetSetDef attributes[] = {
    {"slots", get<&Found::slots>, nullptr, "(n, k) int64", nullptr},
    {"similarities", get<&Found::similarities>, nullptr, "(n, k)", nullptr},
    {"values", get<&Found::values>, nullptr, "(n, k) int64", nullptr},
    {"weights", get<&Found::weights>, nullptr, "(n, k)", nullptr},
    {"query", get_units, nullptr, "(n, key_size), normalised", nullptr},
    {"inverse_lengths", get_inverse_lengths, nullptr, "(n,), by what each query was multiplied", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

// Says how many numbers of the queries are nan or infinite, in the words of rarecall.checks.
void refuse(int64_t bad) {
    PyObject *checks = PyImport_ImportModule("rarecall.checks");
    PyObject *done = checks ? PyObject_CallMethod(checks, "check_finite", "L", static_cast<long long>(bad)) : nullptr;
    Py_XDECREF(checks);
    Py_XDECREF(done);
}

}  // namespace

Found *ask(const float *queries, int64_t n, int64_t key_size, int64_t k, const int64_t *exclude) {
    PyObject *object = type->tp_alloc(type, 0);
    if (!object) return nullptr;
    auto *found = reinterpret_cast<Found *>(object);
    found->n = n;
    found->key_size = key_size;
    found->k = k;
    auto size = [](int64_t bytes) { return (bytes + LINE - 1) / LINE * LINE; };  // each part begins a line
    const int64_t parts[] = {size(n * k * 8), size(n * k * 8),        size(n * k * 4),
                             size(n * k * 4), size(n * key_size * 4), size(n * 4),     exclude ? size(n * 8) : 0};
    int64_t starts[8] = {};
    for (int i = 0; i < 7; i++) starts[i + 1] = starts[i] + parts[i];
    found->bytes = std::max(starts[7], LINE);
    found->block = spare.take(found->bytes);
    if (!found->block) {
        Py_DECREF(object);
        PyErr_NoMemory();
        return nullptr;
    }
    auto at = [&](int part) { return static_cast<char *>(found->block) + starts[part]; };
    found->slots = reinterpret_cast<int64_t *>(at(0));
    found->values = reinterpret_cast<int64_t *>(at(1));
    found->similarities = reinterpret_cast<float *>(at(2));
    found->weights = reinterpret_cast<float *>(at(3));
    found->units = reinterpret_cast<float *>(at(4));
    found->inverse_lengths = reinterpret_cast<float *>(at(5));
    found->exclude = exclude ? reinterpret_cast<int64_t *>(at(6)) : nullptr;
    if (exclude) std::copy_n(exclude, n, found->exclude);
    int64_t bad;
    Py_BEGIN_ALLOW_THREADS;
    bad = normalise(queries, n, static_cast<int>(key_size), found->units, found->inverse_lengths);
    Py_END_ALLOW_THREADS;
    if (bad) {
        Py_DECREF(object);
        refuse(bad);
        return nullptr;
    }
    return found;
}

Found *found_or_null(Arguments &arguments) {
    PyObject *object = arguments.object();
    if (!object || object == Py_None) return nullptr;
    if (Py_TYPE(object) == type) return reinterpret_cast<Found *>(object);
    arguments.refuse("Found or None");
    return nullptr;
}

Asked asked(Arguments &arguments, int64_t key_size, int64_t k) {
    PyObject *object = arguments.object();
    if (!object) return {};
    if (Py_TYPE(object) == type) {
        const auto *found = reinterpret_cast<Found *>(object);
        if (found->key_size == key_size && found->k == k)
            return {found->units, found->slots, found->similarities, found->values, found->exclude, found->n, k};
    } else if (PyTuple_Check(object)) {
        Arguments each(&PyTuple_GET_ITEM(object, 0), PyTuple_GET_SIZE(object));
        const auto queries = each.rows<float>(key_size);
        const int64_t n = queries.n;
        const Asked read{queries.at,
                         each.tensor<int64_t>(n * k),
                         each.tensor<float>(n * k),
                         each.tensor<int64_t>(n * k),
                         each.tensor_or_null<int64_t>(n),
                         n,
                         k};
        if (each.complete()) return read;
    }
    arguments.refuse("Found of this memory, or its tensors");
    return {};
}

bool add_found(PyObject *module) {
    static PyType_Slot slots[] = {
        {Py_tp_dealloc, reinterpret_cast<void *>(free_found)},
        {Py_tp_getset, attributes},
        {Py_bf_getbuffer, reinterpret_cast<void *>(get_buffer)},
        {Py_tp_doc, const_cast<char *>("What queries found; its tensors share its memory.")},
        {0, nullptr},
    };
    static PyType_Spec spec = {"rarecall._native.Found", sizeof(Found), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
    type = reinterpret_cast<PyTypeObject *>(PyType_FromSpec(&spec));
    return type && PyModule_AddType(module, type) == 0;
}
