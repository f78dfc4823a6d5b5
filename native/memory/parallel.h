// Work shared among threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>

// Calls member(data) on so many threads, the caller's among them. One caller at a time has the others: another one, or a call
// from within a call, works alone.
void call_on_threads(int threads, void (*member)(void *data), void *data);

// How many threads this much work is worth, where each takes at least `share` of it.
inline int worth(int64_t work, int64_t share, int threads) {
    return static_cast<int>(std::min<int64_t>(threads, 1 + work / share));
}

// Calls work(task, thread) for every task in [0, tasks), in any order, on at most `threads` threads, numbered from 0.
// Whoever is free takes the next task. The first error is thrown again when all threads have stopped.
template <typename Work>
void parallel(int64_t tasks, int threads, const Work &work) {
    threads = static_cast<int>(std::min<int64_t>(threads, tasks));
    if (threads <= 1) {
        for (int64_t task = 0; task < tasks; task++) work(task, 0);
        return;
    }
    std::atomic<int64_t> next{0};
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
    call_on_threads(threads, [](void *each) { (*static_cast<decltype(member) *>(each))(); }, &member);
    if (failure) std::rethrow_exception(failure);
}
