// The functions of rarecall._native that work on lists; see lists.h.
#include "binding.h"

#include "found.h"
#include "lists.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace {

PyObject *change(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const auto lists = arguments.packed<Lists>();
    const auto slots = arguments.rows<int64_t>(1);
    const int64_t near = arguments.integer();
    const Found *last = found_or_null(arguments);
    const double recall = arguments.number();
    const auto threads = static_cast<int>(arguments.integer());
    if (!arguments.complete()) return nullptr;
    PyObject *done = compute([&] {
        if (last && last->n) lists_learn(lists, last->units, last->n, last->exclude, recall, threads);
        lists_change(lists, slots.at, slots.n, near, threads);
    });
    Py_XDECREF(done);
    return done ? Py_BuildValue("iL", static_cast<int>(lists.counts[FILLED]), static_cast<long long>(*lists.lists_to_read))
                : nullptr;
}

PyObject *restore(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const auto lists = arguments.packed<Lists>();
    const auto threads = static_cast<int>(arguments.integer());
    if (!arguments.complete()) return nullptr;
    return compute([&] { lists_restore(lists, threads); });
}

PyObject *recall(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const auto lists = arguments.packed<Lists>();
    const int64_t k = arguments.integer();
    const auto queries = arguments.rows<float>(lists.key_size);
    const int64_t n = queries.n;
    const auto *exclude = arguments.tensor_or_null<int64_t>(n);
    const auto probes = static_cast<int>(arguments.integer());
    const auto inverse_temperature = static_cast<float>(arguments.number());
    const auto threads = static_cast<int>(arguments.integer());
    const int64_t near = arguments.integer();
    if (!arguments.complete()) return nullptr;
    Found *found = ask(queries.at, n, lists.key_size, k, exclude);
    if (!found) return nullptr;
    PyObject *done = compute([&] {
        lists_recall(lists, found->units, n, found->exclude, probes, inverse_temperature, threads,
                     near < 0 ? nullptr : lists.near + near, found->neighbours());
    });
    Py_XDECREF(done);
    if (!done) Py_CLEAR(found);
    return reinterpret_cast<PyObject *>(found);
}

PyObject *valid(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const auto lists = arguments.packed<Lists>();
    if (!arguments.complete()) return nullptr;
    bool result = false;
    PyObject *none = compute([&] { result = lists_valid(lists); });
    if (!none) return nullptr;
    Py_DECREF(none);
    return PyBool_FromLong(result);
}

// Lists are read at random: with pages of 2 MB the CPU finds them faster. Where there are none, nothing happens.
PyObject *large_pages(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const int64_t address = arguments.integer(), bytes = arguments.integer();
    const bool there = arguments.integer();
    if (!arguments.complete()) return nullptr;
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
    function("lists_change", change, "Learns from the last queries, and takes up the keys of these slots."),
    function("lists_restore", restore, "Makes the codes and centres anew."),
    function("lists_recall", recall, "Finds, sorts and weighs the k nearest slots in the nearest lists."),
    function("lists_valid", valid, "Whether the lists fit together."),
    function("large_pages", large_pages, "Asks for large pages for a large tensor, new or there already."),
    {nullptr, nullptr, 0, nullptr},
};
