#include "margin.h"

#include <algorithm>

#include "kernels.h"

Loss margin_loss(const Slots &memory, const Asked &asked, const int64_t *targets, const bool *mask,
                 const Chains *chains, float margin, const Kept &kept) {
    const auto size = static_cast<int>(memory.key_size);
    Loss total{0, 0, 0};
    for (int64_t row = 0; row < asked.n; row++) {
        const int64_t *values = asked.values + row * asked.k;
        int64_t right = -1, wrong = -1;
        for (int64_t j = 0; j < asked.k && (right < 0 || wrong < 0) && values[j] >= 0; j++) {  // there are none after -1
            int64_t &first = values[j] == targets[row] ? right : wrong;
            if (first < 0) first = j;
        }
        if (kept.columns) {
            kept.columns[2 * row] = right;
            kept.columns[2 * row + 1] = wrong;
            kept.slopes[row] = 0;
        }
        if (wrong < 0 || (mask && !mask[row])) continue;
        const float *similarities = asked.similarities + row * asked.k;
        float positive;
        if (right >= 0) {
            positive = similarities[right];
        } else {
            if (!chains) return {0, 0, -1};
            const int64_t slot = newest(*chains, memory.values, memory.sources, targets[row], asked.exclude ? asked.exclude[row] : -1);
            if (slot < 0) continue;
            const float *key = memory.keys + slot * size;
            if (kept.columns) std::copy(key, key + size, kept.positives + row * size);
            positive = kernels().dot(asked.queries + row * size, key, size);
            total.newest++;
        }
        const float loss = similarities[wrong] - positive + margin;
        total.count++;
        if (loss <= 0) continue;
        total.sum += loss;
        if (kept.columns) kept.slopes[row] = 1;
    }
    return total;
}

void margin_gradient(const Kept &kept, int64_t n, int64_t k, int key_size, float by, float *similarities,
                     float *queries) {
    for (int64_t row = 0; row < n; row++) {
        if (kept.slopes[row] == 0) continue;
        const int64_t right = kept.columns[2 * row], wrong = kept.columns[2 * row + 1];
        similarities[row * k + wrong] = by;
        if (right >= 0) {
            similarities[row * k + right] = -by;
        } else {
            for (int i = 0; i < key_size; i++) queries[row * key_size + i] = -by * kept.positives[row * key_size + i];
        }
    }
}
