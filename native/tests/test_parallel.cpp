// Every task is done once, on any number of threads, with torch's pool (GNU OpenMP's) and without, and in a forked process.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../memory/parallel.h"
#include "check.h"

namespace {

void check_tasks(int64_t tasks, int threads) {
    std::vector<std::atomic<int>> done(tasks), on(threads);
    parallel(tasks, threads, [&](int64_t task, int thread) {
        CHECK(thread >= 0 && thread < threads);
        CHECK(on[thread]++ == 0);  // nobody else has this number
        done[task]++;
        on[thread]--;
    });
    for (const auto &each : done) CHECK(each == 1);
}

void test_all_tasks_are_done_once() {
    for (const int64_t tasks : {0, 1, 2, 3, 100, 10000})
        for (const int threads : {1, 2, 3, 8}) check_tasks(tasks, threads);
}

void test_an_error_is_thrown_again() {
    for (const int threads : {1, 4}) {
        std::string what;
        try {
            parallel(1000, threads, [](int64_t task, int) {
                if (task % 100 == 50) throw std::runtime_error("this one");
            });
        } catch (const std::runtime_error &error) {
            what = error.what();
        }
        CHECK(what == "this one");
        check_tasks(100, threads);
    }
}

void test_calls_within_calls_and_beside_each_other() {
    std::atomic<int> done{0};
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 4; caller++)
        callers.emplace_back([&] {
            for (int i = 0; i < 50; i++)
                parallel(8, 3, [&](int64_t, int) {
                    parallel(5, 2, [&](int64_t, int thread) { done += thread == 0 || thread == 1; });
                });
        });
    for (auto &each : callers) each.join();
    CHECK(done == 4 * 50 * 8 * 5);
}

void test_a_forked_process() {
    const pid_t child = fork();
    if (child == 0) {
        check_tasks(1000, 4);
        _exit(0);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

}  // namespace

int main() {
    dlopen("libgomp.so.1", RTLD_NOW | RTLD_GLOBAL);
    test_all_tasks_are_done_once();
    test_an_error_is_thrown_again();
    test_calls_within_calls_and_beside_each_other();
    test_a_forked_process();
}
