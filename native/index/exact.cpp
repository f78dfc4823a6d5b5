#include "exact.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "../kernels/kernels.h"
#include "../memory/parallel.h"

// docs/exact-search.md has the proof that the result is exact, and that sums in 16 bits are right. In short: a key k is copied
// as codes c and a scale s, with a residual r = k - s c; a query q as codes b and a scale t, with a residual p. No score, q.k
// in float32, is more than
//     bound = s t (b.c) + |q| |r| + rest,    rest = (|p| + rounding (|q| + |p|)) longest,
// where `longest` is the greatest |k| or |s c|. If k keys are known to reach a score T, a key with bound < T is not among the k
// best. Divided by s t, this is what the kernels test:
//     b.c >= (T - rest) / t * (1 / s) - (|q| / t) * (|r| / s).
// T starts from a guess. If k of the keys with bound >= T reach it, the k best are among them; if not, that query is scanned
// again with a T that k scored keys do reach. T rises during a scan, but only to what k scored keys reach. Keys that are
// equally similar at the k-th place all have bound >= T: all of them are collected, and the newest are kept.

using namespace kernels;

namespace {

constexpr double LENGTH = 177;    // of the codes of half a segment: sums of 64 products then fit into 16 bits
constexpr float EMPTY = -1e30f;   // a residual that no threshold can overcome: the slot is never found
constexpr float LOWEST = -1e20f;  // a threshold that every filled slot reaches
constexpr int KEY_CODE = 63, QUERY_CODE = 127;  // the largest codes

constexpr int SHARE = 32;                       // one in so many keys is in the sample: 3% more to read
constexpr int64_t BLOCK = 1 << 14;              // bytes of codes that all queries pass over: they stay in the L1 cache
constexpr int64_t BLOCKS_A_TASK = 8;            // about 4 us for one query: few enough to share the work evenly
constexpr int64_t PRODUCTS_A_THREAD = 1 << 22;  // about 0.1 ms: less is not worth one more thread
constexpr int64_t KEYS_A_TASK = 1024;           // copied at once, about 0.5 ms
constexpr int64_t MOST_QUERIES = 128;           // at once
constexpr int64_t MOST_CANDIDATES = 1 << 22;    // at once, 32 MB: fewer queries where k is large

struct Candidate {
    float score;  // or its bound
    int32_t slot;
};

struct Encoded {
    double scale, residual, length, coded;  // s, |r|, |k|, |s c|; the lengths are a little too long rather than too short
};

// Rounds a vector to codes that are no greater than `largest`.
Encoded encode(const float *vector, int64_t size, int largest, int8_t *codes) {
    float most = 0;
    double square = 0, longest_part = 0;
    for (int64_t segment = 0; segment < size; segment += SEGMENT) {
        double part[4] = {};  // of each four numbers, AVX2 adds the first two to one sum and the last two to another
        const int64_t end = std::min(segment + SEGMENT, size);
        for (int64_t i = segment; i < end; i++) {
            most = std::max(most, std::abs(vector[i]));
            part[i % 4] += double{vector[i]} * vector[i];
        }
        longest_part = std::max({longest_part, part[0] + part[1], part[2] + part[3]});
        square += part[0] + part[1] + part[2] + part[3];
    }
    Encoded result{};
    const double scale = std::max(double{most} / largest, std::sqrt(longest_part) / LENGTH);
    result.scale = scale > 1e-30 ? float(scale) : 1.0f;
    const float inverse = float(1 / result.scale);
    double lost[4] = {};
    int64_t coded = 0;
    for (int64_t i = 0; i < size; i++) {
        const float exact = vector[i] * inverse;
        const int code = int(exact + std::copysign(0.5f, exact));
        const double left = vector[i] - code * result.scale;
        codes[i] = int8_t(code);
        coded += code * code;
        lost[i % 4] += left * left;
    }
    constexpr double up = 1 + 1e-6;
    result.residual = std::sqrt(lost[0] + lost[1] + lost[2] + lost[3]) * up;
    result.length = std::sqrt(square) * up;
    result.coded = std::sqrt(double(coded)) * result.scale * up;
    return result;
}

// In a cache line of its own, since each thread writes to one.
struct alignas(64) Candidates : std::vector<Candidate> {};

bool larger(const Candidate &a, const Candidate &b) { return a.score > b.score; }

struct Query {
    const float *vector;
    int64_t row, excluded;         // excluded: the source whose slots it must not find, or -1
    std::vector<int8_t> codes;     // (width,)
    std::vector<uint32_t> starts;  // (segments,), see kernels::Tile
    int32_t start = 0;
    double scale, length, rest;
    std::atomic<float> threshold{LOWEST};
    float guess = LOWEST;
    std::vector<Candidates> candidates;  // of each thread

    void set(const Found &found, int64_t of, int64_t width, double longest) {
        row = of;
        vector = found.unit(row);
        excluded = found.excluded(row);
        codes.assign(width, 0);
        const Encoded made = encode(vector, found.key_size, QUERY_CODE, codes.data());
        for (int64_t segment = 0; segment < width; segment += SEGMENT) {
            int sums[2] = {};
            const int64_t end = std::min(segment + SEGMENT, width);
            for (int64_t i = segment; i < end; i++) sums[i % 4 / 2] -= OFFSET * codes[i];
            starts.push_back(uint32_t(uint16_t(sums[0])) | uint32_t(uint16_t(sums[1])) << 16);
            start += sums[0] + sums[1];
        }
        scale = made.scale;
        length = std::max(made.length, scale);  // of a zero query too, or it would reach empty slots
        const double rounding = double(found.key_size / 32 + 8) * 0x1p-23 + 4e-6;
        rest = (made.residual + rounding * (made.length + made.residual)) * longest;
    }

    float bound(int sum, float inverse_scale, float residual) const {
        return float((scale * sum + length * residual) / inverse_scale + rest);
    }

    void raise(float score) {
        float now = threshold.load(std::memory_order_relaxed);
        while (score > now && !threshold.compare_exchange_weak(now, score, std::memory_order_relaxed)) continue;
    }

    // What all threads have collected.
    std::vector<Candidate> &merged() {
        std::vector<Candidate> &all = candidates[0];
        for (size_t i = 1; i < candidates.size(); i++) all.insert(all.end(), candidates[i].begin(), candidates[i].end());
        return all;
    }
};

}  // namespace

// Some queries at a time, and all that it takes to compare them with the keys.
class ExactIndex::Search {
  public:
    Search(const ExactIndex &index, const Slots &memory, Found &found, float inverse_temperature, int threads)
        : index_(index), memory_(memory), found_(found), inverse_temperature_(inverse_temperature), threads_(threads),
          k_(std::min(found.k, memory.used)), width_(int(index.width())),
          panels_((memory.used + PANEL * STEP - 1) / (PANEL * STEP) * STEP), room_(std::max<size_t>(8 * k_, 1024)),
          rankings_(threads) {}

    // How many queries may be asked at once.
    int64_t batch() const { return std::clamp<int64_t>(MOST_CANDIDATES / int64_t(threads_ * room_), 1, MOST_QUERIES); }

    void run(std::vector<Query *> queries) {
        const int block = int(std::max<int64_t>(BLOCK / (PANEL * width_) / STEP * STEP, STEP));
        for (guess(queries); !queries.empty(); queries = finish(queries))
            scan(queries, block, block, room_, [&](auto &list, const Query &query) { return keep_best(list, query); });
    }

  private:
    // Sets each query's threshold to a score that probably more than k keys reach, from a sample of the keys: every
    // SHARE-th step of panels.
    void guess(const std::vector<Query *> &queries) {
        const int64_t stride = SHARE * STEP, sampled = (panels_ + stride - 1) / stride * STEP * PANEL;
        if (sampled < 256) return;
        // So many of the sample's bounds should be reached by 2.5 k of all keys; at least 8, or chance would decide.
        const int64_t rank = std::max(5 * k_ * sampled / (2 * memory_.used), std::min<int64_t>(k_, 8));
        if (4 * rank > sampled) return;
        scan(queries, STEP, stride, 8 * rank, [&](auto &list, const Query &) { return keep_greatest(list, rank).score; });
        for (Query *query : queries) {
            std::vector<Candidate> &list = query->merged();
            query->threshold = LOWEST;
            if (int64_t(list.size()) < rank) continue;
            // Without what the bound adds, which depends on the key.
            const auto [bound, slot] = keep_greatest(list, rank);
            query->guess = bound - query->bound(0, index_.inverse_scale_[slot], index_.residual_[slot]);
            query->threshold = query->guess;
        }
    }

    // Collects the slots whose bound reaches their query's threshold, in blocks of so many panels, one every `stride`. A
    // list of `room` candidates is cut by drop(list, query), which returns the threshold from then on.
    template <typename Drop>
    void scan(const std::vector<Query *> &queries, int block, int64_t stride, size_t room, const Drop &drop) {
        const int64_t tiles = (int64_t(queries.size()) + TILE - 1) / TILE, task_stride = BLOCKS_A_TASK * stride;
        for (Query *query : queries) query->candidates.assign(threads_, {});
        parallel((panels_ + task_stride - 1) / task_stride, threads_, [&](int64_t task, int thread) {
            std::vector<int32_t> all_sums(block * TILE * PANEL);
            auto *const sums = reinterpret_cast<int32_t(*)[TILE][PANEL]>(all_sums.data());
            std::vector<uint64_t> masks(block);
            std::vector<Tile> all;
            for (int64_t t = 0; t < tiles; t++) all.push_back(tile(queries, t * TILE));
            const int64_t end = std::min((task + 1) * task_stride, panels_);
            for (int64_t panel = task * task_stride; panel < end; panel += stride) {
                Panels here = panels(panel, int(std::min<int64_t>(block, end - panel)));
                here.ahead = reinterpret_cast<const char *>(here.codes + stride * PANEL * width_);
                // Each tile fetches its share of the next block.
                here.ahead_bytes = panel + stride < end ? int(block * PANEL * width_ / tiles) : 0;
                for (int64_t t = 0; t < tiles; t++, here.ahead += here.ahead_bytes) {
                    kernels::scan(here, all[t], sums, masks.data());
                    for (int p = 0; p < here.count; p++)
                        for (uint64_t mask = masks[p]; mask; mask &= mask - 1) {
                            const int bit = __builtin_ctzll(mask), q = bit / PANEL, s = bit % PANEL;
                            Query &query = *queries[t * TILE + q];
                            Candidates &list = query.candidates[thread];
                            collect((panel + p) * PANEL + s, sums[p][q][s], query, list);
                            if (list.size() >= room) query.raise(drop(list, query));
                        }
                }
            }
        });
    }

    void collect(int64_t slot, int sum, const Query &query, Candidates &list) const {
        if (memory_.is_excluded(slot, query.excluded)) return;
        const float bound = query.bound(sum, index_.inverse_scale_[slot], index_.residual_[slot]);
        if (bound < query.threshold.load(std::memory_order_relaxed)) return;  // it rose meanwhile
        list.push_back({bound, int32_t(slot)});
    }

    // Scores the candidates and writes the neighbours. Returns the queries whose guess was wrong; those now have a
    // threshold that is right.
    std::vector<Query *> finish(const std::vector<Query *> &queries) {
        std::vector<char> wrong(queries.size());
        parallel(queries.size(), threads_, [&](int64_t i, int thread) {
            Query &query = *queries[i];
            std::vector<Candidate> &list = query.merged();
            score(list, query);
            auto reaches = [&](const Candidate &candidate) { return candidate.score >= query.guess; };
            if (query.guess > LOWEST && std::count_if(list.begin(), list.end(), reaches) < k_) {
                wrong[i] = true;
                query.guess = LOWEST;
                query.threshold = int64_t(list.size()) < k_ ? LOWEST : keep_greatest(list, k_).score;
                return;
            }
            Ranking &ranking = rankings_[thread];
            ranking.resize(0);
            for (const Candidate &each : list) ranking.add(each.slot, each.score);
            found_.set(memory_, query.row, ranking, inverse_temperature_);
        });
        std::vector<Query *> again;
        for (size_t i = 0; i < queries.size(); i++)
            if (wrong[i]) again.push_back(queries[i]);
        return again;
    }

    // Leaves the `count` greatest, the least of them last, and returns that.
    static Candidate keep_greatest(std::vector<Candidate> &list, int64_t count) {
        std::nth_element(list.begin(), list.begin() + (count - 1), list.end(), larger);
        list.resize(count);
        return list.back();
    }

    // Leaves the k best of a list, scored, of equals the newest; returns the least score.
    float keep_best(std::vector<Candidate> &list, const Query &query) const {
        score(list, query);
        std::nth_element(list.begin(), list.begin() + (k_ - 1), list.end(), [&](const Candidate &a, const Candidate &b) {
            return a.score != b.score ? a.score > b.score : memory_.newer(a.slot, b.slot);
        });
        list.resize(k_);
        return list.back().score;
    }

    // Scores what could be among the k best of a list, and drops the others.
    void score(std::vector<Candidate> &list, const Query &query) const {
        constexpr int AHEAD = 8;  // keys that are fetched ahead
        const auto size = int(memory_.key_size);
        auto score_all = [&](std::vector<Candidate>::iterator from, std::vector<Candidate>::iterator to) {
            for (auto candidate = from; candidate != to; ++candidate) {
                if (to - candidate > AHEAD)
                    for (int i = 0; i < size; i += 16) __builtin_prefetch(memory_.key(candidate[AHEAD].slot) + i);
                candidate->score = kernels::dot(query.vector, memory_.key(candidate->slot), size);
            }
        };
        if (int64_t(list.size()) <= k_) return score_all(list.begin(), list.end());
        // The k of the greatest bounds first: what cannot reach the worst of them needs no score.
        const auto middle = list.begin() + k_;
        std::nth_element(list.begin(), middle - 1, list.end(), larger);
        score_all(list.begin(), middle);
        const float least = std::max_element(list.begin(), middle, larger)->score;
        const auto end = std::partition(middle, list.end(), [&](const Candidate &c) { return c.score >= least; });
        score_all(middle, end);
        list.erase(end, list.end());
    }

    // TILE queries from this one on; the last tile repeats the last query, which then reaches nothing.
    static Tile tile(const std::vector<Query *> &queries, int64_t first) {
        const int64_t left = int64_t(queries.size()) - first;
        Tile tile{};
        tile.queries = left >= 3 ? 4 : int(left);
        for (int q = 0; q < tile.queries; q++) {
            const Query &query = *queries[first + std::min<int64_t>(q, left - 1)];
            tile.codes[q] = query.codes.data();
            tile.starts[q] = query.starts.data();
            tile.start[q] = query.start;
            const float threshold = query.threshold.load(std::memory_order_relaxed);
            tile.threshold[q] = q < left ? float((threshold - query.rest) / query.scale) : -LOWEST;
            tile.reach[q] = float(query.length / query.scale);
        }
        return tile;
    }

    Panels panels(int64_t first, int count) const {
        return {index_.codes_.data() + first * PANEL * width_, index_.inverse_scale_.data() + first * PANEL,
                index_.residual_.data() + first * PANEL, count, width_, nullptr, 0};
    }

    const ExactIndex &index_;
    const Slots &memory_;
    Found &found_;
    const float inverse_temperature_;
    const int threads_;
    const int64_t k_;
    const int width_;
    const int64_t panels_;
    const size_t room_;  // candidates of a query and a thread that are kept before the worst are dropped
    std::vector<Ranking> rankings_;  // of each thread
};

ExactIndex::ExactIndex(int64_t key_size, int64_t capacity) : key_size_(key_size), capacity_(capacity) {
    if (key_size < 1 || key_size > LONGEST_KEY)
        throw std::invalid_argument("An exact index has keys of 1 to " + std::to_string(LONGEST_KEY) + " numbers, not of " +
                                    std::to_string(key_size) + ".");
    if (capacity < 0 || capacity > INT32_MAX - PANEL * STEP)
        throw std::invalid_argument("An exact index has room for 0 to 2^31 - 65 slots, not for " + std::to_string(capacity) +
                                    ".");
}

void ExactIndex::release() {
    codes_ = {};
    inverse_scale_ = {};
    residual_ = {};
}

// Returns the greatest length of the key, copied or not.
float ExactIndex::copy_key(const Slots &memory, int64_t slot, int8_t *room) {
    const Encoded made = encode(memory.key(slot), key_size_, KEY_CODE, room);
    uint8_t *const codes = codes_.data() + slot / PANEL * PANEL * width() + slot % PANEL * 4;
    for (int64_t i = 0; i < width(); i += 4)
        for (int64_t j = 0; j < 4; j++) codes[i * PANEL + j] = uint8_t(room[i + j] + OFFSET);
    inverse_scale_[slot] = float(1 / made.scale);
    residual_[slot] = memory.values[slot] < 0 ? EMPTY : float(made.residual / made.scale);
    return float(std::max(made.length, made.coded));
}

void ExactIndex::change(const Slots &memory, const int64_t *slots, int64_t n, const Found *, int threads) {
    if (!ready()) return rebuild(memory, threads);
    std::vector<float> longest((n + KEYS_A_TASK - 1) / KEYS_A_TASK, longest_);
    parallel(longest.size(), threads, [&](int64_t task, int) {
        std::vector<int8_t> room(width());
        for (int64_t i = task * KEYS_A_TASK; i < std::min(n, (task + 1) * KEYS_A_TASK); i++)
            longest[task] = std::max(longest[task], copy_key(memory, slots ? slots[i] : i, room.data()));
    });
    for (const float each : longest) longest_ = std::max(longest_, each);
}

void ExactIndex::rebuild(const Slots &memory, int threads) {
    constexpr int64_t WHOLE = PANEL * STEP;
    const int64_t slots = std::max((capacity_ + WHOLE - 1) / WHOLE * WHOLE, WHOLE);
    if (!ready()) {
        inverse_scale_ = Array<float>(slots);
        residual_ = Array<float>(slots);
        codes_ = Array<uint8_t>(slots * width());
    }
    std::fill(inverse_scale_.begin(), inverse_scale_.end(), 1.0f);
    std::fill(residual_.begin(), residual_.end(), EMPTY);
    longest_ = 0;
    change(memory, nullptr, memory.used, nullptr, threads);
}

void ExactIndex::find(const Slots &memory, float inverse_temperature, int threads, Found &found) const {
    if (!ready()) throw std::logic_error("An exact index finds nothing before it was rebuilt.");
    threads = worth(found.n * memory.used * key_size_, PRODUCTS_A_THREAD, threads);
    Search search(*this, memory, found, inverse_temperature, threads);
    for (int64_t start = 0; start < found.n; start += search.batch()) {
        std::vector<Query> made(std::min(search.batch(), found.n - start));
        std::vector<Query *> all;
        for (Query &query : made) {
            query.set(found, start + int64_t(all.size()), width(), longest_);
            all.push_back(&query);
        }
        search.run(all);
    }
}
