#include "binding.h"

#include <cstring>
#include <initializer_list>

namespace {

// What is asked of a tensor.
struct Names {
    PyObject *dtype = PyUnicode_InternFromString("dtype"), *is_cpu = PyUnicode_InternFromString("is_cpu"),
             *is_contiguous = PyUnicode_InternFromString("is_contiguous"), *numel = PyUnicode_InternFromString("numel"),
             *shape = PyUnicode_InternFromString("shape"), *data_ptr = PyUnicode_InternFromString("data_ptr"),
             *version = PyUnicode_InternFromString("_version");
};

const Names &names() {
    static const Names all;
    return all;
}

bool has(PyObject *tensor, PyObject *attribute, PyObject *value) {
    PyObject *found = PyObject_GetAttr(tensor, attribute);
    Py_XDECREF(found);
    return found == value;
}

// What a method returns, an integer; 0 where it fails.
int64_t ask(PyObject *tensor, PyObject *method) {
    PyObject *answer = PyObject_CallMethodNoArgs(tensor, method);
    const auto number = answer ? static_cast<int64_t>(PyLong_AsUnsignedLongLong(answer)) : 0;
    Py_XDECREF(answer);
    return number;
}

bool is_contiguous(PyObject *tensor) {
    PyObject *answer = PyObject_CallMethodNoArgs(tensor, names().is_contiguous);
    Py_XDECREF(answer);
    return answer == Py_True;
}

}  // namespace

void *data_ptr(PyObject *tensor) { return reinterpret_cast<void *>(ask(tensor, names().data_ptr)); }

int64_t times_written(PyObject *tensor) {
    PyObject *version = PyObject_GetAttr(tensor, names().version);
    const int64_t times = version ? PyLong_AsLongLong(version) : 0;
    Py_XDECREF(version);
    PyErr_Clear();
    return times;
}

bool is_one_for_each_row(PyObject *tensor, PyObject *shape) {
    PyObject *own = PyObject_GetAttr(tensor, names().shape);
    bool is = own && PyTuple_Check(own) && PyTuple_Check(shape) && PyTuple_GET_SIZE(own) + 1 == PyTuple_GET_SIZE(shape);
    for (Py_ssize_t i = 0; is && i < PyTuple_GET_SIZE(own); i++)
        is = PyLong_AsLongLong(PyTuple_GET_ITEM(own, i)) == PyLong_AsLongLong(PyTuple_GET_ITEM(shape, i));
    Py_XDECREF(own);
    return is;
}

PyObject *of_torch(const char *name) {
    PyObject *torch = PyImport_ImportModule("torch");
    PyObject *found = torch ? PyObject_GetAttrString(torch, name) : nullptr;
    Py_XDECREF(torch);
    return found;
}

// Like another, which is said sooner than of what type it is and where.
static PyObject *like(PyObject *tensor) {
    static PyObject *const empty_like = of_torch("empty_like");
    return empty_like && tensor ? PyObject_CallOneArg(empty_like, tensor) : nullptr;
}

PyObject *scalar(float number) {
    static PyObject *const another = [] {
        PyObject *empty = of_torch("empty"), *shape = Py_BuildValue("(())");
        PyObject *kind = Py_BuildValue("{sOss}", "dtype", dtype_of<float>(), "device", "cpu");
        PyObject *made = empty && shape && kind ? PyObject_Call(empty, shape, kind) : nullptr;
        for (PyObject *each : {empty, shape, kind}) Py_XDECREF(each);
        return made;
    }();
    PyObject *tensor = like(another);
    if (tensor) *static_cast<float *>(data_ptr(tensor)) = number;
    return tensor;
}

PyObject *numbers_like(PyObject *tensor) {
    PyObject *made = like(tensor), *shape = made ? PyObject_GetAttr(made, names().shape) : nullptr;
    if (shape && PyTuple_GET_SIZE(shape) != 1) {
        PyObject *flat = PyObject_CallMethod(made, "view", "i", -1);
        Py_SETREF(made, flat);
    }
    if (!shape) Py_CLEAR(made);
    Py_XDECREF(shape);
    return made;
}

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

Rows<void> Arguments::numbers(PyObject *(*dtype)(), bool none) {
    PyObject *const it = take();
    if (!it || (none && it == Py_None)) return {nullptr, 0};
    if (has(it, names().dtype, dtype()) && has(it, names().is_cpu, Py_True) && is_contiguous(it))
        return {data_ptr(it), ask(it, names().numel)};
    PyErr_Clear();  // of what is no tensor
    PyErr_Format(PyExc_ValueError, "Got %.200R; expected a tensor of %S, contiguous, on the CPU.", it, dtype());
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
