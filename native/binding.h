// What the functions of the Python module share: how they read their arguments, and how they compute.
//
// Tensors are read by what Python's own objects say of them, so that torch is not needed to build this.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <exception>
#include <type_traits>

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

// Where the numbers of a tensor are.
void *data_ptr(PyObject *tensor);

// How often torch wrote to a tensor; 0 for one that was made in inference mode, which does not count.
int64_t times_written(PyObject *tensor);

// Whether a tensor has this shape, a tuple, without its last dimension.
bool is_one_for_each_row(PyObject *tensor, PyObject *shape);

// An attribute of torch.
PyObject *of_torch(const char *name);

// Torch's own object for this type, found once.
template <typename T>
PyObject *dtype_of() {
    static PyObject *const found = of_torch(std::is_same_v<T, float>     ? "float32"
                                            : std::is_same_v<T, int64_t> ? "int64"
                                            : std::is_same_v<T, int32_t> ? "int32"
                                            : std::is_same_v<T, bool>    ? "bool"
                                                                         : "uint8");
    return found;
}

// A new tensor of this one number.
PyObject *scalar(float number);

// A new tensor of as many int64 as there are in another, in one row.
PyObject *numbers_like(PyObject *tensor);

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
        const Rows<void> found = numbers(dtype_of<T>, false);
        expect(found.n == n, n);
        return static_cast<T *>(found.at);
    }

    // The same, or null for None.
    template <typename T>
    T *tensor_or_null(int64_t n) {
        const Rows<void> found = numbers(dtype_of<T>, true);
        if (found.at) expect(found.n == n, n);
        return static_cast<T *>(found.at);
    }

    // A tensor of any number of rows, each so wide; none for None.
    template <typename T>
    Rows<T> rows(int64_t width) {
        const Rows<void> found = numbers(dtype_of<T>, true);
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
    Rows<void> numbers(PyObject *(*dtype)(), bool none);
    void expect(bool fits, int64_t count);
};

// A function of the module.
using Function = PyObject *(*)(PyObject *, PyObject *const *, Py_ssize_t);
inline PyMethodDef function(const char *name, Function run, const char *what) {
    return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run)), METH_FASTCALL, what};
}
