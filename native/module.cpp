// The Python module rarecall._native. Tensors come as the integers of their data_ptr(): the caller (rarecall/native.py)
// has checked their types, shapes and strides, and keeps them alive. The GIL is released while anything is computed.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstring>

#include "cpu.h"

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

PyMethodDef methods[] = {
    {"variants", variants, METH_NOARGS, "The kernels that this CPU can run, the best one last."},
    {"use_variant", use_variant, METH_O, "Runs the kernels of this name from now on; the best ones by default."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

Variant variant = best();

PyMODINIT_FUNC PyInit__native() { return PyModule_Create(&definition); }
