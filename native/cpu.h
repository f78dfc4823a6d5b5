// Which variant of a kernel to run: the best one that this CPU has, or the one that the tests ask for.
#pragma once

enum class Variant { plain = 0, avx2 = 1 };

inline bool has(Variant variant) {
    switch (variant) {
        case Variant::plain: return true;
        case Variant::avx2:
#if defined(__x86_64__) && defined(__GNUC__)
            return __builtin_cpu_supports("avx2");
#else
            return false;
#endif
    }
    return false;
}

// The variant in use; set by the module's use_variant().
extern Variant variant;
