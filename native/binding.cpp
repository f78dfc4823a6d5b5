#include "binding.h"

#include <cstring>

PyObject *Arguments::take() {
    if (next == end) {
        if (!failed) PyErr_SetString(PyExc_TypeError, "Got too few arguments.");
        failed = true;
    }
    last = failed ? nullptr : *next++;
    return last;
}

int64_t Arguments::integer() {
    PyObject *const it = take();
    const int64_t value = it ? PyLong_AsLongLong(it) : 0;
    failed = failed || (value == -1 && PyErr_Occurred());
    return failed ? 0 : value;
}

double Arguments::number() {
    PyObject *const it = take();
    const double value = it ? PyFloat_AsDouble(it) : 0;
    failed = failed || (value == -1 && PyErr_Occurred());
    return failed ? 0 : value;
}

void Arguments::bytes(void *to, int64_t size) {
    PyObject *const it = take();
    if (!it) return;
    if (PyBytes_Check(it) && PyBytes_GET_SIZE(it) == size) {
        std::memcpy(to, PyBytes_AS_STRING(it), size);
    } else {
        PyErr_Format(PyExc_TypeError, "Got %.100R; expected %lld bytes of packed fields.", it, static_cast<long long>(size));
        failed = true;
    }
}

Rows<void> Arguments::numbers(Number number, bool none) {
    PyObject *const it = take();
    if (!it || (none && it == Py_None)) return {nullptr, 0};
    Tensor tensor;
    if (look(it, tensor) && tensor.compact && tensor.number == number) return {tensor.data, tensor.count};
    PyErr_Format(PyExc_ValueError, "Got %.200R; expected a tensor of torch.%s, contiguous, on the CPU.", it, name_of(number));
    failed = true;
    return {nullptr, 0};
}

void Arguments::expect(bool fits, int64_t count) {
    if (failed || fits) return;
    PyObject *shape = last ? PyObject_GetAttrString(last, "shape") : nullptr;
    if (shape)
        PyErr_Format(PyExc_ValueError, "Got a tensor of shape %S; expected one of %lld numbers.", shape,
                     static_cast<long long>(count));
    Py_XDECREF(shape);
    failed = true;
}

void Arguments::refuse(const char *expected) {
    if (!failed && !PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "Got %.200R; expected %s.", last, expected);
    failed = true;
}

bool Arguments::complete() {
    if (!failed && next != end) {
        PyErr_SetString(PyExc_TypeError, "Got too many arguments.");
        failed = true;
    }
    return !failed;
}
