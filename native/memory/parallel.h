// Work shared among threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <mutex>

// The threads that help the calling one, for as long as this object lives. One caller at a time has them: another one, or a
// call from within a call, works alone.
class Helpers {
  public:
    using Clock = std::chrono::steady_clock;

    explicit Helpers(int threads);
    ~Helpers();
    Helpers(const Helpers &) = delete;
    Helpers &operator=(const Helpers &) = delete;

    // Until when the caller should work alone.
    Clock::time_point alone_until() const;

    // Calls member(data) on all threads, the caller's among them.
    void call(void (*member)(void *data), void *data);

  private:
    const int threads_;
    const bool mine_;
};

// How many threads this much work is worth, where each takes at least `share` of it.
inline int worth(int64_t work, int64_t share, int threads) {
    return static_cast<int>(std::min<int64_t>(threads, 1 + work / share));
}

// Calls work(task, thread) for every task in [0, tasks), in any order, on at most `threads` threads, numbered from 0.
// Whoever is free takes the next task. The first error is thrown again when all threads have stopped.
template <typename Work>
void parallel(int64_t tasks, int threads, const Work &work) {
    using Clock = Helpers::Clock;
    Helpers helpers(static_cast<int>(std::min<int64_t>(threads, tasks)));
    const auto until = helpers.alone_until();
    int64_t done = 0;
    for (; done < tasks && (until == Clock::time_point::max() || Clock::now() < until); done++) work(done, 0);
    if (done == tasks) return;
    std::atomic<int64_t> next{done};
    std::atomic<int> number{0};
    std::mutex failing;
    std::exception_ptr failure;
    auto member = [&] {
        const int thread = number.fetch_add(1, std::memory_order_relaxed);
        try {
            for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) work(task, thread);
        } catch (...) {
            next = tasks;
            std::lock_guard<std::mutex> lock(failing);
            if (!failure) failure = std::current_exception();
        }
    };
    helpers.call([](void *each) { (*static_cast<decltype(member) *>(each))(); }, &member);
    if (failure) std::rethrow_exception(failure);
}
