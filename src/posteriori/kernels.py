"""Kernels (covariance functions) of Gaussian processes: they add, multiply, and are scaled by numbers, without JAX."""

from posteriori.gp.kernels import (
    ARD,
    RBF,
    Constant,
    Kernel,
    Linear,
    Matern,
    Polynomial,
    Product,
    RationalQuadratic,
    ScaledKernel,
    Sum,
)

__all__ = [
    "ARD",
    "RBF",
    "Constant",
    "Kernel",
    "Linear",
    "Matern",
    "Polynomial",
    "Product",
    "RationalQuadratic",
    "ScaledKernel",
    "Sum",
]
