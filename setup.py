"""The optional C++ extension; all else is in pyproject.toml.

Where it cannot be compiled, the install still succeeds: `rarecall.backend` then says so once, and torch does the work.
"""

import sys
from glob import glob
from pathlib import Path

import nanobind
from setuptools import Extension, setup

# The kernels are written for gcc and clang. With another compiler the extension is left out.
GCC_OR_CLANG = sys.platform != "win32"
own = sorted(glob("native/*/*.cpp"))
binding = Path(nanobind.source_dir())

setup(
    ext_modules=GCC_OR_CLANG
    * [
        Extension(
            "rarecall._native",
            sources=[source for source in own if "/tests/" not in source] + [str(binding / "nb_combined.cpp")],
            depends=sorted(glob("native/*/*.h")),
            include_dirs=[nanobind.include_dir(), str(binding.parent / "ext" / "robin_map" / "include")],
            define_macros=[("NDEBUG", None), ("NB_COMPACT_ASSERTIONS", None)],
            # No -march: what the CPU has is found out at run time. No contraction: the variants for different CPUs
            # must round alike, with or without a fused multiply-add.
            extra_compile_args=[
                *("-std=c++17", "-O3", "-ffp-contract=off", "-fno-strict-aliasing", "-fvisibility=hidden"),
                *("-Wall", "-Wextra", "-pthread", "-g0"),
            ],
            extra_link_args=["-pthread", "-ldl"],
            optional=True,
        )
    ],
)
