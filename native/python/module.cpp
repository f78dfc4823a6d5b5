// The Python module rarecall._native: reads arguments, releases the GIL, calls. All rules are in native/memory and
// native/index. Errors that a user can cause are raised by rarecall.checks, so that each sentence stands once.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "../index/auto.h"
#include "../index/exact.h"
#include "../kernels/kernels.h"
#include "../memory/book.h"
#include "../memory/loss.h"
#include "../memory/reading.h"
#include "../memory/recall.h"
#include "../memory/update.h"
#include "tensor.h"

namespace {

using Optional = std::optional<Tensor>;

// Raises what a function of rarecall.checks says.
template <typename... Arguments>
[[noreturn]] void refuse(const char *check, Arguments... arguments) {
    nb::module_::import_("rarecall.checks").attr(check)(arguments...);
    throw std::logic_error("a check did not raise");
}

// Runs without the GIL.
template <typename Compute>
auto compute(const Compute &run) {
    try {
        nb::gil_scoped_release release;
        return run();
    } catch (const std::out_of_range &) {
        // Outside of the scope above, with the GIL.
    }
    refuse("refuse_edited_recall");
}

// The buffers of a memory by name, and the stamp of those that were read.
struct Buffers {
    Stamp stamp;

    explicit Buffers(nb::dict all) : all_(all) {
        if (const Tensor mark = read("mark"); mark.compact) stamp.mark = *mark.numbers<uint64_t>(1);
    }
    Tensor operator[](const char *name) {
        const Tensor tensor = read(name);
        mix(reinterpret_cast<uintptr_t>(found_));
        mix(reinterpret_cast<uintptr_t>(tensor.data));
        const int64_t times = times_written(found_);
        stamp.counted += times >= 0;
        stamp.written += std::max<int64_t>(times, 0);
        return tensor;
    }
    Tensor read(const char *name) {
        // Strings of Python are made once; there are few names, and the same ones at each call.
        static std::vector<std::pair<const char *, PyObject *>> known;
        auto at = std::find_if(known.begin(), known.end(), [&](const auto &each) { return each.first == name; });
        if (at == known.end()) at = known.insert(known.end(), {name, PyUnicode_InternFromString(name)});
        found_ = PyDict_GetItemWithError(all_.ptr(), at->second);
        Tensor tensor;
        if (!found_ || !read_tensor(found_, tensor)) throw nb::key_error((std::string(name) + ": a buffer is missing").c_str());
        return tensor;
    }

  private:
    nb::dict all_;
    PyObject *found_ = nullptr;

    void mix(uint64_t number) { stamp.tensors = (stamp.tensors ^ number) * 0x9E3779B97F4A7C15u, stamp.tensors ^= stamp.tensors >> 29; }
};

// The slots of a memory from its buffers, with their stamp.
std::pair<Slots, Stamp> read_slots(nb::dict all) {
    Buffers buffers(all);
    Slots slots;
    const Tensor keys = buffers["keys"];
    slots.capacity = keys.dimensions > 0 ? keys.shape[0] : 0;
    slots.key_size = slots.capacity > 0 ? keys.count / slots.capacity : 0;
    slots.keys = keys.numbers<float>(keys.count);
    slots.each_field([&](const char *name, int64_t *&numbers) { numbers = buffers[name].numbers<int64_t>(slots.capacity); });
    slots.now = buffers["now"].numbers<int64_t>(1);
    return {slots, buffers.stamp};
}

// The slots that a book knows, or nothing where the buffers are others by now.
std::optional<Slots> known_slots(const Book &book, nb::dict buffers) {
    try {
        const auto [slots, stamp] = read_slots(buffers);
        if (stamp == book.stamp) return slots;
    } catch (const nb::builtin_exception &) {
        // They are of another type, too.
    }
    return std::nullopt;
}

// The same; `found`, unless null, must be of its key dimension.
Slots slots_of(const Book &book, nb::dict buffers, const Found *found = nullptr) {
    std::optional<Slots> slots = known_slots(book, buffers);
    if (!slots) refuse("refuse_out_of_step");
    slots->used = book.used();
    if (found && found->key_size != slots->key_size) throw nb::value_error("Got a recall of keys of another dimension.");
    return *slots;
}

void rebuild_book(Book &book, nb::dict buffers) {
    Slots slots;
    std::tie(slots, book.stamp) = read_slots(buffers);
    compute([&] { book.rebuild(slots); });
}

// Tells torch, and all who look at the mark, that the slots have changed. What others wrote meanwhile is not in the stamp, and
// will be noticed.
void tell(Book &book, nb::dict buffers) {
    static const nb::object &increment = *new nb::object(nb::module_::import_("torch.autograd.graph").attr("increment_version"));
    static uint64_t marks = std::random_device()() | static_cast<uint64_t>(std::random_device()()) << 32;
    increment(buffers.values());
    book.stamp.written += book.stamp.counted;
    *Buffers(buffers).read("mark").numbers<uint64_t>(1) = book.stamp.mark = marks++;
}

template <typename T>
T *optional(const Optional &tensor, int64_t expected) {
    return tensor ? tensor->numbers<T>(expected) : nullptr;
}

template <typename T>
nb::object tensor_of(std::vector<T> numbers, std::initializer_list<int64_t> shape) {
    auto owner = std::make_shared<std::vector<T>>(std::move(numbers));
    const T *data = owner->data();
    return make_tensor(std::move(owner), data, dlpack::type_of<T>(), shape);
}

// Whether ids are int64 of this shape, contiguous, on the CPU, and none less than `at_least`: in torch's own words this takes
// longer than a loss.
bool are_ids(nb::handle object, nb::tuple shape, int64_t at_least) {
    Tensor ids;
    if (!read_tensor(object.ptr(), ids) || !ids.compact || !(ids.type == dlpack::type_of<int64_t>()) || ids.dimensions != static_cast<int>(shape.size())) return false;
    for (int i = 0; i < ids.dimensions; i++)
        if (nb::cast<int64_t>(shape[i]) != ids.shape[i]) return false;
    const auto *numbers = reinterpret_cast<const int64_t *>(ids.data);
    return std::all_of(numbers, numbers + ids.count, [&](int64_t id) { return id >= at_least; });
}

// ---- recall ----

Found ask(const Tensor &query, const Optional &exclude, int64_t key_size, int64_t k, int64_t hints) {
    int64_t n;
    const float *vectors = query.rows<float>(key_size, n);
    const int64_t *excluded = optional<int64_t>(exclude, n);
    Found found(n, key_size, k, hints, excluded != nullptr);
    if (excluded) std::copy_n(excluded, n, found.exclude);
    std::fill_n(found.hints, n * hints, -1);
    const int64_t bad = compute([&] { return normalise(vectors, n, key_size, found.units, found.inverse_lengths); });
    if (bad) refuse("check_finite", bad);
    return found;
}

Found recall(const Book &book, nb::dict buffers, const Index &index, const Tensor &query, const Optional &exclude, int64_t k,
                    float inverse_temperature, int threads) {
    const Slots slots = slots_of(book, buffers);
    Found found = ask(query, exclude, slots.key_size, k, index.hints());
    compute([&] { index.find(slots, found.queries(), inverse_temperature, threads, found.hints, found.neighbours()); });
    return found;
}

// `found` holds the queries; `candidates`: (n, m), what a search of somebody's own found for them.
void rank(const Book &book, nb::dict buffers, Found &found, const Tensor &candidates, float inverse_temperature, int threads) {
    const Slots slots = slots_of(book, buffers, &found);
    const int64_t m = found.n > 0 ? candidates.count / found.n : 0;
    const int64_t *ids = candidates.numbers<int64_t>(found.n * m);
    for (int64_t i = 0; i < found.n * m; i++)
        if (m > found.k || ids[i] >= slots.capacity) refuse("refuse_candidates", m, found.k, ids[i], slots.capacity);
    compute([&] { rank_given(slots, found.queries(), ids, m, inverse_temperature, threads, found.neighbours()); });
}

// A recall of tensors, such as those of several recalls stacked.
Found found_of(const Tensor &units, const Tensor &inverse_lengths, const Tensor &slots, const Tensor &similarities,
                      const Tensor &values, const Tensor &weights, const Optional &exclude, int64_t key_size, int64_t k) {
    int64_t n;
    const float *all_units = units.rows<float>(key_size, n);
    Found found(n, key_size, k, 0, exclude.has_value());
    std::copy_n(all_units, n * key_size, found.units);
    std::copy_n(inverse_lengths.numbers<float>(n), n, found.inverse_lengths);
    std::copy_n(slots.numbers<int64_t>(n * k), n * k, found.slots);
    std::copy_n(similarities.numbers<float>(n * k), n * k, found.similarities);
    std::copy_n(values.numbers<int64_t>(n * k), n * k, found.values);
    std::copy_n(weights.numbers<float>(n * k), n * k, found.weights);
    if (exclude) std::copy_n(exclude->numbers<int64_t>(n), n, found.exclude);
    return found;
}

// One recall of what several memories found for the same queries, see rank_scored.
Found merge(const Tensor &units, const Tensor &inverse_lengths, const Tensor &slots, const Tensor &similarities,
            const Tensor &values, const Tensor &times, const Optional &exclude, int64_t key_size, int64_t k,
            float inverse_temperature) {
    int64_t n;
    const float *all_units = units.rows<float>(key_size, n);
    const int64_t m = n > 0 ? slots.count / n : 0;
    Found found(n, key_size, k, 0, exclude.has_value());
    std::copy_n(all_units, n * key_size, found.units);
    std::copy_n(inverse_lengths.numbers<float>(n), n, found.inverse_lengths);
    if (exclude) std::copy_n(exclude->numbers<int64_t>(n), n, found.exclude);
    const Scored all{slots.numbers<int64_t>(n * m), similarities.numbers<float>(n * m), values.numbers<int64_t>(n * m),
                     times.numbers<int64_t>(n * m), n, m};
    compute([&] { rank_scored(all, inverse_temperature, found.neighbours()); });
    return found;
}

nb::object recall_gradient_of(const Tensor &keys, const Tensor &changed, const Tensor &before, const Found &found,
                              const Optional &of_units, const Optional &of_similarities, const Optional &of_weights,
                              float inverse_temperature, int threads) {
    int64_t capacity, count;
    const float *all_keys = keys.rows<float>(found.key_size, capacity);
    const int64_t *slots = changed.rows<int64_t>(1, count);
    const Before old{slots, before.numbers<float>(count * found.key_size), count};
    const Gradients of{optional<float>(of_units, found.n * found.key_size), optional<float>(of_similarities, found.n * found.k),
                       optional<float>(of_weights, found.n * found.k)};
    std::vector<float> gradient(found.n * found.key_size);
    compute([&] { recall_gradient(all_keys, capacity, old, found, of, inverse_temperature, threads, gradient.data()); });
    return tensor_of(std::move(gradient), {found.n, found.key_size});
}

// ---- loss ----

std::pair<nb::object, nb::object> loss(const Book &book, nb::dict buffers, const Found &found, const Tensor &target,
                                       const Optional &mask, float margin, bool with_gradient) {
    const Slots slots = slots_of(book, buffers, &found);
    const int64_t *targets = target.numbers<int64_t>(found.n);
    const bool *masked = optional<bool>(mask, found.n);
    std::vector<float> mean(1), gradient(with_gradient ? found.n * found.key_size : 0);
    compute([&] {
        mean[0] = margin_loss(slots, book, found, targets, masked, margin, with_gradient ? gradient.data() : nullptr);
    });
    return {tensor_of(std::move(mean), {}),
            with_gradient ? tensor_of(std::move(gradient), {found.n, found.key_size}) : nb::none()};
}

// The products of vectors, (n, key_size) each, as a search computes them.
nb::object dots(const Tensor &left, const Tensor &right, int64_t key_size) {
    int64_t n;
    const float *a = left.rows<float>(key_size, n), *b = right.numbers<float>(n * key_size);
    std::vector<float> products(n);
    for (int64_t i = 0; i < n; i++) products[i] = kernels::dot(a + i * key_size, b + i * key_size, static_cast<int>(key_size));
    return tensor_of(std::move(products), {n});
}

// The newest slot of each value, (n,), that was not founded by its excluded source; -1 where there is none.
nb::object newest(const Book &book, nb::dict buffers, const Tensor &values, const Optional &exclude) {
    const Slots slots = slots_of(book, buffers);
    int64_t n;
    const int64_t *wanted = values.rows<int64_t>(1, n), *excluded = optional<int64_t>(exclude, n);
    std::vector<int64_t> found(n);
    compute([&] {
        for (int64_t i = 0; i < n; i++) found[i] = book.newest(slots, wanted[i], excluded ? excluded[i] : -1);
    });
    return tensor_of(std::move(found), {n});
}

// ---- update ----

// Slots touched, where there is no index that knows, or `keep` is set; and then their keys as they were; and the values that
// were written over. Nothing is changed where anything is refused.
using Change = std::tuple<nb::object, nb::object, std::vector<int64_t>>;

Change remember(Book &book, nb::dict buffers, const Slots &slots, Index *index, const Examples &examples, const Asked *asked,
                double age_noise, nb::callable draw, bool keep, int threads) {
    const Plan plan = compute([&] { return plan_update(slots, examples); });
    const auto missed = static_cast<int64_t>(plan.missed.size());
    if (plan.zeros || missed > slots.capacity) refuse("check_room", missed, slots.capacity, plan.zeros);
    const uint64_t seed = missed > book.room() ? *nb::cast<Tensor>(draw()).numbers<uint64_t>(1) : 0;
    std::vector<float> before;
    std::vector<int64_t> evicted, touched = compute([&] {
        std::vector<int64_t> changed =
            apply_update(slots, book, examples, plan, age_noise, seed, keep ? &before : nullptr, evicted);
        Slots now = slots;
        now.used = book.used();
        if (index) index->change(now, changed.data(), static_cast<int64_t>(changed.size()), asked, threads);
        return changed;
    });
    tell(book, buffers);
    const auto n = static_cast<int64_t>(touched.size());
    if (index && !keep) return {nb::none(), nb::none(), evicted};
    nb::object keys = keep ? tensor_of(std::move(before), {n, slots.key_size}) : nb::none();
    return {tensor_of(std::move(touched), {n}), keys, evicted};
}

Change update(Book &book, nb::dict buffers, Index *index, const Found &all, const Tensor &target, const Optional &source,
              const Optional &mask, bool by_count, double age_noise, nb::callable draw, bool keep, int threads) {
    const Slots slots = slots_of(book, buffers, &all);
    const int64_t *targets = target.numbers<int64_t>(all.n), *sources = optional<int64_t>(source, all.n);
    std::optional<Found> some;
    std::vector<int64_t> some_targets, some_sources;
    if (const bool *masked = optional<bool>(mask, all.n)) {
        some = all.select(masked);
        for (int64_t i = 0; i < all.n; i++) {
            if (!masked[i]) continue;
            some_targets.push_back(targets[i]);
            if (sources) some_sources.push_back(sources[i]);
        }
        targets = some_targets.data();
        if (sources) sources = some_sources.data();
    }
    const Found &found = some ? *some : all;
    const Examples examples{found.units, targets, sources, nullptr, found.n, found.slots, found.values, found.k, by_count};
    const Asked asked = found.asked();
    return remember(book, buffers, slots, index, examples, &asked, age_noise, draw, keep, threads);
}

Change write_keys(Book &book, nb::dict buffers, Index *index, const Tensor &keys, const Tensor &values, const Optional &source,
                  const Optional &count, double age_noise, nb::callable draw, bool keep, int threads) {
    const Slots slots = slots_of(book, buffers);
    int64_t n;
    const float *vectors = keys.rows<float>(slots.key_size, n);
    Array<float> units(n * slots.key_size);
    const int64_t bad = compute([&] { return normalise(vectors, n, slots.key_size, units.data(), nullptr); });
    if (bad) refuse("check_finite", bad);
    Examples examples;
    examples.units = units.data();
    examples.values = values.numbers<int64_t>(n);
    examples.sources = optional<int64_t>(source, n);
    examples.counts = optional<int64_t>(count, n);
    examples.n = n;
    return remember(book, buffers, slots, index, examples, nullptr, age_noise, draw, keep, threads);
}

nb::object put_rows(Book &book, nb::dict buffers, Index *index, const Tensor &chosen, const Tensor &keys, const Tensor &values,
                    const Tensor &sources, const Tensor &counts, const Tensor &times, int64_t now, bool keep, int threads) {
    const Slots slots = slots_of(book, buffers);
    Rows rows;
    rows.slots = chosen.rows<int64_t>(1, rows.n);
    for (int64_t i = 0; i < rows.n; i++)
        if (rows.slots[i] < 0 || rows.slots[i] >= slots.capacity || (i > 0 && rows.slots[i] <= rows.slots[i - 1]))
            throw nb::value_error("Got slots to put that the memory does not have, or not ascending.");
    rows.keys = keys.numbers<float>(rows.n * slots.key_size);
    rows.values = values.numbers<int64_t>(rows.n);
    rows.sources = sources.numbers<int64_t>(rows.n);
    rows.counts = counts.numbers<int64_t>(rows.n);
    rows.times = times.numbers<int64_t>(rows.n);
    rows.now = now;
    std::vector<float> before;
    compute([&] {
        put(slots, book, rows, keep ? &before : nullptr);
        Slots after = slots;
        after.used = book.used();
        if (index) index->change(after, rows.slots, rows.n, nullptr, threads);
    });
    tell(book, buffers);
    return keep ? tensor_of(std::move(before), {rows.n, slots.key_size}) : nb::none();
}

// See Book::offers. confirmed: (m,), ascending.
nb::object offers(Book &book, nb::dict buffers, const Tensor &confirmed, int64_t count, double age_noise, const Tensor &seed) {
    const Slots slots = slots_of(book, buffers);
    int64_t m;
    const int64_t *first = confirmed.rows<int64_t>(1, m);
    const uint64_t drawn = *seed.numbers<uint64_t>(1);
    std::vector<double> since =
        compute([&] { return book.offers(slots, {first, first + m}, count, age_noise, drawn); });
    const auto n = static_cast<int64_t>(since.size());
    return tensor_of(std::move(since), {n});
}

nb::object erase_slots(Book &book, nb::dict buffers, Index *index, const Tensor &chosen, bool keep, int threads) {
    const Slots slots = slots_of(book, buffers);
    int64_t n;
    const int64_t *ids = chosen.rows<int64_t>(1, n);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= slots.capacity || slots.values[ids[i]] < 0 || (i > 0 && ids[i] <= ids[i - 1]))
            throw nb::value_error("Got slots to erase that are not filled, or not ascending.");
    std::vector<float> before;
    compute([&] {
        erase(slots, book, ids, n, keep ? &before : nullptr);
        if (index) index->change(slots, ids, n, nullptr, threads);
    });
    tell(book, buffers);
    return keep ? tensor_of(std::move(before), {n, slots.key_size}) : nb::none();
}

// ---- reading ----

// classes: rows of slots, vectors and offsets, or nothing. Returns values and probabilities, (n, most of a query), and known, (n,).
std::tuple<nb::object, nb::object, nb::object> read_found(const Found &found, const std::optional<std::tuple<Tensor, Tensor, Tensor>> &classes,
                                                          bool sums, float inverse_temperature, float weight, float slope, float offset,
                                                          float same, float same_odds, int64_t answers, int threads) {
    Classes all{};
    if (classes) {
        const auto &[rows, vectors, offsets] = *classes;
        all.rows = rows.rows<int64_t>(1, all.capacity);
        all.offsets = offsets.rows<float>(1, all.count);
        all.vectors = vectors.numbers<float>(all.count * found.key_size);
    }
    const int64_t most = std::min(answers, found.k);
    std::vector<int64_t> values(found.n * most);
    std::vector<float> probabilities(found.n * most), known(found.n);
    const Reader reader{sums, inverse_temperature, weight, slope, offset, same, same_odds};
    const int64_t width = std::max<int64_t>(
        compute([&] { return read(found, all, reader, most, threads, values.data(), probabilities.data(), known.data()); }), 1);
    const auto narrowed = [&](auto &table) {
        for (int64_t row = 1; row < found.n; row++) std::copy_n(table.data() + row * most, width, table.data() + row * width);
        return tensor_of(std::move(table), {found.n, width});
    };
    return {narrowed(values), narrowed(probabilities), tensor_of(std::move(known), {found.n})};
}

// ---- the state of lists ----

nb::dict export_lists(const AutoIndex &index) {
    nb::dict tensors;
    ListsState state = index.export_state();
    ListsState::each_field(state, [&](const char *name, auto &field) {
        using Field = std::remove_reference_t<decltype(field)>;
        if constexpr (std::is_arithmetic_v<Field>) {
            tensors[name] = tensor_of(std::vector<Field>{field}, {});
        } else {
            const auto n = static_cast<int64_t>(field.size());
            tensors[name] = tensor_of(std::move(field), {n});
        }
    });
    return tensors;
}

void restore_lists(AutoIndex &index, nb::dict tensors) {
    ListsState state;
    ListsState::each_field(state, [&](const char *name, auto &field) {
        using Field = std::remove_reference_t<decltype(field)>;
        const auto tensor = nb::cast<Tensor>(tensors[name]);
        if constexpr (std::is_arithmetic_v<Field>) {
            field = *tensor.numbers<Field>(1);
        } else {
            int64_t n;
            const auto *from = tensor.rows<typename Field::value_type>(1, n);
            field.assign(from, from + n);
        }
    });
    index.restore(std::move(state));
}

// The tensor of a field of a recall, which shares its memory.
template <auto Field>
nb::object field(const Found &found, std::initializer_list<int64_t> shape) {
    using Number = std::remove_pointer_t<std::remove_reference_t<decltype(found.*Field)>>;
    return make_tensor(found.block, found.*Field, dlpack::type_of<Number>(), shape);
}

template <auto Field>
nb::object of_k(const Found &found) {
    return field<Field>(found, {found.n, found.k});
}

}  // namespace

NB_MODULE(_native, module) {
    using namespace nb::literals;
    require_exchange();
    nb::set_leak_warnings(false);  // a traceback may hold memories when the interpreter ends
    const auto none = nb::none();
    nb::class_<Found>(module, "Found")
        .def_prop_ro("slots", of_k<&Found::slots>)
        .def_prop_ro("similarities", of_k<&Found::similarities>)
        .def_prop_ro("values", of_k<&Found::values>)
        .def_prop_ro("weights", of_k<&Found::weights>)
        .def_prop_ro("exclude", [](const Found &found) { return found.exclude ? field<&Found::exclude>(found, {found.n}) : nb::none(); })
        .def_prop_ro("query", [](const Found &found) { return field<&Found::units>(found, {found.n, found.key_size}); })
        .def_prop_ro("inverse_lengths", [](const Found &found) { return field<&Found::inverse_lengths>(found, {found.n}); });
    nb::class_<Book>(module, "Book")
        .def(nb::init<>())
        .def("rebuild", rebuild_book)
        .def("is_of", [](const Book &book, nb::dict buffers) { return known_slots(book, buffers).has_value(); })
        .def_prop_ro("used", &Book::used)
        .def_prop_ro("filled", &Book::filled);
    nb::class_<Index>(module, "Index")
        .def("rebuild",
             [](Index &index, const Book &book, nb::dict buffers, int threads) {
                 const Slots slots = slots_of(book, buffers);
                 compute([&] { index.rebuild(slots, threads); });
             });
    nb::class_<ExactIndex, Index>(module, "ExactIndex").def(nb::init<int64_t, int64_t>());
    nb::class_<AutoIndex, Index>(module, "AutoIndex")
        .def(nb::init<int64_t, int64_t, double, int64_t, int64_t>(), "key_size"_a, "capacity"_a, "target_recall"_a, "small"_a,
             "many"_a)
        .def_prop_ro("reads_lists", &AutoIndex::reads_lists)
        .def("export_state", export_lists)
        .def("restore", restore_lists);
    module.def("variants", [] {
        const auto names = kernels::variants();
        return std::vector<std::string>(names.begin(), names.end());
    });
    module.def("use_variant", [](const std::string &name) {
        if (!kernels::use(name.c_str())) throw nb::value_error("use_variant got a name that variants() does not have.");
    });
    module.def("are_ids", are_ids);
    module.def("ask", ask, "query"_a, "exclude"_a.none(), "key_size"_a, "k"_a, "hints"_a = 0);
    module.def("recall", recall, "book"_a, "buffers"_a, "index"_a, "query"_a, "exclude"_a.none(), "k"_a, "inverse_temperature"_a,
               "threads"_a);
    module.def("rank", rank);
    module.def("found_of", found_of, "units"_a, "inverse_lengths"_a, "slots"_a, "similarities"_a, "values"_a, "weights"_a,
               "exclude"_a.none(), "key_size"_a, "k"_a);
    module.def("recall_gradient", recall_gradient_of, "keys"_a, "changed"_a, "before"_a, "found"_a, "of_units"_a.none(),
               "of_similarities"_a.none(), "of_weights"_a.none(), "inverse_temperature"_a, "threads"_a);
    module.def("loss", loss, "book"_a, "buffers"_a, "found"_a, "target"_a, "mask"_a.none(), "margin"_a, "with_gradient"_a);
    module.def("dots", dots);
    module.def("read", read_found, "found"_a, "classes"_a.none(), "sums"_a, "inverse_temperature"_a, "weight"_a, "slope"_a, "offset"_a,
               "same"_a, "same_odds"_a, "answers"_a, "threads"_a);
    module.def("newest", newest, "book"_a, "buffers"_a, "values"_a, "exclude"_a.none());
    module.def("offers", offers);
    module.def("merge", merge, "units"_a, "inverse_lengths"_a, "slots"_a, "similarities"_a, "values"_a, "times"_a,
               "exclude"_a.none(), "key_size"_a, "k"_a, "inverse_temperature"_a);
    module.def("update", update, "book"_a, "buffers"_a, "index"_a.none(), "found"_a, "target"_a, "source"_a.none(),
               "mask"_a.none(), "by_count"_a, "age_noise"_a, "draw"_a, "keep"_a, "threads"_a);
    module.def("write", write_keys, "book"_a, "buffers"_a, "index"_a.none(), "keys"_a, "values"_a, "source"_a.none(),
               "count"_a.none(), "age_noise"_a, "draw"_a, "keep"_a, "threads"_a);
    module.def("put", put_rows, "book"_a, "buffers"_a, "index"_a.none(), "slots"_a, "keys"_a, "values"_a, "sources"_a, "counts"_a,
               "times"_a, "now"_a, "keep"_a, "threads"_a);
    module.def("erase", erase_slots, "book"_a, "buffers"_a, "index"_a.none(), "slots"_a, "keep"_a, "threads"_a);
}
