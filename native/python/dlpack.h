// What libraries tell each other of their tensors: the structs of DLPack 1.x, as far as they are used here.
// https://dmlc.github.io/dlpack/latest/c_api.html
#pragma once

#include <cstdint>
#include <type_traits>

namespace dlpack {

constexpr uint32_t MAJOR = 1;  // versions from which on fields move
constexpr int32_t CPU = 1;     // a device
enum Code : uint8_t { INT = 0, UINT = 1, FLOAT = 2, BOOL = 6 };

struct Version {
    uint32_t major, minor;
};

struct Device {
    int32_t type, id;
};

struct Type {
    uint8_t code, bits;
    uint16_t lanes;
    bool operator==(const Type &other) const { return code == other.code && bits == other.bits && lanes == other.lanes; }
};

template <typename T>
constexpr Type type_of() {
    constexpr Code code = std::is_same_v<T, bool> ? BOOL : std::is_floating_point_v<T> ? FLOAT : INT;
    return {code, 8 * sizeof(T), 1};
}

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
    Exchange *before;  // for older versions
    int (*allocate)(Tensor *like, Managed **made, void *context, void (*fail)(void *, const char *, const char *));
    int (*share)(void *object, Managed **shared);
    int (*take)(Managed *given, void **object);
    int (*look)(void *object, Tensor *seen);  // what is seen is the object's; may be null
    int (*stream)(int32_t device, int32_t id, void **stream);
};

}  // namespace dlpack
