// Sign codes one by one: 32 of them stand together, see kernels::distances.
#pragma once

#include <cstdint>

#include "lists_kernels.h"

namespace sign_codes {

inline int shift_of(int64_t i) { return i % kernels::GROUP / 16 * 4; }

inline int64_t nibble_at(int64_t i, int64_t nibble, int64_t bits) {
    return i / kernels::GROUP * (kernels::GROUP / 8) * bits + 16 * nibble + i % 16;
}

inline void set_nibble(uint8_t *signs, int64_t i, int64_t nibble, int64_t bits, int to) {
    uint8_t &both = signs[nibble_at(i, nibble, bits)];
    both = static_cast<uint8_t>((both & ~(15 << shift_of(i))) | to << shift_of(i));
}

// The i-th of these becomes the j-th of those.
inline void copy(const uint8_t *these, int64_t i, uint8_t *those, int64_t j, int64_t bits) {
    for (int64_t nibble = 0; nibble < bits / 4; nibble++)
        set_nibble(those, j, nibble, bits, these[nibble_at(i, nibble, bits)] >> shift_of(i) & 15);
}

}  // namespace sign_codes
