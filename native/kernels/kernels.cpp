#include "kernels.h"

#include <cstring>

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace kernels {

// Some variants change only a part of the one before.
namespace plain {
Table make();
}
namespace avx2 {
Table make();
}
namespace avx512 {
Table make(Table);
}
namespace neon {
Table make(Table);
Table make_dotprod(Table);
}  // namespace neon

namespace {

std::vector<Table> tables() {
    std::vector<Table> all = {plain::make()};
#if defined(__x86_64__) && defined(__GNUC__)
    // These ask the operating system too, which must keep the registers.
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) all.push_back(avx2::make());
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vnni"))
        all.push_back(avx512::make(all.back()));
#elif defined(__aarch64__) && defined(__GNUC__)
    all.push_back(neon::make(all.back()));
#if defined(__ARM_FEATURE_DOTPROD)
    constexpr bool dotprod = true;
#elif defined(__linux__)
    const bool dotprod = getauxval(AT_HWCAP) & (1 << 20);  // HWCAP_ASIMDDP
#else
    constexpr bool dotprod = false;
#endif
    if (dotprod) all.push_back(neon::make_dotprod(all.back()));
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
