// Every variant gives the bits of the plain one, on random input and on extremes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "../kernels/kernels.h"
#include "check.h"

namespace {

using namespace kernels;

template <typename T>
std::vector<T> random_ints(int64_t n, int low, int high) {
    std::vector<T> out(n);
    for (T &each : out) each = static_cast<T>(random_int(low, high));
    return out;
}

// Codes as an index makes them, or nothing but their extremes.
std::vector<int8_t> random_codes(int64_t n, bool extreme) {
    std::vector<int8_t> out = random_ints<int8_t>(n, -127, 127);
    if (extreme)
        for (int8_t &each : out) each = each < 0 ? -127 : 127;
    return out;
}

std::vector<float> random_floats(int64_t n) {
    std::vector<float> out(n);
    for (float &each : out) each = random_normal() * std::pow(10.0f, random_float(-6, 2));
    return out;
}

// Calls f with each table but the plain one, and the plain one.
template <typename F>
void each_variant(const F &f) {
    CHECK(use("plain"));
    const Table plain = table;
    for (const char *name : variants()) {
        CHECK(use(name));
        f(plain, table);
    }
}

template <typename T>
void check_equal(const std::vector<T> &a, const std::vector<T> &b, int64_t n) {
    CHECK(!std::memcmp(a.data(), b.data(), n * sizeof(T)));
}

// Codes of a segment no longer than what 16 bits can sum, as index/exact.cpp makes them.
void limit_length(int8_t *codes, int width, int largest) {
    for (int segment = 0; segment < width; segment += SEGMENT)
        for (int half = 0; half < 2; half++) {
            int square = 0;
            for (int i = segment; i < std::min(segment + SEGMENT, width); i++) {
                if (i % 4 / 2 != half) continue;
                if (std::abs(codes[i]) > largest) codes[i] = static_cast<int8_t>(codes[i] > 0 ? largest : -largest);
                square += codes[i] * codes[i];
                if (square > 181 * 181) {
                    square -= codes[i] * codes[i];
                    codes[i] = 0;
                }
            }
        }
}

void test_scan() {
    each_variant([](const Table &plain, const Table &table) {
        for (const int width : {8, 16, 56, 120, 128, 136, 256, 384, 1000})
            for (const int queries : {1, 2, 4})
                for (const bool extreme : {false, true}) {
                    const int count = STEP * static_cast<int>(random_int(1, 3)), slots = count * PANEL;
                    std::vector<uint8_t> codes(slots * width);
                    for (int slot = 0; slot < slots; slot++) {
                        std::vector<int8_t> key = random_codes(width, extreme);
                        limit_length(key.data(), width, 63);
                        for (int i = 0; i < width; i++)
                            codes[slot / PANEL * PANEL * width + i / 4 * 64 + slot % PANEL * 4 + i % 4] =
                                static_cast<uint8_t>(key[i] + OFFSET);
                    }
                    std::vector<float> inverse_scale(slots), residual(slots);
                    for (int i = 0; i < slots; i++) {
                        inverse_scale[i] = random_float(100, 400);
                        residual[i] = random_int(0, 9) ? random_float(0, 4) : -1e30f;
                    }
                    Tile tile{};
                    std::vector<int8_t> query[TILE];
                    std::vector<uint32_t> starts[TILE];
                    tile.queries = queries;
                    for (int q = 0; q < queries; q++) {
                        query[q] = random_codes(width, extreme);
                        limit_length(query[q].data(), width, 127);
                        for (int i = 0; i < width; i++) {
                            if (i % SEGMENT == 0) starts[q].push_back(0);
                            uint32_t &both = starts[q].back();
                            uint16_t sums[2] = {static_cast<uint16_t>(both), static_cast<uint16_t>(both >> 16)};
                            sums[i % 4 / 2] = static_cast<uint16_t>(sums[i % 4 / 2] - OFFSET * query[q][i]);
                            both = sums[0] | static_cast<uint32_t>(sums[1]) << 16;
                            tile.start[q] -= OFFSET * query[q][i];
                        }
                        tile.codes[q] = query[q].data();
                        tile.starts[q] = starts[q].data();
                        tile.threshold[q] = random_float(-60, 60);
                        tile.reach[q] = random_float(1, 200);
                    }
                    const Panels panels{codes.data(), inverse_scale.data(), residual.data(), count, width, nullptr, 0};
                    std::vector<int32_t> sums[2] = {std::vector<int32_t>(slots * TILE), std::vector<int32_t>(slots * TILE)};
                    std::vector<uint64_t> masks[2] = {std::vector<uint64_t>(count), std::vector<uint64_t>(count)};
                    auto *const first = reinterpret_cast<int32_t(*)[TILE][PANEL]>(sums[0].data());
                    if (random_int(0, 1)) {  // a threshold that slot 0 just reaches
                        std::fill(inverse_scale.begin(), inverse_scale.end(), 1.0f);
                        std::fill(residual.begin(), residual.end(), 0.0f);
                        plain.scan(panels, tile, first, masks[0].data());
                        for (int q = 0; q < queries; q++) tile.threshold[q] = static_cast<float>(first[0][q][0]);
                    }
                    for (int i = 0; i < 2; i++)
                        (i ? table : plain).scan(panels, tile, reinterpret_cast<int32_t(*)[TILE][PANEL]>(sums[i].data()),
                                                 masks[i].data());
                    CHECK(masks[0] == masks[1]);
                    if (inverse_scale[0] == 1.0f) CHECK(masks[0][0] & 1);
                    for (int p = 0; p < count; p++)
                        for (int q = 0; q < queries; q++) {
                            if (!(masks[0][p] >> (PANEL * q) & 0xFFFF)) continue;
                            const int64_t at = (p * TILE + q) * PANEL;
                            CHECK(!std::memcmp(&sums[0][at], &sums[1][at], PANEL * sizeof(int32_t)));
                        }
                }
    });
}

void test_dot() {
    each_variant([](const Table &plain, const Table &table) {
        for (int size = 0; size < 300; size++) {
            const std::vector<float> a = random_floats(size), b = random_floats(size);
            const float expected = plain.dot(a.data(), b.data(), size), got = table.dot(a.data(), b.data(), size);
            CHECK(!std::memcmp(&expected, &got, sizeof got));
        }
    });
}

void test_dots() {
    each_variant([](const Table &plain, const Table &table) {
        for (const int64_t width : {32, 64, 96, 128, 256, 512})
            for (const int64_t n : {1, 2, 5, 32, 33, 70})
                for (const int largest : {1, 1000, 32767}) {  // sums of the last wrap around, in any order to the same
                    const auto query = random_ints<int16_t>(width, -largest, largest);
                    auto codes = random_ints<int16_t>(n * width, -largest, largest);
                    std::fill_n(codes.begin(), 32, static_cast<int16_t>(largest));
                    const auto ids = random_ints<int32_t>(n, 0, static_cast<int>(n - 1));
                    std::vector<int32_t> expected(n + 3), got(n + 3);
                    plain.dots(query.data(), codes.data(), ids.data(), n, width, expected.data());
                    table.dots(query.data(), codes.data(), ids.data(), n, width, got.data());
                    check_equal(expected, got, n);
                }
    });
}

void test_distances() {
    each_variant([](const Table &plain, const Table &table) {
        for (const int64_t nibbles : {32, 64})
            for (int queries = 1; queries <= TILE; queries++)
                for (const int64_t groups : {1, 2, 7})
                    for (const int largest : {6, 30, 255}) {  // mostly below 255, about there, mostly cut off
                        const auto signs = random_ints<uint8_t>(groups * 16 * nibbles, 0, 255);
                        const auto costs = random_ints<uint8_t>(TILE * 16 * nibbles, 0, largest);
                        std::vector<uint8_t> out[2];
                        for (int i = 0; i < 2; i++) {
                            out[i].resize(TILE * groups * GROUP);
                            const uint8_t *of[TILE];
                            uint8_t *to[TILE];
                            for (int q = 0; q < TILE; q++) {
                                of[q] = costs.data() + q * 16 * nibbles;
                                to[q] = out[i].data() + q * groups * GROUP;
                            }
                            (i ? table : plain).distances(of, queries, signs.data(), groups, nibbles, to);
                        }
                        CHECK(out[0] == out[1]);
                    }
        for (const int64_t groups : {1, 3, 300, 1000}) {
            const auto distances = random_ints<uint8_t>(groups * GROUP, 0, random_int(0, 1) ? 255 : 9);
            for (const int limit : {0, 3, 128, 254, 255}) {
                for (const int64_t step : {1, 2, 5}) {
                    const int64_t expected = plain.count(distances.data(), groups, step, limit);
                    CHECK(table.count(distances.data(), groups, step, limit) == expected);
                }
                const int64_t n = groups * GROUP - random_int(0, 31);
                std::vector<int32_t> expected(n + 2), got(n + 2);
                const int64_t found = plain.within(distances.data(), n, limit, expected.data());
                CHECK(found == table.within(distances.data(), n, limit, got.data()));
                check_equal(expected, got, found);
            }
        }
    });
}

// Also that it is a rotation: it keeps lengths.
void test_rotate() {
    each_variant([](const Table &plain, const Table &table) {
        for (const int64_t width : {32, 64, 96, 128, 160, 512})
            for (const int64_t bits : {128, 256, 1024}) {
                const auto code = random_ints<int16_t>(width, -32767, 32767);
                int64_t size = 32, length = 0, rotated = 0;
                while (size < width) size *= 2;
                std::vector<int32_t> expected(bits + 2 * size), got(bits + 2 * size);
                plain.rotate(code.data(), width, bits, expected.data());
                table.rotate(code.data(), width, bits, got.data());
                check_equal(expected, got, bits);
                if (size > bits) continue;
                for (const int64_t x : code) length += x * x;
                for (int64_t i = 0; i < size; i++) rotated += int64_t{got[i]} * got[i];
                CHECK(rotated == length * size);
            }
    });
}

}  // namespace

int main() {
    CHECK(!use("no such variant"));
    for (const char *name : variants()) std::printf("%s ", name);
    test_scan();
    test_dot();
    test_dots();
    test_distances();
    test_rotate();
}
