#include "exact.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <vector>

#include "kernels.h"
#include "parallel.h"

// Why the result is exact
// -----------------------
// A key k is copied as codes c, small integers, and a scale s; a query q as codes b and a scale t:
//     k = s c + r,    q = t b + p        (r and p are what was lost)
// Then
//     q.k = q.(s c) + q.r = s t (b.c) + s (p.c) + q.r
// and by Cauchy-Schwarz
//     q.k <= s t (b.c) + |p| |s c| + |q| |r|.
// b.c is an integer sum without error; |r| is stored for each key, |p| is known for each query, and |s c| <= longest.
// The score f that decides is q.k in float32, summed in a fixed order: each of the key_size terms meets at most
// key_size / 32 + 8 roundings, so |f - q.k| <= (key_size / 32 + 8) 2^-24 |q| |k|, for which `rounding` takes twice as
// much, and |k| <= longest. So f is at most
//     bound = s t (b.c) + |q| |r| + rest,    rest = (|p| + rounding (|q| + |p|)) longest,
// where `rounding` also covers the few float operations of this formula itself (4e-6, they err by 2e-7 each). Whenever
// T is a score that k keys reach, a key with bound < T is not among the k best. Divided by s t, this is what the
// kernels test:
//     b.c >= (T - rest) / t * (1 / s) - (|q| / t) * (|r| / s).
//
// T starts from a guess, made from a sample of the keys. When all keys with bound >= T are scored and k of them reach
// T, the guess was right and the k best are among them. Otherwise that query is scanned again with a T that is known
// to be right. As T rises meanwhile, only to what k scored keys reach, nothing that belongs to the k best is lost.
//
// Why the sums of the kernels are right
// -------------------------------------
// A kernel sums up products of codes in 16 bits, modulo 2^16, half a segment in each sum: 64 numbers. The scales are
// such that the codes of 64 such numbers are no longer than 177 before they are rounded, and so no longer than
// 177 + 64^(1/2) / 2 = 181 after: their product is at most 181^2 = 32761 < 2^15, and the sum modulo 2^16 is the sum.

namespace {

constexpr double LENGTH = 177.0;
constexpr float EMPTY = -1e30f;     // a residual that no threshold can overcome
constexpr float LOWEST = -1e20f;    // a threshold that every filled slot reaches

struct Candidate {
    float score;    // or its bound
    int32_t slot;
};

// By decreasing score, and by slot among equals, so that the result does not depend on who found what first.
bool better(const Candidate &a, const Candidate &b) {
    return a.score > b.score || (a.score == b.score && a.slot < b.slot);
}

int width_of(int key_size) { return (key_size + 7) / 8 * 8; }

struct Codes {
    double scale, residual, length, coded;  // s, |r|, |k|, |s c|
};

// Rounds a vector to whole numbers, none greater than `largest`; put(i, code) takes them.
template <typename Put>
Codes encode(const float *vector, int size, int largest, const Put &put) {
    double most = 0, length = 0, part[2] = {}, longest_part = 0;
    for (int i = 0; i < size; i++) {
        double x = vector[i];
        most = std::max(most, std::abs(x));
        length += x * x;
        if (i % SEGMENT == 0) part[0] = part[1] = 0;
        double &sum = part[i % 4 / 2];  // the 16 bit sum that the kernels add this number to
        longest_part = std::max(longest_part, sum += x * x);
    }
    Codes result{};
    double scale = std::max(most / largest, std::sqrt(longest_part) / LENGTH);
    result.scale = scale > 1e-30 ? float(scale) : 1.0f;
    double residual = 0, coded = 0;
    for (int i = 0; i < size; i++) {
        double code = std::nearbyint(vector[i] / result.scale), lost = vector[i] - code * result.scale;
        put(i, int(code));
        residual += lost * lost;
        coded += code * code;
    }
    // A little too long is safe, a little too short is not.
    constexpr double up = 1 + 1e-6;
    result.residual = std::sqrt(residual) * up;
    result.length = std::sqrt(length) * up;
    result.coded = std::sqrt(coded) * result.scale * up;
    return result;
}

struct Query {
    const float *vector;
    int64_t source;                     // whose slots it must not find, or -1
    std::vector<int8_t> codes;          // (width / 4, 8, 4), as a Tile has them
    std::vector<uint32_t> starts;       // (segments,)
    double scale, length, rest;
    std::atomic<float> threshold{LOWEST};
    float guess = LOWEST;

    void set(const float *query, int64_t exclude, const Copy &copy) {
        const int size = copy.key_size, width = width_of(size);
        vector = query;
        source = exclude;
        codes.assign(width * PANEL, 0);
        int sums[2] = {};
        starts.assign((width + SEGMENT - 1) / SEGMENT, 0);
        Codes made = encode(query, size, 127, [&](int i, int code) {
            for (int s = 0; s < PANEL; s++) codes[(i / 4 * PANEL + s) * 4 + i % 4] = int8_t(code);
            if (i % SEGMENT == 0) sums[0] = sums[1] = 0;
            sums[i % 4 / 2] += code;
            starts[i / SEGMENT] = uint32_t(uint16_t(-OFFSET * sums[0])) | uint32_t(uint16_t(-OFFSET * sums[1])) << 16;
        });
        scale = made.scale;
        length = std::max(made.length, scale);  // of a zero query too, or it would reach empty slots
        double rounding = (size / 32 + 8) * std::ldexp(1.0, -23) + 4e-6;
        rest = (made.residual + rounding * (made.length + made.residual)) * *copy.longest;
    }

    float estimate(int sum, float inverse_scale) const { return float(scale * sum / inverse_scale); }

    float bound(int sum, float inverse_scale, float residual) const {
        return float((scale * sum + length * residual) / inverse_scale + rest);
    }

    void raise(float score) {
        float now = threshold.load(std::memory_order_relaxed);
        while (score > now && !threshold.compare_exchange_weak(now, score, std::memory_order_relaxed)) {
        }
    }
};

// Some queries, the keys, and all that it takes to compare them.
class Search {
  public:
    Search(const Copy &copy, const Memory &memory, int64_t k, int threads)
        : copy_(copy), memory_(memory), k_(k), threads_(threads), width_(width_of(copy.key_size)),
          panels_((memory.used + PANEL * STEP - 1) / (PANEL * STEP) * STEP), kernels_(kernels()),
          // Half of the first-level cache, so that a block stays there while all queries pass over it.
          block_(std::max((1 << 14) / (PANEL * width_) / STEP * STEP, STEP)), room_(std::max<size_t>(8 * k, 1024)) {}

    void run(std::vector<Query *> queries, int64_t *const *found, float *const *scores) {
        guess(queries);
        scan(queries);
        std::vector<size_t> again = finish(queries, found, scores);
        if (again.empty()) return;
        std::vector<Query *> rest;
        std::vector<int64_t *> found_rest;
        std::vector<float *> scores_rest;
        for (size_t i : again) {
            rest.push_back(queries[i]);
            found_rest.push_back(found[i]);
            scores_rest.push_back(scores[i]);
        }
        scan(rest);
        finish(rest, found_rest.data(), scores_rest.data());
    }

  private:
    static constexpr int SHARE = 32;    // one of so many keys is in the sample

    // Sets each query's threshold to a score that probably more than k keys reach, from a sample of the keys: every
    // SHARE-th step of panels.
    void guess(const std::vector<Query *> &queries) {
        const int64_t samples = panels_ / STEP / SHARE, sampled = samples * STEP * PANEL;
        // So many of the sample's scores should be reached by 2.5 k of all; 8 at least, or too much would be chance.
        const size_t rank = std::max((5 * k_ * sampled) / (2 * memory_.used), std::min<int64_t>(k_, 8));
        if (sampled < 256 || int64_t(4 * rank) > sampled) return;
        parallel(tiles(queries), threads_, [&](int64_t t, int) {
            std::vector<Candidate> best[TILE];
            int32_t sums[STEP][TILE][PANEL];
            uint32_t masks[STEP];
            for (int64_t sample = 0; sample < samples; sample++) {
                const int64_t panel = sample * SHARE * STEP;
                const Tile tile = make_tile(queries, t);
                scan_block(panel, STEP, tile, nullptr, 0, sums, masks);
                each(masks, STEP, [&](int p, int q, int s) {
                    const Query &query = *queries[t * TILE + q];
                    const int64_t slot = (panel + p) * PANEL + s;
                    const Candidate candidate{query.estimate(sums[p][q][s], copy_.inverse_scale[slot]), int32_t(slot)};
                    std::vector<Candidate> &heap = best[q];
                    if (heap.size() == rank) {
                        if (!better(candidate, heap.front())) return;
                        std::pop_heap(heap.begin(), heap.end(), better);
                        heap.pop_back();
                    }
                    heap.push_back(candidate);
                    std::push_heap(heap.begin(), heap.end(), better);
                });
                for (int q = 0; q < tile.queries && t * TILE + q < int64_t(queries.size()); q++)
                    if (best[q].size() == rank) queries[t * TILE + q]->raise(best[q].front().score);
            }
        });
        for (Query *query : queries) query->guess = query->threshold;
    }

    // Collects all slots whose bound reaches their query's threshold.
    void scan(const std::vector<Query *> &queries) {
        candidates_.assign(threads_, std::vector<std::vector<Candidate>>(queries.size()));
        const int64_t chunk = 8 * block_;
        parallel((panels_ + chunk - 1) / chunk, threads_, [&](int64_t task, int thread) {
            std::vector<int32_t> sums_(block_ * TILE * PANEL);
            auto *sums = reinterpret_cast<int32_t(*)[TILE][PANEL]>(sums_.data());
            std::vector<uint32_t> masks(block_);
            std::vector<Tile> tiles_now;
            for (int64_t t = 0; t < tiles(queries); t++) tiles_now.push_back(make_tile(queries, t));
            const int64_t end = std::min((task + 1) * chunk, panels_);
            for (int64_t panel = task * chunk; panel < end; panel += block_) {
                const int count = int(std::min<int64_t>(block_, end - panel));
                for (int64_t t = 0; t < tiles(queries); t++) {
                    const Tile &tile = tiles_now[t];
                    const int share = panel + block_ < end ? int(block_ * PANEL * width_ / tiles(queries)) : 0;
                    const uint8_t *ahead = copy_.codes + (panel + block_) * PANEL * width_ + t * share;
                    scan_block(panel, count, tile, ahead, share, sums, masks.data());
                    each(masks.data(), count, [&](int p, int q, int s) {
                        const int64_t slot = (panel + p) * PANEL + s;
                        Query &query = *queries[t * TILE + q];
                        if (query.source >= 0 && memory_.sources[slot] == query.source) return;
                        std::vector<Candidate> &list = candidates_[thread][t * TILE + q];
                        list.push_back({query.bound(sums[p][q][s], copy_.inverse_scale[slot], copy_.residual[slot]),
                                        int32_t(slot)});
                        if (list.size() < room_) return;
                        keep_best(list, query);
                        query.raise(list.back().score);
                    });
                }
            }
        });
    }

    // Scores the candidates and writes the k best. Returns the queries whose guess was wrong; those now have a
    // threshold that is right.
    std::vector<size_t> finish(const std::vector<Query *> &queries, int64_t *const *found, float *const *scores) {
        std::vector<char> wrong(queries.size());
        parallel(queries.size(), threads_, [&](int64_t i, int) {
            Query &query = *queries[i];
            std::vector<Candidate> &list = candidates_[0][i];
            for (int thread = 1; thread < threads_; thread++)
                list.insert(list.end(), candidates_[thread][i].begin(), candidates_[thread][i].end());
            keep_best(list, query);
            const bool full = int64_t(list.size()) == k_;
            if (query.guess > LOWEST && !(full && list.back().score >= query.guess)) {
                wrong[i] = true;
                query.guess = LOWEST;
                query.threshold = full ? list.back().score : LOWEST;
                return;
            }
            for (int64_t j = 0; j < k_; j++) {
                const bool there = j < int64_t(list.size());
                found[i][j] = there ? list[j].slot : -1;
                scores[i][j] = there ? list[j].score : -INFINITY;
            }
        });
        std::vector<size_t> again;
        for (size_t i = 0; i < queries.size(); i++)
            if (wrong[i]) again.push_back(i);
        return again;
    }

    // Leaves the k best of the list, scored, the worst of them last.
    void keep_best(std::vector<Candidate> &list, const Query &query) const {
        const int size = copy_.key_size;
        auto score = [&](std::vector<Candidate>::iterator candidate) {
            candidate->score = kernels_.dot(query.vector, memory_.keys + int64_t(candidate->slot) * size, size);
        };
        auto fetch = [&](std::vector<Candidate>::iterator candidate) {
            const char *key = reinterpret_cast<const char *>(memory_.keys + int64_t(candidate->slot) * size);
            for (int byte = 0; byte < 4 * size; byte += 64) __builtin_prefetch(key + byte);
        };
        auto score_all = [&](std::vector<Candidate>::iterator from, std::vector<Candidate>::iterator to) {
            for (auto candidate = from; candidate != to; ++candidate) {
                if (to - candidate > 4) fetch(candidate + 4);
                score(candidate);
            }
        };
        if (int64_t(list.size()) > k_) {
            // The k of the greatest bounds are scored first: what cannot reach the worst of them needs no score.
            const auto middle = list.begin() + k_;
            std::nth_element(list.begin(), middle - 1, list.end(), better);
            score_all(list.begin(), middle);
            const float least = std::max_element(list.begin(), middle, better)->score;
            const auto end = std::partition(middle, list.end(), [&](const Candidate &c) { return c.score >= least; });
            score_all(middle, end);
            list.erase(end, list.end());
            std::nth_element(list.begin(), middle - 1, list.end(), better);
            list.resize(k_);
        } else {
            score_all(list.begin(), list.end());
            if (int64_t(list.size()) == k_) std::nth_element(list.begin(), list.end() - 1, list.end(), better);
        }
    }

    int64_t tiles(const std::vector<Query *> &queries) const { return (int64_t(queries.size()) + TILE - 1) / TILE; }

    Tile make_tile(const std::vector<Query *> &queries, int64_t t) const {
        const int64_t left = int64_t(queries.size()) - t * TILE;
        Tile tile{};
        tile.queries = left >= 3 ? 4 : int(left);
        for (int q = 0; q < tile.queries; q++) {
            const Query &query = *queries[std::min<int64_t>(t * TILE + q, queries.size() - 1)];
            tile.codes[q] = query.codes.data();
            tile.starts[q] = query.starts.data();
            const float threshold = query.threshold.load(std::memory_order_relaxed);
            tile.threshold[q] = q < left ? float((threshold - query.rest) / query.scale) : -LOWEST;
            tile.reach[q] = float(query.length / query.scale);
        }
        return tile;
    }

    void scan_block(int64_t panel, int count, const Tile &tile, const uint8_t *ahead, int ahead_bytes,
                    int32_t (*sums)[TILE][PANEL], uint32_t *masks) const {
        kernels_.scan(copy_.codes + panel * PANEL * width_, copy_.inverse_scale + panel * PANEL,
                      copy_.residual + panel * PANEL, count, width_, tile, reinterpret_cast<const char *>(ahead),
                      ahead_bytes, sums, masks);
    }

    template <typename Visit>
    static void each(const uint32_t *masks, int count, const Visit &visit) {
        for (int p = 0; p < count; p++)
            for (uint32_t mask = masks[p]; mask; mask &= mask - 1) {
                const int bit = __builtin_ctz(mask);
                visit(p, bit / PANEL, bit % PANEL);
            }
    }

    const Copy copy_;
    const Memory memory_;
    const int64_t k_;
    const int threads_, width_;
    const int64_t panels_;
    const Kernels &kernels_;
    const int block_;       // panels
    const size_t room_;     // candidates of a query and a thread that are kept before the worst are dropped
    std::vector<std::vector<std::vector<Candidate>>> candidates_;  // of each thread and query
};

}  // namespace

void copy_keys(const Copy &copy, const Memory &memory, const int64_t *slots, int64_t count, int threads) {
    constexpr int64_t CHUNK = 4096;
    const int width = width_of(copy.key_size);
    std::vector<float> longest((count + CHUNK - 1) / CHUNK, *copy.longest);
    parallel(longest.size(), threads, [&](int64_t task, int) {
        for (int64_t i = task * CHUNK; i < std::min(count, (task + 1) * CHUNK); i++) {
            const int64_t slot = slots ? slots[i] : i;
            uint8_t *codes = copy.codes + slot / PANEL * PANEL * width + slot % PANEL * 4;
            auto put = [&](int j, int code) { codes[j / 4 * 4 * PANEL + j % 4] = uint8_t(code + OFFSET); };
            for (int j = copy.key_size; j < width; j++) put(j, 0);
            const Codes made = encode(memory.keys + slot * copy.key_size, copy.key_size, 63, put);
            const bool empty = memory.values[slot] < 0;
            copy.inverse_scale[slot] = float(1 / made.scale);
            copy.residual[slot] = empty ? EMPTY : float(made.residual / made.scale);
            longest[task] = std::max(longest[task], float(std::max(made.length, made.coded)));
        }
    });
    for (float length : longest) *copy.longest = std::max(*copy.longest, length);
}

void find(const Copy &copy, const Memory &memory, const float *queries, const int64_t *exclude, int64_t n, int64_t k,
          int threads, int64_t *found, float *scores) {
    // A thread that has less than this many products to do is not worth its start.
    const int64_t products = n * memory.used * copy.key_size;
    threads = int(std::min<int64_t>(threads, 1 + products / (1 << 22)));
    Search search(copy, memory, k, threads);
    // So many queries at once that their candidates take no more than some 32 MB.
    const int64_t batch = std::clamp<int64_t>((1 << 22) / (threads * 8 * k), 1, 128);
    for (int64_t start = 0; start < n; start += batch) {
        const int64_t count = std::min(batch, n - start);
        std::unique_ptr<Query[]> made(new Query[count]);
        std::vector<Query *> all;
        std::vector<int64_t *> found_rows;
        std::vector<float *> scores_rows;
        for (int64_t i = 0; i < count; i++) {
            made[i].set(queries + (start + i) * copy.key_size, exclude ? exclude[start + i] : -1, copy);
            all.push_back(&made[i]);
            found_rows.push_back(found + (start + i) * k);
            scores_rows.push_back(scores + (start + i) * k);
        }
        search.run(all, found_rows.data(), scores_rows.data());
    }
}
