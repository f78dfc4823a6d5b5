// The functions of the Python module that Memory itself uses; see module.cpp.
#include <algorithm>
#include <memory>
#include <new>

#include "binding.h"
#include "clock.h"
#include "found.h"
#include "held_slots.h"
#include "margin.h"
#include "newest.h"
#include "recall.h"
#include "update.h"

namespace {

PyObject *ask_(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const int64_t key_size = arguments.integer(), k = arguments.integer();
    const auto queries = arguments.rows<float>(key_size);
    const auto *exclude = arguments.tensor_or_null<int64_t>(queries.n);
    if (!arguments.complete()) return nullptr;
    return reinterpret_cast<PyObject *>(ask(queries.at, queries.n, key_size, k, exclude));
}

PyObject *recall_(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const HeldSlots &held = held_slots(arguments);
    const Found *found = found_or_null(arguments);
    if (!found) arguments.refuse("Found");
    const int64_t n = found ? found->n : 0, m = arguments.integer();
    const auto *slots = arguments.tensor<int64_t>(n * m);
    // From a search of anybody's own.
    if (slots && (m > found->k || std::any_of(slots, slots + n * m, [&](int64_t slot) { return slot >= held.capacity; })))
        arguments.refuse("at most k slots for each query, all of them in the memory");
    const auto inverse_temperature = static_cast<float>(arguments.number());
    const auto threads = static_cast<int>(arguments.integer());
    if (!arguments.complete()) return nullptr;
    return compute([&] {
        recall(held.slots, found->units, n, slots, m, found->exclude, inverse_temperature, threads, found->neighbours());
    });
}

PyObject *recall_gradient_(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const int64_t key_size = arguments.integer();
    const Slots memory{arguments.rows<float>(key_size).at, nullptr, nullptr, key_size};
    const auto changed = arguments.rows<int64_t>(1);
    const Before before{changed.at, arguments.tensor<float>(changed.n * memory.key_size), changed.n};
    const auto units = arguments.rows<float>(memory.key_size);
    const int64_t n = units.n, k = arguments.integer();
    const Recalled recalled{arguments.tensor<int64_t>(n * k), arguments.tensor<float>(n * k), units.at,
                            arguments.tensor<float>(n), n, k};
    const Gradients of{arguments.tensor_or_null<float>(n * memory.key_size), arguments.tensor_or_null<float>(n * k),
                       arguments.tensor_or_null<float>(n * k)};
    const auto inverse_temperature = static_cast<float>(arguments.number());
    const auto threads = static_cast<int>(arguments.integer());
    auto *of_queries = arguments.tensor<float>(n * memory.key_size);
    if (!arguments.complete()) return nullptr;
    return compute([&] { recall_gradient(memory, before, recalled, of, inverse_temperature, threads, of_queries); });
}

// The mean loss as a tensor, or null.
PyObject *mean(const Loss &loss) {
    return tensor_of(static_cast<float>(loss.sum / static_cast<double>(std::max<int64_t>(loss.count, 1))));
}

PyObject *margin_loss_(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const HeldSlots &held = held_slots(arguments);
    const Asked recalled = asked(arguments, held.slots.key_size, arguments.integer());
    const int64_t n = recalled.n;
    const auto *targets = arguments.tensor<int64_t>(n);
    const auto *mask = arguments.tensor_or_null<bool>(n);
    const auto margin = static_cast<float>(arguments.number());
    const Kept kept{arguments.tensor_or_null<int64_t>(2 * n), arguments.tensor_or_null<float>(n),
                    arguments.tensor_or_null<float>(n * held.slots.key_size)};
    if (!arguments.complete()) return nullptr;
    Loss loss{};
    PyObject *done = compute([&] { loss = margin_loss(held.slots, recalled, targets, mask, held.chains_or_null(), margin, kept); });
    Py_XDECREF(done);
    PyObject *result = done ? mean(loss) : nullptr;
    if (!result) return nullptr;
    return Py_BuildValue("NLL", result, static_cast<long long>(loss.count), static_cast<long long>(loss.newest));
}

// For a single query, the calls of Python around a loss or an update cost several times what they do: so one call checks all
// that there is to check, and does it. Where anything is out of the ordinary it does nothing, and says so by None.

PyObject *quick_loss(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    HeldSlots &held = held_slots(arguments);
    const Asked recalled = asked(arguments, held.slots.key_size, arguments.integer());
    PyObject *buffers = arguments.object(), *shape = arguments.object(), *target = arguments.object();
    const auto margin = static_cast<float>(arguments.number());
    if (!arguments.complete()) return nullptr;
    const int64_t *targets;
    if (!fits(held, buffers, target, shape, 0, targets)) return PyErr_Occurred() ? nullptr : Py_NewRef(Py_None);
    Loss loss{};
    PyObject *done =
        compute([&] { loss = margin_loss(held.slots, recalled, targets, nullptr, held.chains_or_null(), margin, {}); });
    if (!done || loss.newest < 0) return done;
    Py_DECREF(done);
    return mean(loss);
}

PyObject *margin_gradient_(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const int64_t k = arguments.integer(), key_size = arguments.integer();
    const auto columns = arguments.rows<int64_t>(2);
    const int64_t n = columns.n;
    const Kept kept{columns.at, arguments.tensor<float>(n), arguments.tensor<float>(n * key_size)};
    const auto by = static_cast<float>(arguments.number());
    auto *similarities = arguments.tensor<float>(n * k), *queries = arguments.tensor_or_null<float>(n * key_size);
    if (!arguments.complete()) return nullptr;
    return compute([&] { margin_gradient(kept, n, k, static_cast<int>(key_size), by, similarities, queries); });
}

PyObject *newest_(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const HeldSlots &held = held_slots(arguments);
    const auto targets = arguments.rows<int64_t>(1);
    const auto *exclude = arguments.tensor_or_null<int64_t>(targets.n);
    auto *slots = arguments.tensor<int64_t>(targets.n);
    const Chains *chains = held.chains_or_null();
    if (!chains) arguments.refuse("Slots with chains");
    if (!arguments.complete()) return nullptr;
    return compute([&] {
        for (int64_t i = 0; i < targets.n; i++)
            slots[i] = newest(*chains, held.slots.values, held.slots.sources, targets.at[i], exclude ? exclude[i] : -1);
    });
}

// Does the update, and says so to torch; whether that worked.
bool update_by(HeldSlots &held, const Clock &clock, const Batch &batch, double age_noise, PyObject *generator, int64_t *touched,
               float *before, Updated &updated) {
    uint64_t seed = 0;
    if (draws(clock, batch) && !draw(held, generator, seed)) return false;
    PyObject *done = compute(
        [&] { updated = update(held.slots, clock, held.chains_or_null(), batch, age_noise, seed, touched, before); });
    Py_XDECREF(done);
    return done && (!updated.done || wrote(held));
}

PyObject *update_(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    HeldSlots &held = held_slots(arguments);
    const auto clock = arguments.packed<Clock>();
    const Asked recalled = asked(arguments, held.slots.key_size, arguments.integer());
    const int64_t n = recalled.n;
    const Batch batch{recalled, arguments.tensor<int64_t>(n), arguments.tensor_or_null<int64_t>(n)};
    const double age_noise = arguments.number();
    PyObject *generator = arguments.object();
    auto *touched = arguments.tensor<int64_t>(n);
    auto *before = arguments.tensor_or_null<float>(n * held.slots.key_size);
    if (!arguments.complete()) return nullptr;
    Updated updated{};
    if (!update_by(held, clock, batch, age_noise, generator, touched, before, updated)) return nullptr;
    return Py_BuildValue("LLLO", static_cast<long long>(updated.zeros), static_cast<long long>(updated.missed),
                         static_cast<long long>(updated.touched), updated.logged ? Py_True : Py_False);
}

PyObject *quick_update(PyObject *, PyObject *const *given, Py_ssize_t count) {
    Arguments arguments(given, count);
    HeldSlots &held = held_slots(arguments);
    const auto clock = arguments.packed<Clock>();
    const Asked recalled = asked(arguments, held.slots.key_size, arguments.integer());
    PyObject *buffers = arguments.object(), *shape = arguments.object(), *target = arguments.object();
    const double age_noise = arguments.number();
    PyObject *generator = arguments.object();
    if (!arguments.complete()) return nullptr;
    const int64_t *targets;
    if (!fits(held, buffers, target, shape, 0, targets)) return PyErr_Occurred() ? nullptr : Py_NewRef(Py_None);
    if (clock.state->tail + recalled.n > clock.lines) Py_RETURN_NONE;  // the log is to be written anew
    const std::unique_ptr<int64_t[]> touched(new (std::nothrow) int64_t[recalled.n]);
    if (!touched) return PyErr_NoMemory();
    Updated updated{};
    if (!update_by(held, clock, {recalled, targets, nullptr}, age_noise, generator, touched.get(), nullptr, updated)) return nullptr;
    if (!updated.done) Py_RETURN_NONE;
    return tensor_of(touched.get(), updated.touched);
}

}  // namespace

PyMethodDef memory_methods[] = {
    function("ask", ask_, "Found of normalised queries, for recall to fill; see found.h."),
    function("recall", recall_, "Scores, sorts and weighs the slots that a search found; see recall.h."),
    function("recall_gradient", recall_gradient_, "The gradient of both; see recall.h."),
    function("margin_loss", margin_loss_, "(mean, count, newest) of the loss; see margin.h."),
    function("quick_loss", quick_loss, "The mean loss of an ordinary recall, or None."),
    function("margin_gradient", margin_gradient_, "The gradient of that; see margin.h."),
    function("newest", newest_, "Finds the newest slot of each value; see newest.h."),
    function("update", update_, "(zeros, missed, touched, logged) of an update; see update.h."),
    function("quick_update", quick_update, "The slots touched by an ordinary update, or None."),
    {nullptr, nullptr, 0, nullptr},
};
