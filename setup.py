"""The optional C++ extension; all else is in pyproject.toml.

Where it cannot be compiled, the install still succeeds: `rarecall.native` then says so once, and torch does the work.
"""

from glob import glob

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "rarecall._native",
            sources=sorted(glob("native/*.cpp")),
            depends=sorted(glob("native/*.h")),
            # No -march: what the CPU has is found out at run time. No contraction: the variants for different CPUs
            # must round alike, with or without a fused multiply-add.
            extra_compile_args=["-std=c++17", "-O3", "-ffp-contract=off", "-Wall", "-Wextra", "-pthread"],
            extra_link_args=["-pthread", "-ldl"],
            optional=True,
        )
    ],
)
