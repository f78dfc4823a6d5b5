// What the functions of the Python module share.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <exception>

// Computes without the GIL, and turns a C++ exception into one of Python.
template <typename Compute>
PyObject *compute(const Compute &run) {
    std::exception_ptr failure;
    Py_BEGIN_ALLOW_THREADS;
    try {
        run();
    } catch (...) {
        failure = std::current_exception();
    }
    Py_END_ALLOW_THREADS;
    if (failure) return PyErr_NoMemory();  // nothing else is ever thrown
    Py_RETURN_NONE;
}

template <typename T>
T *pointer(unsigned long long address) {
    return reinterpret_cast<T *>(static_cast<uintptr_t>(address));
}
