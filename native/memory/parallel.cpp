#include "parallel.h"

#include <dlfcn.h>
#include <pthread.h>

#include <system_error>
#include <thread>
#include <vector>

#if defined(__has_feature) && !defined(__SANITIZE_THREAD__)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__  // as GCC says it
#endif
#endif

namespace {

std::atomic<bool> busy{false};

bool forked = false;
// A forked process has none of the pool's threads and would wait for them forever; nor is anybody busy in it.
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] {
    forked = true;
    busy = false;
});

// GNU OpenMP's entry to a parallel section: fn(data) is called by as many threads of its pool.
using OpenMP = void (*)(void (*fn)(void *), void *data, unsigned threads, unsigned flags);

OpenMP openmp() {
    // Not with the thread sanitizer, which cannot see how the pool's threads wait for each other.
#ifndef __SANITIZE_THREAD__
    static const auto found = reinterpret_cast<OpenMP>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
    return forked ? nullptr : found;
#else
    return nullptr;
#endif
}

void start_threads(int threads, void (*member)(void *), void *data) {
    std::vector<std::thread> others;
    try {
        for (int i = 1; i < threads; i++) others.emplace_back(member, data);
    } catch (const std::system_error &) {  // no more threads to be had: those that did start share the work
    }
    member(data);
    for (auto &other : others) other.join();
}

}  // namespace

// Where torch has brought GNU OpenMP into the process, its threads are used: after each parallel operation they spin for some
// milliseconds, and the threads of another pool would have to wait for their cores.
void call_on_threads(int threads, void (*member)(void *), void *data) {
    if (busy.exchange(true, std::memory_order_acquire)) return member(data);
    if (const auto pool = openmp())
        pool(member, data, static_cast<unsigned>(threads), 0);
    else
        start_threads(threads, member, data);
    busy.store(false, std::memory_order_release);
}
