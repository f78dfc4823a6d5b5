// Tensors of torch, read and made by DLPack's exchange of C structs: the extension is built without torch, and one call says
// all of a tensor (by attributes, or by nanobind's ndarray, it would take several times as long).
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <type_traits>

namespace nb = nanobind;

// The type of a number, as DLPack says it.
struct Type {
    enum Code : uint8_t { INT = 0, UINT = 1, FLOAT = 2, BOOL = 6 };

    uint8_t code, bits;
    uint16_t lanes;
    bool operator==(const Type &other) const { return code == other.code && bits == other.bits && lanes == other.lanes; }
};

template <typename T>
constexpr Type type_of() {
    return {std::is_same_v<T, bool> ? Type::BOOL : std::is_floating_point_v<T> ? Type::FLOAT : Type::INT, 8 * sizeof(T), 1};
}

// A tensor that somebody else holds.
struct Tensor {
    static constexpr int MOST = 8;  // dimensions

    char *data = nullptr;
    Type type{};
    bool compact = false;  // contiguous, on the CPU, of at most MOST dimensions
    int64_t count = 0;     // of its numbers
    int dimensions = 0;
    int64_t shape[MOST] = {};

    // The numbers, where there are `expected` of this type; else it throws.
    template <typename T>
    T *numbers(int64_t expected) const {
        require(type_of<T>(), expected);
        return reinterpret_cast<T *>(data);
    }
    // The same of rows of `width` numbers; `n` is how many there are.
    template <typename T>
    T *rows(int64_t width, int64_t &n) const {
        n = width > 0 ? count / width : 0;
        return numbers<T>(n * width);
    }

    void require(Type expected_type, int64_t expected) const;
};

// Throws an import error where this torch does not exchange tensors.
void require_exchange();

// Reads what an object is, if it is a tensor. Sets no error.
bool read_tensor(PyObject *object, Tensor &tensor);

// How often torch wrote to a tensor; -1 for one made in inference mode, of which torch does not count it.
int64_t times_written(PyObject *tensor);

// A new tensor over memory that `owner` keeps.
nb::object make_tensor(std::shared_ptr<void> owner, const void *data, Type type, std::initializer_list<int64_t> shape);

namespace nanobind::detail {

template <>
struct type_caster<Tensor> {
    NB_TYPE_CASTER(Tensor, const_name("torch.Tensor"))
    bool from_python(handle source, uint8_t, cleanup_list *) noexcept { return read_tensor(source.ptr(), value); }
    static handle from_cpp(const Tensor &, rv_policy, cleanup_list *) noexcept = delete;
};

}  // namespace nanobind::detail
