#include "lists_codes.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>

namespace {

// Half away from zero; compilers vectorise copysign.
int8_t rounded(float x) { return static_cast<int8_t>(static_cast<int>(x + std::copysign(0.5f, x))); }

int shift_of(int64_t i) { return static_cast<int>(i % kernels::GROUP / 16 * 4); }

int64_t byte_of(int64_t i, int64_t nibble, int64_t bits) {
    return i / kernels::GROUP * (kernels::GROUP / 8) * bits + 16 * nibble + i % 16;
}

void set_nibble(uint8_t *signs, int64_t i, int64_t nibble, int64_t bits, int to) {
    uint8_t &both = signs[byte_of(i, nibble, bits)];
    both = static_cast<uint8_t>((both & ~(15 << shift_of(i))) | to << shift_of(i));
}

void rotate(const int8_t *code, const CodeSize &size, std::vector<int32_t> &rotated) {
    rotated.resize(std::max(size.bits, 2 * size.width));
    kernels::rotate(code, size.width, size.bits, rotated.data());
}

}  // namespace

float quantise(const float *vector, const CodeSize &size, int8_t *code) {
    int32_t most = 0,
            bits;  // positive floats compare as their bits do, and compilers vectorise the maximum of integers
    for (int64_t i = 0; i < size.key_size; i++) {
        std::memcpy(&bits, vector + i, 4);
        most = std::max(most, bits & 0x7fffffff);
    }
    float largest;
    std::memcpy(&largest, &most, 4);
    const float factor = largest > 0 ? 127.0f / largest : 0;
    for (int64_t i = 0; i < size.key_size; i++) code[i] = rounded(vector[i] * factor);
    std::memset(code + size.key_size, 0, size.width - size.key_size);
    return largest / 127.0f;
}

float quantise_normalised(const int32_t *sum, int64_t width, int8_t *code, double *length) {
    int32_t most = 0;
    int64_t square = 0;
    for (int64_t i = 0; i < width; i++) {
        most = std::max(most, std::abs(sum[i]));
        square += static_cast<int64_t>(sum[i]) * sum[i];
    }
    const float factor = most > 0 ? 127.0f / static_cast<float>(most) : 0;
    for (int64_t i = 0; i < width; i++) code[i] = rounded(static_cast<float>(sum[i]) * factor);
    const double root = std::sqrt(static_cast<double>(square));
    if (length) *length = root;
    return most > 0 ? static_cast<float>(most / 127.0 / root) : 0;
}

void quantise_residual(const float *vector, const CodeSize &size, const int8_t *code, float scale, int8_t *residual) {
    kernels::residual(vector, size.key_size, code, scale > 0 ? 256 / scale : 0, residual);
    std::memset(residual + size.key_size, 0, size.width - size.key_size);
}

void signs::set(uint8_t *signs, int64_t i, const CodeSize &size, const int8_t *code, std::vector<int32_t> &rotated) {
    rotate(code, size, rotated);
    for (int64_t nibble = 0; nibble < size.nibbles(); nibble++) {
        const int32_t *x = &rotated[4 * nibble];
        set_nibble(signs, i, nibble, size.bits, (x[0] > 0) | (x[1] > 0) << 1 | (x[2] > 0) << 2 | (x[3] > 0) << 3);
    }
}

void signs::copy(const uint8_t *from, int64_t i, uint8_t *to, int64_t j, int64_t bits) {
    for (int64_t nibble = 0; nibble < bits / 4; nibble++)
        set_nibble(to, j, nibble, bits, from[byte_of(i, nibble, bits)] >> shift_of(i) & 15);
}

int signs::limit_for(const uint8_t *distances, int64_t groups, int64_t step, double count) {
    int limit = 0;
    for (int most = 254; limit < most;) {
        const int middle = (limit + most) / 2;
        if (static_cast<double>(kernels::count(distances, groups, step, middle)) >= count)
            most = middle;
        else
            limit = middle + 1;
    }
    return limit;
}

int signs::Table::limit(const CodeSize &size, float similarity, float deviations) const {
    if (similarity <= -1) return 255;
    const float deviation = std::sqrt(std::max(1 - similarity * similarity, 0.0f) / static_cast<float>(size.bits));
    const float cost = static_cast<float>(total) / 2 * (1 - similarity + deviations * deviation) + 2;
    return static_cast<int>(std::min(cost, 255.0f));
}

void signs::Table::set(const CodeSize &size, const int8_t *code) {
    rotate(code, size, rotated);
    const auto sum = [&] {
        return std::accumulate(rotated.begin(), rotated.begin() + size.bits, 0,
                               [](int32_t a, int32_t b) { return a + std::abs(b); });
    };
    // Costs are summed in a byte that stops at 255. A code that is neither near nor far costs half of the total, and
    // must stay below.
    const float factor = (size.bits == 128 ? 240.0f : 400.0f) / static_cast<float>(std::max(sum(), 1));
    for (int64_t i = 0; i < size.bits; i++)
        rotated[i] = std::clamp(static_cast<int32_t>(static_cast<float>(rotated[i]) * factor), -15, 15);
    total = sum();
    // Which of the 16 values of a nibble have each bit, as masks: the loop below is then a vector of 16 bytes.
    static constexpr uint8_t HAS[4][16] = {{0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255},
                                           {0, 0, 255, 255, 0, 0, 255, 255, 0, 0, 255, 255, 0, 0, 255, 255},
                                           {0, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0, 255, 255, 255, 255},
                                           {0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255}};
    for (int64_t nibble = 0; nibble < size.nibbles(); nibble++) {
        uint8_t x[4], none = 0, here[16];
        for (int i = 0; i < 4; i++) {
            x[i] = static_cast<uint8_t>(rotated[4 * nibble + i]);
            none += static_cast<uint8_t>(std::max(rotated[4 * nibble + i], 0));
        }
        // A bit is 1 where the code's number is positive. A nibble of 0 costs all positive numbers of the query; each
        // bit takes the cost of a positive one back, or adds that of a negative one.
        for (int value = 0; value < 16; value++)
            here[value] = static_cast<uint8_t>(none - (x[0] & HAS[0][value]) - (x[1] & HAS[1][value]) -
                                               (x[2] & HAS[2][value]) - (x[3] & HAS[3][value]));
        std::memcpy(costs + 16 * nibble, here, 16);
    }
}
