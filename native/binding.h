// What the functions of the Python module share: how they read their arguments, and how they compute.
#pragma once

#include <cstdint>
#include <exception>

#include "tensors.h"

// Computes without the GIL, and turns a C++ exception into one of Python. Returns None, or null.
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

// The rows of a tensor.
template <typename T>
struct Rows {
    T *at;
    int64_t n;
};

// The arguments of a function, read one after the other. What does not fit sets an error, and all that is read after it is 0
// or null: so a function reads all of its arguments, asks `complete`, and only then does anything.
class Arguments {
public:
    Arguments(PyObject *const *arguments, Py_ssize_t count) : next(arguments), end(arguments + count) {}

    int64_t integer();
    double number();

    // A tensor of n numbers of this type, contiguous and on the CPU.
    template <typename T>
    T *tensor(int64_t n) {
        const Rows<void> found = numbers(number_of<T>(), false);
        expect(found.n == n, n);
        return static_cast<T *>(found.at);
    }

    // The same, or null for None.
    template <typename T>
    T *tensor_or_null(int64_t n) {
        const Rows<void> found = numbers(number_of<T>(), true);
        if (found.at) expect(found.n == n, n);
        return static_cast<T *>(found.at);
    }

    // A tensor of any number of rows, each so wide; none for None.
    template <typename T>
    Rows<T> rows(int64_t width) {
        const Rows<void> found = numbers(number_of<T>(), true);
        const int64_t n = width > 0 ? found.n / width : 0;
        expect(n * width == found.n, width);
        return {static_cast<T *>(found.at), n};
    }

    // A struct of pointers and of numbers of 64 bits, as bytes: so many integers would take longer to read than most of
    // what is done with them. Whoever packed it keeps the tensors that it points to.
    template <typename Struct>
    Struct packed() {
        static_assert(sizeof(Struct) % 8 == 0 && sizeof(void *) == 8, "all fields are 64 bits wide");
        Struct fields{};
        bytes(&fields, sizeof fields);
        return fields;
    }

    // Any object, borrowed; null after what did not fit.
    PyObject *object() { return take(); }

    // The last one does not fit: this was expected. An error that says more stays.
    void refuse(const char *expected);

    // Whether there were just as many as were read, and all fitted.
    bool complete();

private:
    PyObject *const *next, *const *const end;
    PyObject *last = nullptr;
    bool failed = false;

    PyObject *take();
    void bytes(void *to, int64_t size);
    Rows<void> numbers(Number number, bool none);
    void expect(bool fits, int64_t count);
};

// A function of the module.
using Function = PyObject *(*)(PyObject *, PyObject *const *, Py_ssize_t);
inline PyMethodDef function(const char *name, Function run, const char *what) {
    return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run)), METH_FASTCALL, what};
}
