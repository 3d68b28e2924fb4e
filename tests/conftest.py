"""Settings for all tests: XLA compiles quickly, as problems are small and most of their time goes into compiling."""

import os
from importlib.metadata import PackageNotFoundError, version

_QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
_NO_EMITTERS = "--xla_cpu_use_fusion_emitters=false"
_WITH_EMITTERS = ("0.8.", "0.9.", "0.10.")
"""Versions of jaxlib that are known to have this flag: XLA ends the process at a flag that it does not know."""


def _quick_flags():
    try:
        known = version("jaxlib").startswith(_WITH_EMITTERS)
    except PackageNotFoundError:
        return ""
    return f"{_QUICK} {_NO_EMITTERS}" if known else _QUICK


os.environ.setdefault("XLA_FLAGS", _quick_flags())
