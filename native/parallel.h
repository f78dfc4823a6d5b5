// Work shared among threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

// Calls work(task, thread) for every task in [0, tasks), in any order, on at most `threads` threads. Whoever is free
// takes the next task, so that a core that is busy elsewhere (with torch's own threads, say) delays nobody.
//
// Threads are started for each call: that costs some 20 us each, far less than the work that is worth sharing, and in
// return there is no pool that could be missing in a forked process, nor idle threads that take a core from torch.
template <typename Work>
void parallel(int64_t tasks, int threads, const Work &work) {
    if (threads > tasks) threads = static_cast<int>(tasks);
    std::atomic<int64_t> next{0};
    std::exception_ptr failure;
    std::mutex failing;
    auto run = [&](int thread) {
        try {
            for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) work(task, thread);
        } catch (...) {
            std::lock_guard<std::mutex> lock(failing);
            failure = std::current_exception();
        }
    };
    std::vector<std::thread> others;
    try {
        for (int thread = 1; thread < threads; thread++) others.emplace_back(run, thread);
    } catch (const std::system_error &) {
        // No more threads to be had: those that did start share the work.
    }
    run(0);
    for (auto &other : others) other.join();
    if (failure) std::rethrow_exception(failure);
}
