#include "kernels.h"

#include <cstring>

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace kernels {

// Some variants change only a part of the one before.
namespace variant {
Table make_plain();
Table make_avx2();
Table make_avx512(Table);
Table make_neon(Table);
Table make_dotprod(Table);
}  // namespace variant

namespace {

std::vector<Table> tables() {
    using namespace variant;
    std::vector<Table> all = {make_plain()};
#if defined(__x86_64__) && defined(__GNUC__)
    // These ask the operating system too, which must keep the registers.
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) all.push_back(make_avx2());
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vnni"))
        all.push_back(make_avx512(all.back()));
#elif defined(__aarch64__) && defined(__GNUC__)
    all.push_back(make_neon(all.back()));
#if defined(__ARM_FEATURE_DOTPROD)
    constexpr bool dotprod = true;
#elif defined(__linux__)
    const bool dotprod = getauxval(AT_HWCAP) & (1 << 20);  // HWCAP_ASIMDDP
#else
    constexpr bool dotprod = false;
#endif
    if (dotprod) all.push_back(make_dotprod(all.back()));
#endif
    return all;
}

}  // namespace

Table table = tables().back();

std::vector<const char *> variants() {
    std::vector<const char *> names;
    for (const Table &each : tables()) names.push_back(each.name);
    return names;
}

bool use(const char *name) {
    for (const Table &each : tables())
        if (!std::strcmp(each.name, name)) {
            table = each;
            return true;
        }
    return false;
}

}  // namespace kernels
