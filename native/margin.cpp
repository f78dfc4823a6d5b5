#include "margin.h"

#include <algorithm>

#include "kernels.h"

void first_right_and_wrong(const int64_t *values, const int64_t *targets, int64_t n, int64_t k, int64_t *columns) {
    for (int64_t row = 0; row < n; row++) {
        int64_t right = -1, wrong = -1;
        for (int64_t j = 0; j < k && (right < 0 || wrong < 0); j++) {
            const int64_t value = values[row * k + j];
            if (value == targets[row]) {
                if (right < 0) right = j;
            } else if (value >= 0 && wrong < 0) {
                wrong = j;
            }
        }
        columns[2 * row] = right;
        columns[2 * row + 1] = wrong;
    }
}

Total margin_loss(const Margin &margin, const float *queries, const float *keys, float alpha, float *slopes,
                  float *positives) {
    const int size = margin.key_size;
    Total total{0, 0};
    for (int64_t row = 0; row < margin.n; row++) {
        slopes[row] = 0;
        const float *similarities = margin.similarities + row * margin.k;
        const int64_t right = margin.columns[2 * row], wrong = margin.columns[2 * row + 1];
        if (wrong < 0 || (margin.mask && !margin.mask[row])) continue;
        float positive;
        if (right >= 0) {
            positive = similarities[right];
        } else if (margin.newest && margin.newest[row] >= 0) {
            const float *key = keys + margin.newest[row] * size;
            std::copy(key, key + size, positives + row * size);
            positive = kernels().dot(queries + row * size, key, size);
        } else {
            continue;
        }
        const float loss = similarities[wrong] - positive + alpha;
        total.count++;
        if (loss <= 0) continue;
        total.sum += loss;
        slopes[row] = 1;
    }
    return total;
}

void margin_gradient(const Margin &margin, const float *slopes, const float *positives, float by, float *similarities,
                     float *queries) {
    for (int64_t row = 0; row < margin.n; row++) {
        if (slopes[row] == 0) continue;
        const int64_t right = margin.columns[2 * row], wrong = margin.columns[2 * row + 1];
        similarities[row * margin.k + wrong] = by;
        if (right >= 0) {
            similarities[row * margin.k + right] = -by;
        } else {
            for (int i = 0; i < margin.key_size; i++)
                queries[row * margin.key_size + i] = -by * positives[row * margin.key_size + i];
        }
    }
}
