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
#include "../memory/reading.h"
#include "../memory/recall.h"
#include "../memory/update.h"
#include "tensor.h"

namespace {

using Optional = std::optional<Tensor>;
using OptionalIndex = std::optional<Index *>;  // none where the search is somebody's own

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

// Tensors by name, and the stamp of those that were read.
struct Named {
    Stamp stamp;

    explicit Named(nb::dict all) : all_(all) {}
    Tensor operator[](const char *name) {
        // Strings of Python are made once; there are few names, and the same ones at each call.
        static std::vector<std::pair<const char *, PyObject *>> known;
        auto at = std::find_if(known.begin(), known.end(), [&](const auto &each) { return each.first == name; });
        if (at == known.end()) at = known.insert(known.end(), {name, PyUnicode_InternFromString(name)});
        PyObject *const found = PyDict_GetItemWithError(all_.ptr(), at->second);
        Tensor tensor;
        if (!found || !read_tensor(found, tensor)) throw nb::key_error((std::string(name) + ": a tensor is missing").c_str());
        mix(reinterpret_cast<uintptr_t>(found));
        mix(reinterpret_cast<uintptr_t>(tensor.data));
        const int64_t times = times_written(found);
        stamp.counted += times >= 0;
        stamp.written += std::max<int64_t>(times, 0);
        return tensor;
    }
    // The slots that these are, or rows to be put into slots.
    Slots slots() {
        Slots slots;
        const Tensor keys = (*this)["keys"];
        slots.capacity = keys.dimensions > 0 ? keys.shape[0] : 0;
        slots.key_size = slots.capacity > 0 ? keys.count / slots.capacity : 0;
        slots.keys = keys.numbers<float>(keys.count);
        for (const auto &field : Slots::FIELDS) slots.*field.numbers = (*this)[field.name].numbers<int64_t>(slots.capacity);
        return slots;
    }

  private:
    nb::dict all_;

    void mix(uint64_t number) {
        stamp.tensors = (stamp.tensors ^ number) * 0x9E3779B97F4A7C15u;
        stamp.tensors ^= stamp.tensors >> 29;
    }
};

// The slots of a memory from its buffers, with their stamp.
std::pair<Slots, Stamp> read_slots(nb::dict buffers) {
    Named named(buffers);
    Slots slots = named.slots();
    slots.now = named["now"].numbers<int64_t>(1);
    if (const Tensor mark = Named(buffers)["mark"]; mark.compact) named.stamp.mark = *mark.numbers<uint64_t>(1);
    return {slots, named.stamp};
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

// Tells torch, and all who look at the mark, that the slots have changed. What others wrote meanwhile is not in the stamp,
// and will be noticed.
void tell(Book &book, nb::dict buffers) {
    static const auto &increment = *new nb::object(nb::module_::import_("torch.autograd.graph").attr("increment_version"));
    static uint64_t marks = std::random_device()() | static_cast<uint64_t>(std::random_device()()) << 32;
    increment(buffers.values());
    book.stamp.written += book.stamp.counted;
    *Named(buffers)["mark"].numbers<uint64_t>(1) = book.stamp.mark = marks++;
}

template <typename T>
T *optional(const Optional &tensor, int64_t expected) {
    return tensor ? tensor->numbers<T>(expected) : nullptr;
}

template <typename T>
nb::object tensor_of(std::vector<T> numbers, std::initializer_list<int64_t> shape) {
    auto owner = std::make_shared<std::vector<T>>(std::move(numbers));
    const T *data = owner->data();
    return make_tensor(std::move(owner), data, type_of<T>(), shape);
}

template <typename T>
nb::object tensor_of(std::vector<T> numbers) {
    const auto n = static_cast<int64_t>(numbers.size());
    return tensor_of(std::move(numbers), {n});
}

// Whether ids are int64 of this shape, contiguous, on the CPU, and none less than `at_least`: in torch's own words this takes
// longer than a loss.
bool are_ids(nb::handle object, nb::tuple shape, int64_t at_least) {
    Tensor ids;
    if (!read_tensor(object.ptr(), ids) || !ids.compact || !(ids.type == type_of<int64_t>())) return false;
    if (ids.dimensions != static_cast<int>(shape.size())) return false;
    for (int i = 0; i < ids.dimensions; i++)
        if (nb::cast<int64_t>(shape[i]) != ids.shape[i]) return false;
    const auto *numbers = reinterpret_cast<const int64_t *>(ids.data);
    return std::all_of(numbers, numbers + ids.count, [&](int64_t id) { return id >= at_least; });
}

// ---- recall ----

// Makes vectors of length 1; refuses those that are not finite.
void normalise_finite(const float *vectors, int64_t n, int64_t size, float *units, float *inverse_lengths) {
    const int64_t bad = compute([&] { return normalise(vectors, n, size, units, inverse_lengths); });
    if (bad) refuse("check_finite", bad);
}

Found ask(const Tensor &query, const Optional &exclude, int64_t key_size, int64_t k, int64_t hints) {
    int64_t n;
    const float *vectors = query.rows<float>(key_size, n);
    const int64_t *excluded = optional<int64_t>(exclude, n);
    Found found(n, key_size, k, hints, excluded != nullptr);
    if (excluded) std::copy_n(excluded, n, found.exclude);
    std::fill_n(found.hints, n * hints, -1);
    normalise_finite(vectors, n, key_size, found.units, found.inverse_lengths);
    return found;
}

Found recall(const Book &book, nb::dict buffers, const Index &index, const Tensor &query, const Optional &exclude, int64_t k,
             float inverse_temperature, int threads) {
    const Slots slots = slots_of(book, buffers);
    Found found = ask(query, exclude, slots.key_size, k, index.hints());
    compute([&] { index.find(slots, inverse_temperature, threads, found); });
    return found;
}

// `found` holds the queries; `candidates`: (n, m), what a search of somebody's own found for them.
void rank(const Book &book, nb::dict buffers, Found &found, const Tensor &candidates, float inverse_temperature, int threads) {
    const Slots slots = slots_of(book, buffers, &found);
    const int64_t m = found.n > 0 ? candidates.count / found.n : 0;
    const int64_t *ids = candidates.numbers<int64_t>(found.n * m);
    for (int64_t i = 0; i < found.n * m; i++)
        if (m > found.k || ids[i] >= slots.capacity) refuse("refuse_candidates", m, found.k, ids[i], slots.capacity);
    compute([&] { rank_given(slots, ids, m, inverse_temperature, threads, found); });
}

// A recall of tensors by the names of its fields, such as those of several recalls stacked; what is not there is left open.
Found found_of(nb::dict tensors, int64_t key_size, int64_t k) {
    int64_t n;
    Named named(tensors);
    named["query"].rows<float>(key_size, n);
    Found found(n, key_size, k, 0, tensors.contains("exclude"));
    found.each_field([&](const char *name, auto field, int64_t width) {
        using Number = std::remove_pointer_t<std::remove_reference_t<decltype(found.*field)>>;
        if (width > 0 && tensors.contains(name)) std::copy_n(named[name].numbers<Number>(n * width), n * width, found.*field);
    });
    return found;
}

// `found` holds the queries; the others, (n, m), what several memories found for them, see rank_scored.
void merge(Found &found, const Tensor &slots, const Tensor &similarities, const Tensor &values, const Tensor &times,
           float inverse_temperature) {
    const int64_t m = found.n > 0 ? slots.count / found.n : 0, count = found.n * m;
    Slots all;
    all.values = values.numbers<int64_t>(count);
    all.times = times.numbers<int64_t>(count);
    const auto *names = slots.numbers<int64_t>(count);
    const auto *scores = similarities.numbers<float>(count);
    compute([&] { rank_scored(all, names, scores, m, inverse_temperature, found); });
}

nb::object recall_gradient_of(const Tensor &keys, const Tensor &changed, const Tensor &before, const Found &found,
                              const Optional &of_units, const Optional &of_similarities, const Optional &of_weights,
                              float inverse_temperature, int threads) {
    int64_t capacity, count;
    const float *all_keys = keys.rows<float>(found.key_size, capacity);
    const int64_t *slots = changed.rows<int64_t>(1, count);
    const Before old{slots, before.numbers<float>(count * found.key_size), count};
    const Gradients of{optional<float>(of_units, found.n * found.key_size),
                       optional<float>(of_similarities, found.n * found.k), optional<float>(of_weights, found.n * found.k)};
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
    for (int64_t i = 0; i < n; i++)
        products[i] = kernels::dot(a + i * key_size, b + i * key_size, static_cast<int>(key_size));
    return tensor_of(std::move(products));
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
    return tensor_of(std::move(found));
}

// ---- update ----

// Slots touched, where there is no index that knows, or `keep` is set; and then their keys as they were; and the values that
// were written over.
using Changed = std::tuple<nb::object, nb::object, std::vector<int64_t>>;

// Changes slots by apply(), and has all follow that must: the index, torch, and whoever looks at the mark.
template <typename Apply>
Changed change(Book &book, nb::dict buffers, Slots slots, OptionalIndex index, const Found *asked, bool keep, int threads,
               const Apply &apply) {
    Change made = compute([&] {
        Change change = apply();
        slots.used = book.used();
        if (index) (*index)->change(slots, change.touched.data(), int64_t(change.touched.size()), asked, threads);
        return change;
    });
    tell(book, buffers);
    if (index && !keep) return {nb::none(), nb::none(), made.evicted};
    const auto n = static_cast<int64_t>(made.touched.size());
    nb::object before = keep ? tensor_of(std::move(made.before), {n, slots.key_size}) : nb::none();
    return {tensor_of(std::move(made.touched)), before, made.evicted};
}

// Nothing is changed where anything is refused.
Changed remember(Book &book, nb::dict buffers, const Slots &slots, OptionalIndex index, const Examples &examples, const Found *asked,
                 double age_noise, nb::callable draw, bool keep, int threads) {
    const Plan plan = compute([&] { return plan_update(slots, examples); });
    const auto missed = static_cast<int64_t>(plan.missed.size());
    if (plan.zeros || missed > slots.capacity) refuse("check_room", missed, slots.capacity, plan.zeros);
    const uint64_t seed = missed > book.room() ? *nb::cast<Tensor>(draw()).numbers<uint64_t>(1) : 0;
    return change(book, buffers, slots, index, asked, keep, threads,
                  [&] { return apply_update(slots, book, examples, plan, age_noise, seed, keep); });
}

// Leaves the numbers where `mask`, (n,), is true.
std::vector<int64_t> select(const int64_t *numbers, const bool *mask, int64_t n) {
    std::vector<int64_t> chosen;
    for (int64_t i = 0; numbers && i < n; i++)
        if (mask[i]) chosen.push_back(numbers[i]);
    return chosen;
}

Changed update(Book &book, nb::dict buffers, OptionalIndex index, const Found &all, const Tensor &target, const Optional &source,
               const Optional &mask, bool by_count, double age_noise, nb::callable draw, bool keep, int threads) {
    const Slots slots = slots_of(book, buffers, &all);
    const int64_t *targets = target.numbers<int64_t>(all.n), *sources = optional<int64_t>(source, all.n);
    std::optional<Found> some;
    std::vector<int64_t> some_targets, some_sources;
    if (const bool *masked = optional<bool>(mask, all.n)) {
        some = all.select(masked);
        some_targets = select(targets, masked, all.n);
        some_sources = select(sources, masked, all.n);
        targets = some_targets.data();
        if (sources) sources = some_sources.data();
    }
    const Found &found = some ? *some : all;
    const Examples examples{found.units, targets, sources, nullptr, found.n, found.slots, found.values, found.k, by_count};
    return remember(book, buffers, slots, index, examples, &found, age_noise, draw, keep, threads);
}

Changed write_keys(Book &book, nb::dict buffers, OptionalIndex index, const Tensor &keys, const Tensor &values,
                   const Optional &source, const Optional &count, double age_noise, nb::callable draw, bool keep, int threads) {
    const Slots slots = slots_of(book, buffers);
    Examples examples;
    const float *vectors = keys.rows<float>(slots.key_size, examples.n);
    Array<float> units(examples.n * slots.key_size);
    normalise_finite(vectors, examples.n, slots.key_size, units.data(), nullptr);
    examples.units = units.data();
    examples.values = values.numbers<int64_t>(examples.n);
    examples.sources = optional<int64_t>(source, examples.n);
    examples.counts = optional<int64_t>(count, examples.n);
    return remember(book, buffers, slots, index, examples, nullptr, age_noise, draw, keep, threads);
}

// rows: by the names of the buffers.
Changed put_rows(Book &book, nb::dict buffers, OptionalIndex index, const Tensor &chosen, int64_t now, nb::dict rows, bool keep,
                 int threads) {
    const Slots slots = slots_of(book, buffers);
    Slots from = Named(rows).slots();
    from.now = &now;
    const int64_t *ids = chosen.numbers<int64_t>(from.capacity);
    for (int64_t i = 0; i < from.capacity; i++)
        if (from.key_size != slots.key_size || ids[i] < 0 || ids[i] >= slots.capacity || (i > 0 && ids[i] <= ids[i - 1]))
            throw nb::value_error("Got slots to put that the memory does not have, or not ascending.");
    return change(book, buffers, slots, index, nullptr, keep, threads,
                  [&] { return put(slots, book, {ids, ids + from.capacity}, from, keep); });
}

// See Book::offers. confirmed: (m,), ascending.
nb::object offers(Book &book, nb::dict buffers, const Tensor &confirmed, int64_t count, double age_noise, const Tensor &seed) {
    const Slots slots = slots_of(book, buffers);
    int64_t m;
    const int64_t *first = confirmed.rows<int64_t>(1, m);
    const uint64_t drawn = *seed.numbers<uint64_t>(1);
    return tensor_of(compute([&] { return book.offers(slots, {first, first + m}, count, age_noise, drawn); }));
}

// ---- reading ----

// classes: rows of slots, vectors and offsets, or nothing. Returns values and probabilities, (n, most of a query), and known,
// (n,).
nb::tuple read_found(const Found &found, const std::optional<std::tuple<Tensor, Tensor, Tensor>> &classes, bool sums,
                     float inverse_temperature, float weight, float slope, float offset, float same, float same_odds,
                     int64_t answers, int threads) {
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
    const int64_t widest = compute(
        [&] { return read(found, all, reader, most, threads, values.data(), probabilities.data(), known.data()); });
    const int64_t width = std::max<int64_t>(widest, 1);
    const auto narrowed = [&](auto &table) {
        for (int64_t row = 1; row < found.n; row++)
            std::copy_n(table.data() + row * most, width, table.data() + row * width);
        return tensor_of(std::move(table), {found.n, width});
    };
    return nb::make_tuple(narrowed(values), narrowed(probabilities), tensor_of(std::move(known)));
}

// ---- the state of lists ----

nb::dict export_lists(const AutoIndex &index) {
    nb::dict tensors;
    ListsState state = index.export_state();
    ListsState::each_field(state, [&](const char *name, auto &field) {
        using Field = std::remove_reference_t<decltype(field)>;
        if constexpr (std::is_arithmetic_v<Field>)
            tensors[name] = tensor_of(std::vector<Field>{field}, {});
        else
            tensors[name] = tensor_of(std::move(field));
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

// The tensor of a field of a recall, which shares its memory: (n, width), or (n,) where that is 0.
template <typename Number>
nb::object field(const Found &found, Number *numbers, int64_t width) {
    const auto type = type_of<Number>();
    return width > 0 ? make_tensor(found.block, numbers, type, {found.n, width})
                     : make_tensor(found.block, numbers, type, {found.n});
}

}  // namespace

NB_MODULE(_native, module) {
    using namespace nb::literals;
    require_exchange();
    nb::set_leak_warnings(false);  // a traceback may hold memories when the interpreter ends
    nb::class_<Found>(module, "Found")
        .def_prop_ro("slots", [](const Found &found) { return field(found, found.slots, found.k); })
        .def_prop_ro("similarities", [](const Found &found) { return field(found, found.similarities, found.k); })
        .def_prop_ro("values", [](const Found &found) { return field(found, found.values, found.k); })
        .def_prop_ro("weights", [](const Found &found) { return field(found, found.weights, found.k); })
        .def_prop_ro("query", [](const Found &found) { return field(found, found.units, found.key_size); })
        .def_prop_ro("inverse_lengths", [](const Found &found) { return field(found, found.inverse_lengths, 0); })
        .def_prop_ro("exclude",
                     [](const Found &found) { return found.exclude ? field(found, found.exclude, 0) : nb::none(); });
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
    module.def("ask", ask, "query"_a, "exclude"_a, "key_size"_a, "k"_a, "hints"_a = 0);
    module.def("recall", recall);
    module.def("rank", rank);
    module.def("found_of", found_of);
    module.def("merge", merge);
    module.def("recall_gradient", recall_gradient_of);
    module.def("loss", loss);
    module.def("dots", dots);
    module.def("read", read_found, "found"_a, "classes"_a, "sums"_a, "inverse_temperature"_a, "weight"_a, "slope"_a,
               "offset"_a, "same"_a, "same_odds"_a, "answers"_a, "threads"_a);
    module.def("newest", newest);
    module.def("offers", offers);
    module.def("update", update);
    module.def("write", write_keys);
    module.def("put", put_rows);
}
