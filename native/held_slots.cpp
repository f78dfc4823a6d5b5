#include "held_slots.h"

#include <algorithm>

namespace {

PyTypeObject *type = nullptr;
HeldSlots nothing{};

HeldSlots &of(PyObject *self) { return *reinterpret_cast<HeldSlots *>(self); }

// Adds up how often torch wrote to the tensors.
void read_version(HeldSlots &held) {
    held.version = 0;
    for (Py_ssize_t i = 0; i < 3; i++) held.version += times_written(PyTuple_GET_ITEM(held.tensors, i));
}

PyObject *create(PyTypeObject *of_type, PyObject *given, PyObject *) {
    Arguments arguments(&PyTuple_GET_ITEM(given, 0), PyTuple_GET_SIZE(given));
    const int64_t key_size = arguments.integer();
    const auto keys = arguments.rows<float>(key_size);
    Slots slots{keys.at, arguments.tensor<int64_t>(keys.n), arguments.tensor<int64_t>(keys.n), key_size};
    if (!arguments.complete()) return nullptr;
    PyObject *self = of_type->tp_alloc(of_type, 0);
    if (!self) return nullptr;
    of(self).slots = slots;
    of(self).capacity = keys.n;
    of(self).tensors = PyTuple_GetSlice(given, 1, 4);
    if (!of(self).tensors) {
        Py_DECREF(self);
        return nullptr;
    }
    read_version(of(self));
    return self;
}

void free_slots(PyObject *self) {
    Py_XDECREF(of(self).tensors);
    Py_XDECREF(of(self).chain_tensors);
    Py_XDECREF(of(self).drawn);
    PyTypeObject *its_type = Py_TYPE(self);
    its_type->tp_free(self);
    Py_DECREF(its_type);
}

// Whether a module's buffers are still these tensors, where they were.
bool are_in(const HeldSlots &held, PyObject *buffers) {
    static PyObject *const names[] = {PyUnicode_InternFromString("keys"), PyUnicode_InternFromString("values"),
                                      PyUnicode_InternFromString("sources")};
    const void *const at[] = {held.slots.keys, held.slots.values, held.slots.sources};
    for (int i = 0; i < 3; i++) {
        PyObject *tensor = PyDict_GetItemWithError(buffers, names[i]);
        Tensor seen;
        if (!tensor || tensor != PyTuple_GET_ITEM(held.tensors, i) || !look(tensor, seen) || seen.data != at[i]) return false;
    }
    return true;
}

PyObject *current(PyObject *self, PyObject *buffers) {
    const bool are = are_in(of(self), buffers);
    if (PyErr_Occurred()) return nullptr;
    if (are) read_version(of(self));
    return PyBool_FromLong(are);
}

PyObject *asked_by(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    PyObject *buffers = arguments.object(), *query = arguments.object();
    if (!arguments.complete()) return nullptr;
    Tensor seen;
    const bool fit = look(query, seen) && seen.compact && seen.number == Number::float32 && seen.dimensions == 2 &&
                     seen.shape[1] == of(self).slots.key_size && are_in(of(self), buffers);
    if (PyErr_Occurred()) return nullptr;
    if (fit) read_version(of(self));
    return PyBool_FromLong(fit);
}

PyObject *take(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    PyObject *buffers = arguments.object(), *ids = arguments.object(), *shape = arguments.object();
    const int64_t at_least = arguments.integer();
    if (!arguments.complete()) return nullptr;
    const int64_t *numbers;
    const bool fit = fits(of(self), buffers, ids, shape, at_least, numbers);
    return PyErr_Occurred() ? nullptr : PyBool_FromLong(fit);
}

PyObject *chain(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    HeldSlots &held = of(self);
    const int64_t bits = arguments.integer();
    const Chains chains{arguments.tensor<int32_t>(int64_t{1} << bits), arguments.tensor<int32_t>(held.capacity),
                        arguments.tensor<int32_t>(held.capacity), bits};
    const auto slots = arguments.rows<int64_t>(1);
    if (!arguments.complete()) return nullptr;
    PyObject *tensors = PyTuple_Pack(3, given[1], given[2], given[3]);
    if (!tensors) return nullptr;
    Py_XSETREF(held.chain_tensors, tensors);
    held.chains = chains;
    held.chained = held.version;
    return compute([&] { link(held.chains, held.slots.values, slots.at, slots.n); });
}

PyObject *unchain(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const auto slots = arguments.rows<int64_t>(1);
    const Chains *chains = of(self).chains_or_null();
    if (!chains) arguments.refuse("slots of a memory with chains");
    if (!arguments.complete()) return nullptr;
    return compute([&] { unlink(*chains, of(self).slots.values, slots.at, slots.n); });
}

PyObject *follow(PyObject *self, PyObject *) {
    of(self).chained = of(self).version;
    Py_RETURN_NONE;
}

PyObject *get_chained(PyObject *self, void *) { return PyBool_FromLong(of(self).chains_or_null() != nullptr); }

PyObject *get_version(PyObject *self, void *) { return PyLong_FromLongLong(of(self).version); }

PyObject *get_tensors(PyObject *self, void *) { return Py_NewRef(of(self).tensors); }

PyMethodDef methods[] = {
    {"current", current, METH_O, "Whether these are the buffers of that module, whose version is then known anew."},
    function("asked_by", asked_by, "The same, and whether a query is (n, key_size) float32, contiguous, on the CPU."),
    function("take", take,
             "The same, and whether ids are int64, one for each query of a shape, and none less than a number."),
    function("chain", chain, "Makes chains of slots by their value: (bits, heads, next, previous, slots by time)."),
    function("unchain", unchain, "Takes slots out of the chains, before they are emptied."),
    {"follow", follow, METH_NOARGS, "The chains are of the slots as they were when they were asked last."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef attributes[] = {
    {"version", get_version, nullptr, "How often torch wrote to them, when they were asked last.", nullptr},
    {"chained", get_chained, nullptr, "Whether there are chains of the slots as they were then.", nullptr},
    {"tensors", get_tensors, nullptr, "Keys, values and sources.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace

HeldSlots &held_slots(Arguments &arguments) {
    PyObject *object = arguments.object();
    if (object && Py_TYPE(object) == type) return of(object);
    if (object) arguments.refuse("Slots");
    return nothing;
}

bool fits(HeldSlots &held, PyObject *buffers, PyObject *ids, PyObject *shape, int64_t at_least, const int64_t *&numbers) {
    Tensor seen;
    if (!look(ids, seen) || !seen.compact || seen.number != Number::int64) return false;
    if (!PyTuple_Check(shape) || PyTuple_GET_SIZE(shape) != seen.dimensions + 1) return false;
    for (int i = 0; i < seen.dimensions; i++)
        if (PyLong_AsLongLong(PyTuple_GET_ITEM(shape, i)) != seen.shape[i]) return false;
    numbers = static_cast<const int64_t *>(seen.data);
    const bool fit = std::all_of(numbers, numbers + seen.count, [&](int64_t id) { return id >= at_least; }) && are_in(held, buffers);
    if (fit) read_version(held);
    return fit;
}

bool draw(HeldSlots &held, PyObject *generator, uint64_t &number) {
    static PyObject *const method = PyUnicode_InternFromString("random_"), *const names = Py_BuildValue("(s)", "generator");
    if (!held.drawn) {
        const int64_t none = 0;
        held.drawn = tensor_of(&none, 1);
        if (!held.drawn) return false;
    }
    PyObject *given[] = {held.drawn, generator};
    PyObject *done = PyObject_VectorcallMethod(method, given, 1, names);
    Py_XDECREF(done);
    Tensor tensor;
    if (!done || !look(held.drawn, tensor)) return false;
    number = *static_cast<const uint64_t *>(tensor.data);
    return true;
}

bool wrote(HeldSlots &held) {
    const bool chained = held.chains_or_null();
    static PyObject *const increment = [] {
        PyObject *graph = PyImport_ImportModule("torch.autograd.graph");
        PyObject *function = graph ? PyObject_GetAttrString(graph, "increment_version") : nullptr;
        Py_XDECREF(graph);
        return function;
    }();
    PyObject *done = increment ? PyObject_CallOneArg(increment, held.tensors) : nullptr;
    Py_XDECREF(done);
    read_version(held);
    if (chained) held.chained = held.version;
    return done;
}

bool add_held_slots(PyObject *module) {
    static PyType_Slot slots[] = {
        {Py_tp_new, reinterpret_cast<void *>(create)},
        {Py_tp_dealloc, reinterpret_cast<void *>(free_slots)},
        {Py_tp_methods, methods},
        {Py_tp_getset, attributes},
        {Py_tp_doc, const_cast<char *>("Slots(key_size, keys, values, sources): see held_slots.h.")},
        {0, nullptr},
    };
    static PyType_Spec spec = {"rarecall._native.Slots", sizeof(HeldSlots), 0, Py_TPFLAGS_DEFAULT, slots};
    type = reinterpret_cast<PyTypeObject *>(PyType_FromSpec(&spec));
    return type && PyModule_AddType(module, type) == 0;
}
