// What AVX2 and AVX-512 share of the kernels for sign codes. Included by each within its namespace, where TARGET is its
// instruction set and distances_of<QUERIES, NIBBLES>(costs, signs, __m256i (&out)[QUERIES]) compares a group of codes.

// Which of 32 distances are not above the limits: bytes of ones.
TARGET INLINE __m256i not_above(__m256i distances, __m256i limits) {
    return _mm256_cmpeq_epi8(_mm256_min_epu8(distances, limits), distances);
}

template <int QUERIES, int NIBBLES>
TARGET void distances_in(const uint8_t *const *costs, const uint8_t *signs, int64_t groups, uint8_t *const *out) {
    for (int64_t group = 0; group < groups; group++, signs += 16 * NIBBLES) {
        __m256i here[QUERIES];
        distances_of<QUERIES, NIBBLES>(costs, signs, here);
        UNROLL for (int query = 0; query < QUERIES; query++)
            _mm256_storeu_si256(reinterpret_cast<__m256i *>(out[query] + group * GROUP), here[query]);
    }
}

TARGET void distances(const uint8_t *const *costs, int queries, const uint8_t *signs, int64_t groups, int64_t nibbles,
                      uint8_t *const *out) {
    static constexpr decltype(&distances_in<1, 16>) in[3][TILE] = {
        {distances_in<1, 16>, distances_in<2, 16>, distances_in<3, 16>, distances_in<4, 16>},
        {distances_in<1, 32>, distances_in<2, 32>, distances_in<3, 32>, distances_in<4, 32>},
        {distances_in<1, 64>, distances_in<2, 64>, distances_in<3, 64>, distances_in<4, 64>}};
    in[nibbles / 32][queries - 1](costs, signs, groups, out);
}

template <int QUERIES, int NIBBLES>
TARGET void near_groups_in(const uint8_t *const *costs, const uint8_t *signs, int64_t groups, const uint8_t *limits,
                           int32_t *const *out, int64_t *count) {
    for (int64_t group = 0; group < groups; group++, signs += 16 * NIBBLES) {
        __m256i here[QUERIES];
        distances_of<QUERIES, NIBBLES / 2>(costs, signs, here);
        UNROLL for (int query = 0; query < QUERIES; query++) {
            // Without a branch, which would be mispredicted often.
            out[query][count[query]] = static_cast<int32_t>(group);
            const __m256i limit = _mm256_set1_epi8(static_cast<char>(limits[query]));
            count[query] += _mm256_movemask_epi8(not_above(here[query], limit)) != 0;
        }
    }
}

TARGET void near_groups(const uint8_t *const *costs, int queries, const uint8_t *signs, int64_t groups, int64_t nibbles,
                        const uint8_t *limits, int32_t *const *out, int64_t *count) {
    static constexpr decltype(&near_groups_in<1, 32>) in[2][TILE] = {
        {near_groups_in<1, 32>, near_groups_in<2, 32>, near_groups_in<3, 32>, near_groups_in<4, 32>},
        {near_groups_in<1, 64>, near_groups_in<2, 64>, near_groups_in<3, 64>, near_groups_in<4, 64>}};
    in[nibbles / 64][queries - 1](costs, signs, groups, limits, out, count);
}
