// What the functions of the Python module share.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <exception>
#include <type_traits>

// Computes without the GIL, and turns a C++ exception into one of Python. Returns None, or the integer that was computed.
template <typename Compute>
PyObject *compute(const Compute &run) {
    constexpr bool counts = !std::is_void_v<decltype(run())>;
    std::exception_ptr failure;
    long long count = 0;
    Py_BEGIN_ALLOW_THREADS;
    try {
        if constexpr (counts)
            count = run();
        else
            run();
    } catch (...) {
        failure = std::current_exception();
    }
    Py_END_ALLOW_THREADS;
    if (failure) return PyErr_NoMemory();  // nothing else is ever thrown
    if constexpr (counts) return PyLong_FromLongLong(count);
    Py_RETURN_NONE;
}

template <typename T>
T *pointer(unsigned long long address) {
    return reinterpret_cast<T *>(static_cast<uintptr_t>(address));
}
