#include "loss.h"

#include <algorithm>
#include <stdexcept>

#include "../kernels/kernels.h"

float margin_loss(const Slots &memory, const Book &book, const Found &found, const int64_t *targets, const bool *mask,
                  float margin, float *gradient) {
    const int64_t size = memory.key_size, k = found.k;
    double sum = 0;
    int64_t count = 0;
    if (gradient) std::fill_n(gradient, found.n * size, 0.0f);
    for (int64_t row = 0; row < found.n; row++) {
        const int64_t *values = found.values + row * k, *slots = found.slots + row * k;
        const float *similarities = found.similarities + row * k, *unit = found.units + row * size;
        int64_t right = -1, wrong = -1;
        for (int64_t j = 0; j < k && (right < 0 || wrong < 0) && values[j] >= 0; j++) {  // there are none after -1
            int64_t &first = values[j] == targets[row] ? right : wrong;
            if (first < 0) first = j;
        }
        if (wrong < 0 || (mask && !mask[row])) continue;
        // Where no neighbour is right, the newest slot with the right value takes its place.
        const int64_t positive = right >= 0 ? slots[right] : book.newest(memory, targets[row], found.queries().excluded(row));
        if (positive < 0) continue;
        const int64_t negative = slots[wrong];
        if (positive >= memory.capacity || negative < 0 || negative >= memory.capacity) throw std::out_of_range("slot");
        const float to_positive =
            right >= 0 ? similarities[right] : kernels::dot(unit, memory.key(positive), static_cast<int>(size));
        const float loss = similarities[wrong] - to_positive + margin;
        count++;
        if (loss <= 0) continue;
        sum += loss;
        if (!gradient) continue;
        float *const its_gradient = gradient + row * size;
        for (int64_t i = 0; i < size; i++) its_gradient[i] = memory.key(negative)[i] - memory.key(positive)[i];
        const float along = kernels::dot(unit, its_gradient, static_cast<int>(size));
        for (int64_t i = 0; i < size; i++) its_gradient[i] = (its_gradient[i] - along * unit[i]) * found.inverse_lengths[row];
    }
    if (count == 0) return 0;
    const float share = 1 / static_cast<float>(count);
    for (int64_t i = 0; gradient && i < found.n * size; i++) gradient[i] *= share;
    return static_cast<float>(sum / static_cast<double>(count));
}
