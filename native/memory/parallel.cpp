#include "parallel.h"

#include <system_error>
#include <thread>
#include <vector>

#ifndef _WIN32
#include <dlfcn.h>
#include <pthread.h>
#endif

#if defined(__has_feature) && !defined(__SANITIZE_THREAD__)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__  // as GCC says it
#endif
#endif

// Why torch's threads, and how their stalls are kept rare
// -------------------------------------------------------
// Where torch has brought GNU OpenMP into the process, its threads are used: after each parallel operation they spin for
// some milliseconds, and the threads of another pool would have to wait for their cores. But OpenMP waits at the end of a
// parallel section for every thread, also for one that could not begin because another process holds its core: a slice of
// the scheduler, 4 ms and more. Where that happens in more than one of RARE sections, the caller works alone for some
// sections, twice as many each time it happens again. A section that takes longer than a stall would is shared
// nevertheless, from then on.

namespace {

using Clock = Helpers::Clock;

// Waiting longer for the others than the caller worked itself is a stall, if it is longer than this too.
constexpr Clock::duration STALLED = std::chrono::microseconds(500);
constexpr Clock::duration STALL = std::chrono::milliseconds(8);  // what a stall may cost: two ticks of the scheduler
// One stall in so many sections is borne. A busy core gave one in 8; processes that come and go one in 80, where working
// alone would cost more time than the stalls do.
constexpr int RARE = 32;
constexpr int LEAST_ALONE = 16, MOST_ALONE = 1024;  // sections: the more, the fewer stalls, the later the others are back

std::atomic<bool> busy{false};
// These belong to the caller that is busy.
int alone = 0;              // so many sections to work alone from now on
int penalty = LEAST_ALONE;  // so many the next time: doubled each time, less by 1 for each section without a stall
int credit = 2 * RARE;      // a stall costs RARE; each section without one brings back 1

bool forked = false;
#ifndef _WIN32
// A forked process has none of the pool's threads and would wait for them forever; nor is anybody busy in it.
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] {
    forked = true;
    busy = false;
});
#endif

// GNU OpenMP's entry to a parallel section: fn(data) is called by as many threads of its pool.
using OpenMP = void (*)(void (*fn)(void *), void *data, unsigned threads, unsigned flags);

OpenMP openmp() {
    // Not with the thread sanitizer, which cannot see how the pool's threads wait for each other.
#if !defined(_WIN32) && !defined(__SANITIZE_THREAD__)
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

Helpers::Helpers(int threads) : threads_(threads), mine_(threads > 1 && !busy.exchange(true, std::memory_order_acquire)) {}

Helpers::~Helpers() {
    if (mine_) busy.store(false, std::memory_order_release);
}

Clock::time_point Helpers::alone_until() const {
    if (!mine_) return Clock::time_point::max();
    if (alone == 0) return Clock::time_point::min();
    alone--;
    return Clock::now() + STALL;
}

void Helpers::call(void (*member)(void *), void *data) {
    struct Call {
        void (*member)(void *);
        void *data;
        std::thread::id caller;
        Clock::time_point ended;
    } call{member, data, std::this_thread::get_id(), {}};
    auto each = [](void *of) {
        auto &all = *static_cast<Call *>(of);
        all.member(all.data);
        if (std::this_thread::get_id() == all.caller) all.ended = Clock::now();
    };
    const auto began = Clock::now();
    if (const auto pool = openmp())
        pool(each, &call, static_cast<unsigned>(threads_), 0);
    else
        start_threads(threads_, each, &call);
    const bool stalled = Clock::now() - call.ended > std::max(STALLED, call.ended - began);
    credit = stalled ? credit - RARE : std::min(credit + 1, 2 * RARE);
    penalty = stalled ? penalty : std::max(penalty - 1, LEAST_ALONE);
    if (credit > 0) return;
    credit = RARE;
    alone = penalty;
    penalty = std::min(2 * penalty, MOST_ALONE);
}
