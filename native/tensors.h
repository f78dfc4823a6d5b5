// Tensors of torch, read and made without torch's own headers, so that it is not needed to build this.
//
// By what DLPack tells of a tensor, all of it in one call, where torch has that (from 2.10 on): to ask for its attributes one
// by one takes six times as long. Of an older torch they are asked.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <type_traits>

enum class Number { float32, int64, int32, boolean, uint8, other };

template <typename T>
constexpr Number number_of() {
    return std::is_same_v<T, float>     ? Number::float32
           : std::is_same_v<T, int64_t> ? Number::int64
           : std::is_same_v<T, int32_t> ? Number::int32
           : std::is_same_v<T, bool>    ? Number::boolean
                                        : Number::uint8;
}

// As torch names it.
const char *name_of(Number number);

struct Tensor {
    static constexpr int MOST = 16;  // dimensions that are known of

    void *data = nullptr;
    Number number = Number::other;
    bool compact = false;  // on the CPU, contiguous, of at most MOST dimensions
    int64_t count = 0;     // of its numbers
    int dimensions = 0;
    int64_t shape[MOST] = {};
};

// Whether an object is a tensor, and what it is. Sets no error.
bool look(PyObject *object, Tensor &tensor);

// How often torch wrote to a tensor; 0 for one that was made in inference mode, which does not count.
int64_t times_written(PyObject *tensor);

// A new tensor of n numbers in a row, or of one number alone, a scalar; null where that failed.
PyObject *tensor_of(const int64_t *numbers, int64_t n);
PyObject *tensor_of(float number);

// An attribute of torch.
PyObject *of_torch(const char *name);

// Torch's own object for this type, found once.
template <typename T>
PyObject *dtype_of() {
    static PyObject *const found = of_torch(name_of(number_of<T>()));
    return found;
}
