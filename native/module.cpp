// The Python module rarecall._native. Tensors come as the integers of their data_ptr(): the caller (rarecall/native.py)
// has checked their types, shapes and strides, and keeps them alive. The GIL is released while anything is computed.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstring>

#include <exception>
#include <initializer_list>

#include "binding.h"
#include "cpu.h"
#include "exact.h"

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

PyMethodDef methods[] = {
    {"copy_keys", copy_keys_, METH_VARARGS, "Copies keys for the exact search; see exact.h."},
    {"find", find_, METH_VARARGS, "Finds the k best slots of each query; see exact.h."},
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
    return module;
}
