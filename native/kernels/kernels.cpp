#include "kernels.h"

#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#define X86
#endif

namespace kernels {

namespace plain {
Table make();
}
#ifdef X86
namespace avx2 {
Table make();
}
namespace avx512 {
Table make();
}
#endif

namespace {

std::vector<Table> tables() {
    std::vector<Table> all = {plain::make()};
#ifdef X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) all.push_back(avx2::make());
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vnni")) all.push_back(avx512::make());
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
