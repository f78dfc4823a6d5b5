// The functions of rarecall._native that work on lists; see lists.h. Each takes the fields of Lists packed, as bytes:
// to read as many Python integers takes as long as what is done with them.
#include "binding.h"

#include <cstring>

#include "lists.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace {

bool read(PyObject *fields, Lists &lists) {
    static_assert(sizeof(Lists) % sizeof(int64_t) == 0 && sizeof(void *) == sizeof(int64_t), "all fields are 64 bits wide");
    if (!PyBytes_Check(fields) || PyBytes_GET_SIZE(fields) != sizeof(Lists)) {
        PyErr_SetString(PyExc_TypeError, "Expected the fields of Lists, packed.");
        return false;
    }
    std::memcpy(&lists, PyBytes_AS_STRING(fields), sizeof(Lists));
    return true;
}

PyObject *change(PyObject *, PyObject *args) {
    PyObject *fields;
    unsigned long long slots, queries, exclude;
    long long n, near, asked;
    double recall;
    int threads;
    Lists lists;
    if (!PyArg_ParseTuple(args, "OKLLKLKdi", &fields, &slots, &n, &near, &queries, &asked, &exclude, &recall, &threads) ||
        !read(fields, lists))
        return nullptr;
    PyObject *done = compute([&] {
        if (asked) lists_learn(lists, pointer<float>(queries), asked, pointer<int64_t>(exclude), recall, threads);
        lists_change(lists, pointer<int64_t>(slots), n, near, threads);
    });
    Py_XDECREF(done);
    return done ? Py_BuildValue("iL", static_cast<int>(lists.counts[FILLED]), static_cast<long long>(*lists.lists_to_read))
                : nullptr;
}

PyObject *restore(PyObject *, PyObject *args) {
    PyObject *fields;
    int threads;
    Lists lists;
    if (!PyArg_ParseTuple(args, "Oi", &fields, &threads) || !read(fields, lists)) return nullptr;
    return compute([&] { lists_restore(lists, threads); });
}

PyObject *recall(PyObject *, PyObject *args) {
    PyObject *fields;
    unsigned long long queries, exclude, near, slots, similarities, values, weights;
    long long n, k;
    int probes, threads;
    float inverse_temperature;
    Lists lists;
    if (!PyArg_ParseTuple(args, "OKLKifiKKKKKL", &fields, &queries, &n, &exclude, &probes, &inverse_temperature, &threads,
                          &near, &slots, &similarities, &values, &weights, &k) ||
        !read(fields, lists))
        return nullptr;
    const Neighbours neighbours{pointer<int64_t>(slots), pointer<float>(similarities), pointer<int64_t>(values),
                                pointer<float>(weights), k};
    return compute([&] {
        lists_recall(lists, pointer<float>(queries), n, pointer<int64_t>(exclude), probes, inverse_temperature, threads,
                     pointer<int32_t>(near), neighbours);
    });
}

PyObject *valid(PyObject *, PyObject *args) {
    PyObject *fields;
    bool result = false;
    Lists lists;
    if (!PyArg_ParseTuple(args, "O", &fields) || !read(fields, lists)) return nullptr;
    PyObject *none = compute([&] { result = lists_valid(lists); });
    if (!none) return nullptr;
    Py_DECREF(none);
    return PyBool_FromLong(result);
}

// Lists are read at random: with pages of 2 MB the CPU finds them faster. Where there are none, nothing happens.
PyObject *large_pages(PyObject *, PyObject *args) {
    unsigned long long address;
    long long bytes;
    int there;
    if (!PyArg_ParseTuple(args, "KLp", &address, &bytes, &there)) return nullptr;
#ifdef MADV_HUGEPAGE
    constexpr uintptr_t page = 4096;
    const uintptr_t start = (address + page - 1) / page * page, end = (address + bytes) / page * page;
    if (end > start) {
        madvise(reinterpret_cast<void *>(start), end - start, MADV_HUGEPAGE);
        constexpr int collapse = 25;  // MADV_COLLAPSE: what is there already, now; older kernels do not know it
        if (there) madvise(reinterpret_cast<void *>(start), end - start, collapse);
    }
#endif
    Py_RETURN_NONE;
}

}  // namespace

PyMethodDef lists_methods[] = {
    {"lists_change", change, METH_VARARGS, "Learns from the last queries, and takes up the keys of these slots."},
    {"lists_restore", restore, METH_VARARGS, "Makes the codes and centres anew."},
    {"lists_recall", recall, METH_VARARGS, "Finds, sorts and weighs the k nearest slots in the nearest lists."},
    {"lists_valid", valid, METH_VARARGS, "Whether the lists fit together."},
    {"large_pages", large_pages, METH_VARARGS, "Asks for large pages for a large tensor, new or there already."},
    {nullptr, nullptr, 0, nullptr},
};
