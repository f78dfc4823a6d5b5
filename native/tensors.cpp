#include "tensors.h"

#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "dlpack.h"

namespace {

PyObject *name(const char *text) { return PyUnicode_InternFromString(text); }

// Torch's part of DLPack, or null.
const dlpack::Exchange *exchange() {
    static const dlpack::Exchange *const found = [] {
        PyObject *type = of_torch("Tensor");
        PyObject *capsule = type ? PyObject_GetAttrString(type, "__dlpack_c_exchange_api__") : nullptr;
        const auto *all = capsule ? static_cast<const dlpack::Exchange *>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"))
                                  : nullptr;
        while (all && all->version.major != dlpack::MAJOR) all = all->before;
        Py_XDECREF(type);
        Py_XDECREF(capsule);
        PyErr_Clear();
        return all && all->look && all->take ? all : nullptr;
    }();
    return found;
}

Number number_of(dlpack::Type type) {
    if (type.lanes != 1) return Number::other;
    if (type.code == dlpack::FLOAT && type.bits == 32) return Number::float32;
    if (type.code == dlpack::INT && type.bits == 64) return Number::int64;
    if (type.code == dlpack::INT && type.bits == 32) return Number::int32;
    if (type.code == dlpack::UINT && type.bits == 8) return Number::uint8;
    return type.code == dlpack::BOOL ? Number::boolean : Number::other;
}

bool look_by_dlpack(PyObject *object, Tensor &tensor) {
    dlpack::Tensor seen;
    if (exchange()->look(object, &seen) != 0) {
        PyErr_Clear();
        return false;
    }
    tensor.data = static_cast<char *>(seen.data) + seen.byte_offset;
    tensor.number = number_of(seen.type);
    tensor.dimensions = seen.dimensions;
    tensor.compact = seen.device.type == dlpack::CPU && seen.dimensions <= Tensor::MOST;
    tensor.count = 1;
    bool in_order = true;
    for (int i = seen.dimensions - 1; i >= 0 && tensor.compact; i--) {
        tensor.shape[i] = seen.shape[i];
        in_order = in_order && (!seen.strides || seen.shape[i] == 1 || seen.strides[i] == tensor.count);
        tensor.count *= seen.shape[i];
    }
    tensor.compact = tensor.compact && (in_order || tensor.count == 0);
    return true;
}

// An attribute, or what a method returns that takes nothing.
PyObject *ask(PyObject *object, PyObject *attribute) { return PyObject_GetAttr(object, attribute); }
PyObject *call(PyObject *object, PyObject *method) { return PyObject_CallMethodNoArgs(object, method); }

bool is(PyObject *answer, PyObject *expected) {
    Py_XDECREF(answer);
    return answer == expected;
}

bool look_by_attributes(PyObject *object, Tensor &tensor) {
    static PyObject *const type = of_torch("Tensor"), *const dtype = name("dtype"), *const is_cpu = name("is_cpu"),
                           *const is_contiguous = name("is_contiguous"), *const shape = name("shape"),
                           *const data_ptr = name("data_ptr");
    if (!type || PyObject_IsInstance(object, type) != 1) {
        PyErr_Clear();
        return false;
    }
    PyObject *const dtypes[] = {dtype_of<float>(), dtype_of<int64_t>(), dtype_of<int32_t>(), dtype_of<bool>(), dtype_of<uint8_t>()};
    PyObject *its_dtype = ask(object, dtype), *its_shape = ask(object, shape), *address = nullptr;
    for (int i = 0; i < 5; i++)
        if (its_dtype == dtypes[i]) tensor.number = static_cast<Number>(i);
    tensor.dimensions = its_shape ? static_cast<int>(PyTuple_GET_SIZE(its_shape)) : 0;
    tensor.count = 1;
    for (int i = 0; i < tensor.dimensions && i < Tensor::MOST; i++)
        tensor.count *= tensor.shape[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(its_shape, i));
    tensor.compact = tensor.dimensions <= Tensor::MOST && is(ask(object, is_cpu), Py_True) && is(call(object, is_contiguous), Py_True);
    if (tensor.compact) address = call(object, data_ptr);
    if (address) tensor.data = PyLong_AsVoidPtr(address);
    for (PyObject *each : {its_dtype, its_shape, address}) Py_XDECREF(each);
    const bool failed = PyErr_Occurred();
    PyErr_Clear();
    return !failed;
}

// A tensor with its numbers beside it, in one piece of memory.
struct Made {
    dlpack::Managed managed;
    int64_t shape[1], strides[1];
    int64_t numbers[1];
};

PyObject *tensor_of(const void *numbers, int64_t bytes, dlpack::Type type, int dimensions, int64_t n) {
    auto *made = static_cast<Made *>(std::malloc(sizeof(Made) + bytes));
    if (!made) return PyErr_NoMemory();
    made->shape[0] = n;
    made->strides[0] = 1;
    std::memcpy(made->numbers, numbers, bytes);
    made->managed = {{dlpack::MAJOR, 0}, nullptr, [](dlpack::Managed *self) { std::free(self); }, 0,
                     {made->numbers, {dlpack::CPU, 0}, dimensions, type, made->shape, made->strides, 0}};
    void *object = nullptr;
    if (exchange()->take(&made->managed, &object) != 0) return nullptr;
    return static_cast<PyObject *>(object);
}

PyObject *empty(PyObject *shape, PyObject *dtype) {
    static PyObject *const function = of_torch("empty");
    PyObject *given = shape ? PyTuple_Pack(1, shape) : nullptr;
    PyObject *kind = Py_BuildValue("{sOss}", "dtype", dtype, "device", "cpu");
    PyObject *made = function && given && kind ? PyObject_Call(function, given, kind) : nullptr;
    for (PyObject *each : {shape, given, kind}) Py_XDECREF(each);
    return made;
}

PyObject *filled(PyObject *made, const void *numbers, int64_t bytes) {
    Tensor tensor;
    if (made && look(made, tensor) && bytes > 0) std::memcpy(tensor.data, numbers, bytes);
    return made;
}

}  // namespace

const char *name_of(Number number) {
    switch (number) {
        case Number::float32: return "float32";
        case Number::int64: return "int64";
        case Number::int32: return "int32";
        case Number::boolean: return "bool";
        default: return "uint8";
    }
}

bool look(PyObject *object, Tensor &tensor) {
    return (exchange() ? look_by_dlpack(object, tensor) : look_by_attributes(object, tensor)) && (tensor.data || tensor.count == 0);
}

int64_t times_written(PyObject *tensor) {
    static PyObject *const version = name("_version");
    PyObject *found = PyObject_GetAttr(tensor, version);
    const int64_t times = found ? PyLong_AsLongLong(found) : 0;
    Py_XDECREF(found);
    PyErr_Clear();
    return times;
}

PyObject *tensor_of(const int64_t *numbers, int64_t n) {
    if (exchange()) return tensor_of(numbers, n * 8, {dlpack::INT, 64, 1}, 1, n);
    return filled(empty(Py_BuildValue("(L)", static_cast<long long>(n)), dtype_of<int64_t>()), numbers, n * 8);
}

PyObject *tensor_of(float number) {
    if (exchange()) return tensor_of(&number, sizeof number, {dlpack::FLOAT, 32, 1}, 0, 1);
    return filled(empty(PyTuple_New(0), dtype_of<float>()), &number, sizeof number);
}

PyObject *of_torch(const char *name) {
    PyObject *torch = PyImport_ImportModule("torch");
    PyObject *found = torch ? PyObject_GetAttrString(torch, name) : nullptr;
    Py_XDECREF(torch);
    return found;
}
