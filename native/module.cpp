// The Python module rarecall._native. The GIL is released while anything is computed.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstring>

#include <exception>
#include <initializer_list>

#include "binding.h"
#include "cpu.h"
#include "exact.h"
#include "found.h"
#include "held_slots.h"

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

PyObject *copy_keys_(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const auto copy = arguments.packed<Copy>();
    const Slots &memory = held_slots(arguments).slots;
    const int64_t used = arguments.integer();
    const auto slots = arguments.rows<int64_t>(1);
    const auto threads = static_cast<int>(arguments.integer());
    if (!arguments.complete()) return nullptr;
    return compute([&] { copy_keys(copy, {memory, used}, slots.at, slots.at ? slots.n : used, threads); });
}

PyObject *find_(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const auto copy = arguments.packed<Copy>();
    const Slots &memory = held_slots(arguments).slots;
    const int64_t used = arguments.integer(), k = arguments.integer();
    const auto queries = arguments.rows<float>(copy.key_size);
    const auto *exclude = arguments.tensor_or_null<int64_t>(queries.n);
    const auto threads = static_cast<int>(arguments.integer());
    auto *found = arguments.tensor<int64_t>(queries.n * k);
    auto *scores = arguments.tensor<float>(queries.n * k);
    if (!arguments.complete()) return nullptr;
    return compute([&] { find(copy, {memory, used}, queries.at, exclude, queries.n, k, threads, found, scores); });
}

PyMethodDef methods[] = {
    function("copy_keys", copy_keys_, "Copies keys for the exact search; see exact.h."),
    function("find", find_, "Finds the k best slots of each query; see exact.h."),
    {"variants", variants, METH_NOARGS, "The kernels that this CPU can run, the best one last."},
    {"use_variant", use_variant, METH_O, "Runs the kernels of this name from now on; the best ones by default."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

extern PyMethodDef lists_methods[], memory_methods[];

Variant variant = best();

PyMODINIT_FUNC PyInit__native() {
    PyObject *module = PyModule_Create(&definition);
    for (PyMethodDef *others : {lists_methods, memory_methods})
        if (module && PyModule_AddFunctions(module, others) < 0) Py_CLEAR(module);
    if (module && !(add_found(module) && add_held_slots(module))) Py_CLEAR(module);
    return module;
}
