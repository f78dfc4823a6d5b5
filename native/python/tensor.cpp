#include "tensor.h"

#include <algorithm>
#include <string>

// The structs of DLPack 1.x, as far as they are used here: https://dmlc.github.io/dlpack/latest/c_api.html
namespace dlpack {
namespace {

constexpr uint32_t MAJOR = 1;  // versions from which on fields move
constexpr int32_t CPU = 1;     // a device

struct Version {
    uint32_t major, minor;
};

struct Device {
    int32_t type, id;
};

struct Tensor {
    void *data;
    Device device;
    int32_t dimensions;
    Type type;
    int64_t *shape, *strides;  // strides in numbers, or null where the numbers stand in order without gaps
    uint64_t byte_offset;
};

// A tensor that is handed over: whoever has it calls `free` when it is done.
struct Managed {
    Version version;
    void *context;
    void (*free)(Managed *self);
    uint64_t flags;
    Tensor tensor;
};

// What a library does for others, found in its type's __dlpack_c_exchange_api__. All return 0, or another number with an error
// of Python set.
struct Exchange {
    Version version;
    Exchange *before;                // for older versions
    void (*allocate)(), (*share)();  // not used here
    int (*take)(Managed *given, void **object);
    int (*look)(void *object, Tensor *seen);  // what is seen is the object's; may be null
};

}  // namespace
}  // namespace dlpack

namespace {

// Torch's part of DLPack; torch has it from 2.10 on.
const dlpack::Exchange &exchange() {
    static const dlpack::Exchange *const found = [] {
        nb::object capsule = nb::getattr(nb::module_::import_("torch").attr("Tensor"), "__dlpack_c_exchange_api__", nb::none());
        const auto *all = static_cast<const dlpack::Exchange *>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
        PyErr_Clear();
        while (all && all->version.major != dlpack::MAJOR) all = all->before;
        if (!all || !all->look || !all->take) throw nb::import_error("this torch does not exchange tensors by DLPack 1");
        return all;
    }();
    return *found;
}

std::string name_of(Type type) {
    constexpr const char *codes[] = {"int", "uint", "float"};
    if (type.code == Type::BOOL) return "bool";
    return (type.code < 3 ? codes[type.code] : "type ") + std::to_string(type.bits);
}

// A tensor that is handed to torch, with its shape beside it.
struct Made {
    dlpack::Managed managed;
    int64_t shape[3], strides[3];
    std::shared_ptr<void> owner;
};

}  // namespace

void require_exchange() { exchange(); }

bool read_tensor(PyObject *object, Tensor &tensor) {
    dlpack::Tensor seen;
    if (exchange().look(object, &seen) != 0) {
        PyErr_Clear();
        return false;
    }
    tensor.data = static_cast<char *>(seen.data) + seen.byte_offset;
    tensor.type = seen.type;
    tensor.compact = seen.device.type == dlpack::CPU && seen.dimensions <= Tensor::MOST;
    tensor.dimensions = seen.dimensions;
    tensor.count = 1;
    bool in_order = true;
    for (int i = seen.dimensions - 1; i >= 0 && tensor.compact; i--) {
        in_order = in_order && (!seen.strides || seen.shape[i] == 1 || seen.strides[i] == tensor.count);
        tensor.count *= tensor.shape[i] = seen.shape[i];
    }
    tensor.compact = tensor.compact && (in_order || tensor.count == 0);
    return tensor.data || tensor.count == 0;  // a fake tensor has no numbers
}

void Tensor::require(Type expected_type, int64_t expected) const {
    if (compact && type == expected_type && count == expected) return;
    const std::string message = "Got a tensor of " + std::to_string(count) + " numbers of " + name_of(type) +
                                (compact ? "" : ", not contiguous or not on the CPU") + "; expected " +
                                std::to_string(expected) + " of " + name_of(expected_type) + ".";
    throw nb::value_error(message.c_str());
}

int64_t times_written(PyObject *tensor) {
    static PyObject *const name = PyUnicode_InternFromString("_version");
    PyObject *found = PyObject_GetAttr(tensor, name);
    const int64_t times = found ? PyLong_AsLongLong(found) : -1;
    Py_XDECREF(found);
    PyErr_Clear();
    return times;
}

nb::object make_tensor(std::shared_ptr<void> owner, const void *data, Type type, std::initializer_list<int64_t> shape) {
    auto made = std::make_unique<Made>();
    made->owner = std::move(owner);
    const auto dimensions = static_cast<int>(shape.size());
    std::copy(shape.begin(), shape.end(), made->shape);
    for (int i = dimensions - 1; i >= 0; i--)
        made->strides[i] = i + 1 < dimensions ? made->strides[i + 1] * made->shape[i + 1] : 1;
    made->managed = {{dlpack::MAJOR, 0},
                     made.get(),
                     [](dlpack::Managed *self) { delete static_cast<Made *>(self->context); },
                     0,
                     {const_cast<void *>(data), {dlpack::CPU, 0}, dimensions, type, made->shape, made->strides, 0}};
    void *object = nullptr;
    if (exchange().take(&made->managed, &object) != 0) throw nb::python_error();
    made.release();
    return nb::steal(static_cast<PyObject *>(object));
}
