// A block of numbers that its owner allocates once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

#ifdef __linux__
#include <sys/mman.h>
#endif

// Uninitialised and aligned to cache lines. Large ones ask for pages of 2 MB: they are read at random, and the CPU then needs
// fewer page translations. Pages that are never written take no memory.
template <typename T>
class Array {
    static_assert(std::is_trivially_copyable_v<T>);

  public:
    Array() = default;
    explicit Array(int64_t size) : size_(size) {
        constexpr size_t LINE = 64, LARGE = size_t{2} << 20;
        if (size < 0 || static_cast<uint64_t>(size) > SIZE_MAX / 2 / sizeof(T)) throw std::bad_alloc();
        const size_t align = size * sizeof(T) >= LARGE ? LARGE : LINE;
        const size_t bytes = std::max((size * sizeof(T) + align - 1) / align * align, align);
        data_.reset(static_cast<T *>(std::aligned_alloc(align, bytes)));
        if (!data_) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
        if (align == LARGE) madvise(data_.get(), bytes, MADV_HUGEPAGE);
#endif
    }
    Array(int64_t size, T value) : Array(size) { std::fill_n(data(), size, value); }

    T *data() { return data_.get(); }
    const T *data() const { return data_.get(); }
    int64_t size() const { return size_; }
    T &operator[](int64_t i) { return data_.get()[i]; }
    const T &operator[](int64_t i) const { return data_.get()[i]; }
    T *begin() { return data(); }
    T *end() { return data() + size_; }
    const T *begin() const { return data(); }
    const T *end() const { return data() + size_; }

  private:
    struct Free {
        void operator()(T *block) const { std::free(block); }
    };
    std::unique_ptr<T[], Free> data_;
    int64_t size_ = 0;
};
