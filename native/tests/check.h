// What the tests share. A test is a program: it stops at the first check that fails.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <random>

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
            std::exit(1);                                                                 \
        }                                                                                 \
    } while (false)

inline std::mt19937_64 random_bits{1};  // the same numbers in every run

inline int64_t random_int(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_bits);
}
inline float random_float(float low, float high) { return std::uniform_real_distribution<float>(low, high)(random_bits); }
inline float random_normal() { return std::normal_distribution<float>()(random_bits); }
