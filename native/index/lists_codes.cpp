#include "lists_codes.h"

#include <cmath>
#include <cstdlib>

namespace {

// Half away from zero; compilers vectorise copysign.
int16_t rounded(float x) { return static_cast<int16_t>(static_cast<int32_t>(x + std::copysign(0.5f, x))); }

int shift_of(int64_t i) { return static_cast<int>(i % kernels::GROUP / 16 * 4); }

}  // namespace

void quantise(const float *vector, const CodeSize &size, int16_t *code) {
    constexpr float most = 1;  // rounding may have left a number that is a little more
    for (int64_t i = 0; i < size.key_size; i++) code[i] = rounded(std::min(std::max(vector[i], -most), most) * UNIT);
    std::fill(code + size.key_size, code + size.width, int16_t{0});
}

double quantise_sum(const int32_t *sum, int64_t width, int16_t *code) {
    int64_t square = 0;
    for (int64_t i = 0; i < width; i++) square += static_cast<int64_t>(sum[i]) * sum[i];
    const double length = std::sqrt(static_cast<double>(square));
    const float factor = square > 0 ? static_cast<float>(UNIT / length) : 0;
    for (int64_t i = 0; i < width; i++) code[i] = rounded(static_cast<float>(sum[i]) * factor);
    return length;
}

int32_t *rotated(const int16_t *code, int64_t width, int64_t bits) {
    thread_local std::vector<int32_t> room;
    room.resize(std::max(static_cast<int64_t>(room.size()), bits + 4 * width));
    kernels::rotate(code, width, bits, room.data());
    return room.data();
}

void Signs::set(int64_t i, const int16_t *code) {
    const int32_t *x = rotated(code, size_.width, size_.bits);
    uint8_t *byte = groups_.data() + i / kernels::GROUP * size_.group_bytes() + i % 16;
    for (int64_t nibble = 0; nibble < size_.nibbles(); nibble++, x += 4, byte += 16) {
        const int signs = (x[0] > 0) | (x[1] > 0) << 1 | (x[2] > 0) << 2 | (x[3] > 0) << 3;
        *byte = static_cast<uint8_t>((*byte & ~(15 << shift_of(i))) | signs << shift_of(i));
    }
}

void Signs::copy(const Signs &from, int64_t i, int64_t j) {
    const uint8_t *source = from.group(i / kernels::GROUP) + i % 16;
    uint8_t *byte = groups_.data() + j / kernels::GROUP * size_.group_bytes() + j % 16;
    for (int64_t nibble = 0; nibble < size_.nibbles(); nibble++, source += 16, byte += 16)
        *byte = static_cast<uint8_t>((*byte & ~(15 << shift_of(j))) | (*source >> shift_of(i) & 15) << shift_of(j));
}

void CostTable::set(const CodeSize &size, const int16_t *code) {
    int32_t *const x = rotated(code, size.width, size.bits);
    const auto sum = [&] {
        int64_t all = 0;
        for (int64_t i = 0; i < size.bits; i++) all += std::abs(x[i]);
        return all;
    };
    // Costs are summed in a byte that stops at 255. A code that is neither near nor far costs half of the total, and
    // must stay below.
    const float factor = (size.bits == 128 ? 240.0f : 400.0f) / static_cast<float>(std::max<int64_t>(sum(), 1));
    for (int64_t i = 0; i < size.bits; i++)
        x[i] = std::clamp(static_cast<int32_t>(static_cast<float>(x[i]) * factor), -15, 15);
    total = static_cast<int32_t>(sum());
    // Which of the 16 values of a nibble have each bit, as masks: the loop below is then a vector of 16 bytes.
    static constexpr uint8_t HAS[4][16] = {{0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255},
                                           {0, 0, 255, 255, 0, 0, 255, 255, 0, 0, 255, 255, 0, 0, 255, 255},
                                           {0, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0, 255, 255, 255, 255},
                                           {0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255}};
    for (int64_t nibble = 0; nibble < size.nibbles(); nibble++) {
        uint8_t each[4], none = 0, here[16];
        for (int i = 0; i < 4; i++) {
            each[i] = static_cast<uint8_t>(x[4 * nibble + i]);
            none += static_cast<uint8_t>(std::max(x[4 * nibble + i], 0));
        }
        // A bit is 1 where the code's number is positive. A nibble of 0 costs all positive numbers of the query; each
        // bit takes the cost of a positive one back, or adds that of a negative one.
        for (int value = 0; value < 16; value++)
            here[value] = static_cast<uint8_t>(none - (each[0] & HAS[0][value]) - (each[1] & HAS[1][value]) -
                                               (each[2] & HAS[2][value]) - (each[3] & HAS[3][value]));
        std::memcpy(costs + 16 * nibble, here, 16);
    }
}

int CostTable::limit(const CodeSize &size, float similarity, float deviations) const {
    if (similarity <= -1) return 255;
    const float deviation = std::sqrt(std::max(1 - similarity * similarity, 0.0f) / static_cast<float>(size.bits));
    const float cost = static_cast<float>(total) / 2 * (1 - similarity + deviations * deviation) + 2;
    return static_cast<int>(std::min(cost, 255.0f));
}
