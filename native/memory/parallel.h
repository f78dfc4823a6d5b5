// Work shared among threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#ifdef __linux__
#include <dlfcn.h>
#include <unistd.h>
inline const pid_t loaded_by = getpid();
#endif

// GNU OpenMP's entry to a parallel section, where torch has brought it into this very process: fn(data) is called by as
// many threads of its pool.
using OpenMP = void (*)(void (*fn)(void *), void *data, unsigned threads, unsigned flags);

// Not in a process that was forked after this was loaded: it has none of the pool's threads, and would wait for them
// forever. Not with the thread sanitizer either, which cannot see how the pool's threads wait for each other.
inline OpenMP openmp() {
#if defined(__linux__) && !defined(__SANITIZE_THREAD__)
    static const auto found = reinterpret_cast<OpenMP>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
    return getpid() == loaded_by ? found : nullptr;
#else
    return nullptr;
#endif
}

// How many threads this much work is worth, where each takes at least `share` of it.
inline int worth(int64_t work, int64_t share, int threads) {
    return static_cast<int>(std::min<int64_t>(threads, 1 + work / share));
}

// Calls work(task, thread) for every task in [0, tasks), in any order, on at most `threads` threads. Whoever is free
// takes the next task, so that a core that is busy elsewhere (with torch's own threads, say) delays nobody.
//
// They are those of torch's own pool, where it is GNU OpenMP's: they are awake already, and two pools would take each
// other's cores. Elsewhere, and in a forked process, where a pool may be missing, threads are started for each call.
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
    if (const auto pool = threads > 1 ? openmp() : nullptr) {
        std::atomic<int> number{0};
        auto member = [&] { run(number.fetch_add(1, std::memory_order_relaxed)); };
        using Member = decltype(member);
        pool([](void *each) { (*static_cast<Member *>(each))(); }, &member, static_cast<unsigned>(threads), 0);
        if (failure) std::rethrow_exception(failure);
        return;
    }
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
