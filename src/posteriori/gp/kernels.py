r"""Kernels, the covariance functions of Gaussian processes as a user writes them: RBF() + 0.5 * Linear().

In `rows` and `softmax` a kernel is something else: a function of one block of rows (see `rows.blocks`).

Lengthscales and variances are given or learned. A kernel describes; `gram` computes, from a tree of free parameters
(logarithms, so that any value is valid) that an optimiser can move. Neither needs JAX: the arrays passed in decide
which library computes.

`slopes` and `prior_slopes` are derivatives written out, for NumPy; JAX finds its own. With G = dE/dK the symmetric
derivative of some E by the Gram matrix of rows X, and d^2 and S the squared distances and inner products of z = x / l,

.. math::
    \frac{dE}{dz_i} = 4 \sum_j G_{ij} \frac{dk}{dd^2} (z_i - z_j) + 2 \sum_j G_{ij} \frac{dk}{dS} z_j, \qquad
    \frac{dE}{d\log l_d} = -\sum_i \frac{dE}{dz_{id}} z_{id} .
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, NamedTuple, Self

import numpy as np

from posteriori.maths import covariance_functions as maths
from posteriori.parameters import Parameters, is_whole_number

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

Array = Any
Free = dict[str, Any]
"""A tree of free parameters: the logarithms of a kernel's numbers, or the trees of the parts of a sum or product."""


_ARD_SPREAD = 1.0
"""The prior's standard deviation of log-lengthscales about their mean; it keeps many features from being overfitted."""
_BLOCK_SPREAD = 0.5
"""That of log-lengthscales about the mean of their block: the levels of one category matter about as much."""
_SPREAD = 2.0
"""The prior's standard deviation of that mean, and of log-variances, about their start."""
_SHAPE_SPREAD = 1.5
"""The prior's standard deviation of the logarithm of a shape."""
_LOG_SHAPES = (-7.0, 14.0)
"""The least and the greatest logarithm of a shape: beyond, a kernel is a constant, or RBF, but for rounding."""


class Kernel(Parameters):
    """A covariance function. Kernels add, multiply, and are scaled by numbers.

    Examples
    --------
    >>> import numpy as np
    >>> kernel = 2.0 * RBF(lengthscale=1.0)
    >>> free = kernel.start(D=1, typical=1.0)
    >>> np.asarray(kernel.gram(free, np.array([[0.0], [1.0]]), np.array([[0.0]]))).round(3)
    array([[2.   ],
           [1.213]])
    """

    __array_ufunc__ = None  # arrays times kernels are refused, not spread over their elements

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name; those of a part as part__name."""
        params = super().get_params(deep)
        if deep:
            for name, part in list(params.items()):
                if isinstance(part, Kernel):
                    params |= {f"{name}__{inner}": value for inner, value in part.get_params().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name: whole parts first, then what is in them."""
        super().set_params(**{name: value for name, value in params.items() if "__" not in name})
        for name, value in params.items():
            part, _, rest = name.partition("__")
            if rest:
                if not isinstance(getattr(self, part, None), Kernel):
                    raise ValueError(
                        f"{type(self).__name__} has no parameter {name!r}: its parameters are {[*self.get_params()]}."
                    )
                getattr(self, part).set_params(**{rest: value})
        return self

    def __add__(self, other: Kernel | float) -> Sum:
        return Sum(self, _as_kernel(other))

    def __radd__(self, other: float) -> Sum:
        return Sum(_as_kernel(other), self)

    def __mul__(self, other: Kernel | float) -> Product:
        return Product(self, _as_kernel(other))

    def __rmul__(self, other: float) -> Product:
        return Product(_as_kernel(other), self)

    def _key(self) -> tuple[Any, ...]:
        """The values by which kernels are compared, however their numbers were written."""
        return (type(self).__name__, *(_comparable(value) for value in self.get_params(deep=False).values()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kernel) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def start(self, D: int, typical: float) -> Free:
        """The free parameters at the start of learning, for D features and a typical distance between rows."""
        raise self._lacks("start")

    def gram(self, free: Free, X: Array, Z: Array) -> Array:
        """Covariances of the rows of X and Z, (n, m), under the parameters `free`."""
        raise self._lacks("gram")

    def diagonal(self, free: Free, X: Array) -> Array:
        """Variances of the rows of X, (n,), under the parameters `free`."""
        raise self._lacks("diagonal")

    def slopes(self, free: Free, X: np.ndarray, by_gram: np.ndarray) -> tuple[Free, np.ndarray]:
        """Derivatives by the free parameters and by X (n, D) of a number whose derivative by the Gram matrix is given.

        `by_gram` (n, n) is symmetric.
        """
        raise self._lacks("slopes")

    def learned(self, free: Free, unit: np.ndarray) -> Kernel:
        """A copy of the kernel with the parameters `free` in the data's units; `unit` has that of each feature."""
        raise self._lacks("learned")

    def in_units(self, unit: np.ndarray) -> Kernel:
        """A copy of the kernel for features that were divided by `unit`."""
        raise self._lacks("in_units")

    def of_features(self, kept: np.ndarray, D: int) -> Kernel:
        """A copy of the kernel for those of D features that are kept."""
        return self

    def in_blocks(self, blocks: Sequence[int] | None) -> Kernel:
        """A copy of the kernel for features of which those of equal number belong together; None for no such blocks."""
        return self

    def structure(self) -> Kernel:
        """A copy of the kernel without its starting values; kernels of equal structure share a compilation."""
        raise self._lacks("structure")

    def lengthscales(self) -> np.ndarray | None:
        """The lengthscales of the first part that has any, or None."""
        return None

    def lengthened(self, free: Free, log_factor: float) -> Free:
        """The free parameters with all lengthscales of features, unless they are fixed, times exp(log_factor)."""
        return free

    def learnable(self) -> dict[str, Any]:
        """Whether each free parameter is learned: a tree of True and False of the shape of `start`."""
        raise self._lacks("learnable")

    def log_prior(self, free: Free, start: Free) -> Array:
        """Log-density of the free parameters, up to a constant; learning began at `start`."""
        raise self._lacks("log_prior")

    def prior_slopes(self, free: Free, start: Free) -> Free:
        """Derivatives of `log_prior` by the free parameters; learning began at `start`."""
        raise self._lacks("prior_slopes")

    def validate(self) -> None:
        """Raise a ValueError that names the first parameter that makes no sense."""
        raise self._lacks("validate")

    def _lacks(self, method: str) -> NotImplementedError:
        """The error of a kernel whose class does not define a method that it needs."""
        return NotImplementedError(
            f'{type(self).__name__} needs a method {method!r}: see "A covariance function" in docs/adding.md.'
        )


class _Blocks(NamedTuple):
    """Blocks of features, for a prior under which lengthscales of one block are similar.

    A lengthscale's logarithm is the sum of a part of its block and, where this has several features, one of its own.
    """

    number: np.ndarray
    """The block of each feature, (D,)."""
    share: np.ndarray
    """The matrix (B, D) that takes the means of blocks."""
    weight: np.ndarray
    """The prior's precisions of these means, (B,)."""

    @classmethod
    def of(cls, numbers: Any) -> _Blocks:
        """The blocks of features with these numbers, (D,)."""
        names, number = np.unique(np.asarray(numbers), return_inverse=True)
        member = np.arange(len(names))[:, None] == number
        size = member.sum(axis=1)
        own = np.where(size > 1, _BLOCK_SPREAD**2 / size, 0.0)
        return cls(number, member / size[:, None], 1.0 / (_ARD_SPREAD**2 + own))


@dataclass(eq=False)
class ScaledKernel(Kernel):
    """The base of kernels of features divided by lengthscales: it learns these, and has all members but two.

    A kernel of your own derives from it and defines `gram` and `diagonal`, from rows divided by their lengthscales
    (`scaled`); and `slopes`, if NumPy is to learn its lengthscales and not JAX (`slopes_by_distances`).

    Parameters
    ----------
    lengthscale, ard, fixed, blocks
        As for `RBF`.

    Examples
    --------
    >>> import numpy as np
    >>> from posteriori.kernels import ScaledKernel
    >>> from posteriori.maths.covariance_functions import squared_distances
    >>> class Cauchy(ScaledKernel):
    ...     def gram(self, free, X, Z):
    ...         return 1 / (1 + 0.5 * squared_distances(self.scaled(free, X), self.scaled(free, Z)))
    ...
    ...     def diagonal(self, free, X):
    ...         return np.ones(len(X))
    >>> kernel, X = Cauchy(2.0), np.array([[0.0], [2.0]])
    >>> kernel.gram(kernel.start(1, 1.0), X, X).round(3)
    array([[1.   , 0.667],
           [0.667, 1.   ]])
    """

    lengthscale: float | Sequence[float] | None = None
    ard: bool = True
    fixed: bool = False
    blocks: Sequence[int] | None = field(default=None, kw_only=True)

    def start(self, D: int, typical: float) -> Free:
        given = typical if self.lengthscale is None else self.lengthscale
        values = np.asarray(given, dtype=np.float64)
        if values.ndim == 1 and values.shape != (D,):
            raise ValueError(self._wrong_count(values.size, D))
        if self.ard:
            return {"log_lengthscale": np.log(np.broadcast_to(values, (D,)))}
        return {"log_lengthscale": np.log(values).mean(keepdims=True).reshape(1)}

    def learnable(self) -> dict[str, Any]:
        return {"log_lengthscale": not self.fixed}

    def learned(self, free: Free, unit: np.ndarray) -> Kernel:
        return replace(
            self, lengthscale=_plain(np.exp(np.asarray(free["log_lengthscale"])) * self._proportions() * unit)
        )

    def _proportions(self) -> np.ndarray:
        """The ratios of given lengthscales to their geometric mean, where one free number moves them all; else one."""
        if self.ard or self.lengthscale is None or np.ndim(self.lengthscale) == 0:
            return np.ones(())
        logs = np.log(np.asarray(self.lengthscale, dtype=np.float64))
        return np.exp(logs - logs.mean())

    def in_units(self, unit: np.ndarray) -> Kernel:
        if self.lengthscale is None:
            return self
        values = np.asarray(self.lengthscale, dtype=np.float64)
        if values.ndim == 1 and values.shape != unit.shape:
            raise ValueError(self._wrong_count(values.size, unit.size))
        return replace(self, lengthscale=_plain(values / unit))

    def of_features(self, kept: np.ndarray, D: int) -> Kernel:
        kernel = self
        if self.blocks is not None:
            if len(self.blocks) != D:
                raise ValueError(f"{type(self).__name__} has {len(self.blocks)} blocks: one for each of {D} features.")
            kernel = replace(kernel, blocks=tuple(np.asarray(self.blocks)[kept].tolist()))
        if np.shape(self.lengthscale if self.lengthscale is not None else 0.0) != (D,):
            return kernel
        return replace(kernel, lengthscale=_plain(np.asarray(self.lengthscale, dtype=np.float64)[kept]))

    def in_blocks(self, blocks: Sequence[int] | None) -> Kernel:
        return replace(self, blocks=blocks) if self.ard and self.blocks is None else self

    def structure(self) -> Kernel:
        return replace(self, lengthscale=None if self._proportions().ndim == 0 else self.lengthscale)

    def _wrong_count(self, given: int, needed: int) -> str:
        name = type(self).__name__
        return f"{name} has {given} lengthscales: one number, or one for each of {needed} features is needed."

    def validate(self) -> None:
        name = type(self).__name__
        if self.lengthscale is not None:
            values = _numbers(self.lengthscale)
            if values.ndim > 1 or values.size == 0 or not (np.isfinite(values) & (values > 0.0)).all():
                raise ValueError(
                    f"{name}'s lengthscale={self.lengthscale!r} must be positive: one number, or one for each feature."
                )
        if self.blocks is not None and np.ndim(self.blocks) != 1:
            raise ValueError(f"{name}'s blocks={self.blocks!r} must be None or the number of each feature's block.")
        if not isinstance(self.ard, (bool, np.bool_)) or not isinstance(self.fixed, (bool, np.bool_)):
            raise ValueError(f"{name}'s ard={self.ard!r} and fixed={self.fixed!r} must be True or False.")

    def lengthscales(self) -> np.ndarray | None:
        return None if self.lengthscale is None else np.asarray(self.lengthscale, dtype=np.float64)

    def lengthened(self, free: Free, log_factor: float) -> Free:
        return free if self.fixed else {**free, "log_lengthscale": free["log_lengthscale"] + log_factor}

    def log_prior(self, free: Free, start: Free) -> Array:
        values, blocks = free["log_lengthscale"], self._blocks_of(free["log_lengthscale"].shape[0])
        means = blocks.share @ values
        centre = (blocks.weight * means).sum() / blocks.weight.sum()
        within, between = values - means[blocks.number], means - centre
        return -0.5 * (
            (within * within).sum() / _BLOCK_SPREAD**2
            + (blocks.weight * between * between).sum()
            + ((centre - start["log_lengthscale"].mean()) / _SPREAD) ** 2
        )

    def prior_slopes(self, free: Free, start: Free) -> Free:
        values, blocks = free["log_lengthscale"], self._blocks_of(free["log_lengthscale"].shape[0])
        means = blocks.share @ values
        centre = (blocks.weight * means).sum() / blocks.weight.sum()
        of_centre = (centre - start["log_lengthscale"].mean()) / (_SPREAD**2 * blocks.weight.sum())
        of_means = blocks.weight * (means - centre + of_centre)
        return {"log_lengthscale": (means[blocks.number] - values) / _BLOCK_SPREAD**2 - of_means @ blocks.share}

    def _blocks_of(self, n_lengthscales: int) -> _Blocks:
        """The blocks of the lengthscales; without any, each is a block of its own."""
        return _Blocks.of(np.arange(n_lengthscales) if self.blocks is None or not self.ard else self.blocks)

    def scaled(self, free: Free, X: Array) -> Array:
        """X divided by the lengthscales."""
        xp = X.__array_namespace__()
        return X / (xp.exp(free["log_lengthscale"]) * xp.asarray(self._proportions()))

    def slopes_by_distances(self, free: Free, X: np.ndarray, by_d2: np.ndarray) -> tuple[Free, np.ndarray]:
        """`slopes`, from derivatives by the squared distances of scaled rows.

        Parameters
        ----------
        free : dict of str to ndarray
        X : ndarray (n, D)
        by_d2 : ndarray (n, n)
            Those of a function of the Gram matrix by d^2: by_gram * dk / d(d^2).
        """
        Z = self.scaled(free, X)
        return self.slopes_by_scaled(free, Z, 4.0 * (by_d2.sum(axis=1)[:, None] * Z - by_d2 @ Z))

    def slopes_by_scaled(self, free: Free, Z: np.ndarray, by_Z: np.ndarray) -> tuple[Free, np.ndarray]:
        """`slopes`, from derivatives by the scaled rows Z = X / lengthscales.

        Parameters
        ----------
        free : dict of str to ndarray
        Z, by_Z : ndarray (n, D)
        """
        by_log = -(by_Z * Z).sum(axis=0)
        by_X = by_Z / (np.exp(free["log_lengthscale"]) * self._proportions())
        return {"log_lengthscale": by_log if self.ard else by_log.sum(keepdims=True)}, by_X


@dataclass(eq=False)
class RBF(ScaledKernel):
    r"""The squared-exponential kernel exp(-1/2 sum_d (x_d - z_d)^2 / l_d^2): smooth functions.

    Parameters
    ----------
    lengthscale : number, one number for each feature, or None
        The lengthscale at which learning begins, in the units of the features; None takes the median distance of rows.
    ard : bool
        A lengthscale for each feature, the inverse of its relevance, or one for all.
    fixed : bool
        Keep the lengthscales as given.
    blocks : sequence of int, optional
        The block of each feature: features of one block, such as the levels of a category, have similar lengthscales.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from posteriori import GPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = GPClassifier(RBF()).fit(X[::3], y[::3])
    >>> model.kernel_.lengthscale[0] > model.kernel_.lengthscale[2]  # long where a feature matters little
    True
    """

    def gram(self, free: Free, X: Array, Z: Array) -> Array:
        return maths.rbf(self.scaled(free, X), self.scaled(free, Z))

    def diagonal(self, free: Free, X: Array) -> Array:
        return X.__array_namespace__().ones(X.shape[0])

    def slopes(self, free: Free, X: np.ndarray, by_gram: np.ndarray) -> tuple[Free, np.ndarray]:
        Z = self.scaled(free, X)
        return self.slopes_by_distances(free, X, by_gram * maths.rbf(Z, Z) * -0.5)


@dataclass(eq=False)
class RationalQuadratic(ScaledKernel):
    r"""The kernel (1 + d^2 / (2 a))^{-a}, d^2 = sum_d (x_d - z_d)^2 / l_d^2: an average of RBF kernels of many lengths.

    The smaller the shape a, the more these differ: functions may change fast between near rows, and yet be alike at far
    ones. A large shape is an RBF kernel.

    Parameters
    ----------
    lengthscale, ard, fixed
        As for `RBF`.
    shape : number
        The shape at which learning begins.
    shape_fixed : bool
        Keep the shape as given.
    blocks
        As for `RBF`.

    Examples
    --------
    >>> RationalQuadratic(shape=2.0, shape_fixed=True)
    RationalQuadratic(lengthscale=None, ard=True, fixed=False, blocks=None, shape=2.0, shape_fixed=True)
    """

    shape: float = 3.0
    shape_fixed: bool = False

    def start(self, D: int, typical: float) -> Free:
        return {**super().start(D, typical), "log_shape": np.log(np.float64(self.shape))}

    def learnable(self) -> dict[str, Any]:
        return {**super().learnable(), "log_shape": not self.shape_fixed}

    def gram(self, free: Free, X: Array, Z: Array) -> Array:
        shape = self._held_shape(free, X.__array_namespace__())
        return maths.rational_quadratic(self.scaled(free, X), self.scaled(free, Z), shape)

    def _held_shape(self, free: Free, xp: Any) -> Array:
        return xp.exp(xp.clip(free["log_shape"], *_LOG_SHAPES))

    def diagonal(self, free: Free, X: Array) -> Array:
        return X.__array_namespace__().ones(X.shape[0])

    def slopes(self, free: Free, X: np.ndarray, by_gram: np.ndarray) -> tuple[Free, np.ndarray]:
        Z = self.scaled(free, X)
        by_d2, by_log_shape = maths.rational_quadratic_slopes(Z, self._held_shape(free, np))
        by_free, by_X = self.slopes_by_distances(free, X, by_gram * by_d2)
        held = not _LOG_SHAPES[0] < free["log_shape"] < _LOG_SHAPES[1]
        return {**by_free, "log_shape": np.float64(0.0 if held else np.vdot(by_gram, by_log_shape))}, by_X

    def learned(self, free: Free, unit: np.ndarray) -> Kernel:
        kernel = super().learned(free, unit)
        return replace(kernel, shape=float(np.exp(free["log_shape"])))  # type: ignore[call-arg]

    def structure(self) -> Kernel:
        return replace(super().structure(), shape=1.0)  # type: ignore[call-arg]

    def log_prior(self, free: Free, start: Free) -> Array:
        return super().log_prior(free, start) - 0.5 * ((free["log_shape"] - start["log_shape"]) / _SHAPE_SPREAD) ** 2

    def prior_slopes(self, free: Free, start: Free) -> Free:
        of_shape = -(free["log_shape"] - start["log_shape"]) / _SHAPE_SPREAD**2
        return {**super().prior_slopes(free, start), "log_shape": of_shape}

    def validate(self) -> None:
        super().validate()
        shape = _numbers(self.shape)
        if isinstance(self.shape, bool) or shape.ndim or not 0.0 < float(shape) < np.inf:
            raise ValueError(f"RationalQuadratic's shape={self.shape!r} must be a positive number.")
        if not isinstance(self.shape_fixed, (bool, np.bool_)):
            raise ValueError(f"RationalQuadratic's shape_fixed={self.shape_fixed!r} must be True or False.")


@dataclass(eq=False)
class Matern(ScaledKernel):
    """The Matern kernel of order 1/2, 3/2 or 5/2: functions that can be differentiated 0, 1 or 2 times.

    Parameters
    ----------
    lengthscale, ard, fixed
        As for `RBF`.
    order : {0.5, 1.5, 2.5}
        The larger the order, the smoother are the functions.
    blocks
        As for `RBF`.

    Examples
    --------
    >>> Matern(order=1.5)
    Matern(lengthscale=None, ard=True, fixed=False, blocks=None, order=1.5)
    """

    order: float = 2.5

    def gram(self, free: Free, X: Array, Z: Array) -> Array:
        return maths.matern(self.scaled(free, X), self.scaled(free, Z), self.order)

    def diagonal(self, free: Free, X: Array) -> Array:
        return X.__array_namespace__().ones(X.shape[0])

    def slopes(self, free: Free, X: np.ndarray, by_gram: np.ndarray) -> tuple[Free, np.ndarray]:
        Z = self.scaled(free, X)
        return self.slopes_by_distances(free, X, by_gram * maths.matern_slope(Z, self.order))

    def validate(self) -> None:
        super().validate()
        if self.order not in maths.MATERN_ORDERS:
            raise ValueError(f"Matern's order={self.order!r} is unknown: use one of {[*maths.MATERN_ORDERS]}.")


@dataclass(eq=False)
class _Fading(ScaledKernel):
    """A kernel of inner products, sum_d x_d z_d / l_d^2 to some power, that may fade far from the centre."""

    ard: bool = False
    reach: float | None = None

    def _power(self) -> int:
        raise NotImplementedError

    def gram(self, free: Free, X: Array, Z: Array) -> Array:
        plain = maths.linear(self.scaled(free, X), self.scaled(free, Z)) ** self._power()
        return plain * self._fading(X)[:, None] * self._fading(Z)[None, :]

    def diagonal(self, free: Free, X: Array) -> Array:
        scaled = self.scaled(free, X)
        return (scaled * scaled).sum(axis=1) ** self._power() * self._fading(X) ** 2

    def slopes(self, free: Free, X: np.ndarray, by_gram: np.ndarray) -> tuple[Free, np.ndarray]:
        Z, fading, power = self.scaled(free, X), self._fading(X), self._power()
        products = maths.linear(Z, Z)
        by_plain = by_gram * fading[:, None] * fading
        by_products = by_plain if power == 1 else by_plain * power * products ** (power - 1)
        by_free, by_X = self.slopes_by_scaled(free, Z, 2.0 * (by_products @ Z))
        if self.reach is not None:
            by_X = by_X - 2.0 * X * (by_plain * products**power).sum(axis=1)[:, None] / self.reach**2
        return by_free, by_X

    def _fading(self, X: Array) -> Array:
        xp = X.__array_namespace__()
        if self.reach is None:
            return xp.ones(X.shape[0])
        return xp.exp(-0.5 * (X * X).sum(axis=1) / self.reach**2)

    def validate(self) -> None:
        super().validate()
        if self.reach is not None and not 0.0 < float(_numbers(self.reach)) < np.inf:
            raise ValueError(f"{type(self).__name__}'s reach={self.reach!r} must be None or a positive number.")


@dataclass(eq=False)
class Linear(_Fading):
    r"""The linear kernel sum_d x_d z_d / l_d^2, of features that were centred: functions that are linear.

    Parameters
    ----------
    lengthscale, ard, fixed
        As for `RBF`; the default is one lengthscale for all features.
    reach : number, optional
        How far out functions stay linear before they return to zero: the kernel is multiplied by
        ``exp(-(|x|^2 + |z|^2) / (2 reach^2))``, x in standard deviations of the features, or within `ARD` in its
        lengthscales. With None they stay so everywhere: predictions far from all data are then as sure as a straight
        line makes them.
    blocks
        As for `RBF`.

    Examples
    --------
    >>> kernel = Linear(reach=3.0) + RBF()  # a straight line, and what is left of it
    >>> kernel.left
    Linear(lengthscale=None, ard=False, fixed=False, blocks=None, reach=3.0)
    """

    def _power(self) -> int:
        return 1


@dataclass(eq=False)
class Polynomial(_Fading):
    r"""The kernel (sum_d x_d z_d / l_d^2)^degree, of features that were centred: products of `degree` features.

    Parameters
    ----------
    lengthscale, ard, fixed, reach
        As for `Linear`.
    degree : int
        The number of features that are multiplied.
    blocks
        As for `RBF`.

    Examples
    --------
    >>> Polynomial(degree=3)
    Polynomial(lengthscale=None, ard=False, fixed=False, blocks=None, reach=None, degree=3)
    """

    degree: int = 2

    def _power(self) -> int:
        return self.degree

    def validate(self) -> None:
        super().validate()
        if not is_whole_number(self.degree) or self.degree < 1:
            raise ValueError(f"Polynomial's degree={self.degree!r} must be a whole number of at least 1.")


@dataclass(eq=False)
class ARD(ScaledKernel):
    """A kernel of features divided by lengthscales, one for each feature, that all its parts share.

    Parameters
    ----------
    lengthscale, ard, fixed
        As for `RBF`.
    inner : Kernel
        The kernel of the scaled features; its own lengthscales are in their unit.
    blocks
        As for `RBF`.

    Examples
    --------
    >>> kernel = ARD(inner=Matern(1.0, ard=False, fixed=True) + Linear(1.0, fixed=True))
    >>> kernel.inner.left.order, kernel.ard
    (2.5, True)
    """

    inner: Kernel = field(default_factory=lambda: RBF(1.0, ard=False, fixed=True))

    def start(self, D: int, typical: float) -> Free:
        return {**super().start(D, typical), "inner": self.inner.start(D, 1.0)}

    def learnable(self) -> dict[str, Any]:
        return {**super().learnable(), "inner": self.inner.learnable()}

    def learned(self, free: Free, unit: np.ndarray) -> Kernel:
        values = np.exp(np.asarray(free["log_lengthscale"])) * self._proportions() * unit
        return replace(self, lengthscale=_plain(values), inner=self.inner.learned(free["inner"], np.ones(())))

    def structure(self) -> Kernel:
        return replace(self, lengthscale=None, ard=True, inner=self.inner.structure())

    def log_prior(self, free: Free, start: Free) -> Array:
        return super().log_prior(free, start) + self.inner.log_prior(free["inner"], start["inner"])

    def validate(self) -> None:
        super().validate()
        _require_kernel(self.inner, "ARD")
        self.inner.validate()

    def gram(self, free: Free, X: Array, Z: Array) -> Array:
        return self.inner.gram(free["inner"], self.scaled(free, X), self.scaled(free, Z))

    def diagonal(self, free: Free, X: Array) -> Array:
        return self.inner.diagonal(free["inner"], self.scaled(free, X))

    def slopes(self, free: Free, X: np.ndarray, by_gram: np.ndarray) -> tuple[Free, np.ndarray]:
        Z = self.scaled(free, X)
        of_inner, by_Z = self.inner.slopes(free["inner"], Z, by_gram)
        by_free, by_X = self.slopes_by_scaled(free, Z, by_Z)
        return {**by_free, "inner": of_inner}, by_X

    def prior_slopes(self, free: Free, start: Free) -> Free:
        return {
            **super().prior_slopes(free, start),
            "inner": self.inner.prior_slopes(free["inner"], start["inner"]),
        }


@dataclass(eq=False)
class Constant(Kernel):
    """The constant kernel: functions that are constant, with this variance.

    Parameters
    ----------
    variance : number
        The variance at which learning begins.
    fixed : bool
        Keep the variance as given.

    Examples
    --------
    >>> kernel = Constant(2.0) * RBF()  # the same as 2.0 * RBF()
    >>> kernel.left
    Constant(variance=2.0, fixed=False)
    """

    variance: float = 1.0
    fixed: bool = False

    def start(self, D: int, typical: float) -> Free:
        return {"log_variance": np.log(np.float64(self.variance))}

    def learnable(self) -> dict[str, Any]:
        return {"log_variance": not self.fixed}

    def gram(self, free: Free, X: Array, Z: Array) -> Array:
        xp = X.__array_namespace__()
        return xp.exp(free["log_variance"]) * xp.ones((X.shape[0], Z.shape[0]))

    def diagonal(self, free: Free, X: Array) -> Array:
        xp = X.__array_namespace__()
        return xp.exp(free["log_variance"]) * xp.ones(X.shape[0])

    def slopes(self, free: Free, X: np.ndarray, by_gram: np.ndarray) -> tuple[Free, np.ndarray]:
        return {"log_variance": np.exp(free["log_variance"]) * by_gram.sum()}, np.zeros_like(X)

    def prior_slopes(self, free: Free, start: Free) -> Free:
        return {"log_variance": -(free["log_variance"] - start["log_variance"]) / _SPREAD**2}

    def learned(self, free: Free, unit: np.ndarray) -> Kernel:
        return replace(self, variance=float(np.exp(free["log_variance"])))

    def in_units(self, unit: np.ndarray) -> Kernel:
        return self

    def structure(self) -> Kernel:
        return replace(self, variance=1.0)

    def log_prior(self, free: Free, start: Free) -> Array:
        return -0.5 * ((free["log_variance"] - start["log_variance"]) / _SPREAD) ** 2

    def validate(self) -> None:
        if not isinstance(self.fixed, (bool, np.bool_)):
            raise ValueError(f"Constant's fixed={self.fixed!r} must be True or False.")
        variance = _numbers(self.variance)
        if isinstance(self.variance, bool) or variance.ndim or not 0.0 < float(variance) < np.inf:
            raise ValueError(f"Constant's variance={self.variance!r} must be a positive number.")


@dataclass(eq=False)
class _Pair(Kernel):
    left: Kernel
    right: Kernel

    def start(self, D: int, typical: float) -> Free:
        return {"left": self.left.start(D, typical), "right": self.right.start(D, typical)}

    def learnable(self) -> dict[str, Any]:
        return {"left": self.left.learnable(), "right": self.right.learnable()}

    def learned(self, free: Free, unit: np.ndarray) -> Kernel:
        return type(self)(self.left.learned(free["left"], unit), self.right.learned(free["right"], unit))

    def in_units(self, unit: np.ndarray) -> Kernel:
        return type(self)(self.left.in_units(unit), self.right.in_units(unit))

    def log_prior(self, free: Free, start: Free) -> Array:
        return self.left.log_prior(free["left"], start["left"]) + self.right.log_prior(free["right"], start["right"])

    def prior_slopes(self, free: Free, start: Free) -> Free:
        return {
            "left": self.left.prior_slopes(free["left"], start["left"]),
            "right": self.right.prior_slopes(free["right"], start["right"]),
        }

    def of_features(self, kept: np.ndarray, D: int) -> Kernel:
        return type(self)(self.left.of_features(kept, D), self.right.of_features(kept, D))

    def in_blocks(self, blocks: Sequence[int] | None) -> Kernel:
        return type(self)(self.left.in_blocks(blocks), self.right.in_blocks(blocks))

    def structure(self) -> Kernel:
        return type(self)(self.left.structure(), self.right.structure())

    def lengthened(self, free: Free, log_factor: float) -> Free:
        return {
            "left": self.left.lengthened(free["left"], log_factor),
            "right": self.right.lengthened(free["right"], log_factor),
        }

    def lengthscales(self) -> np.ndarray | None:
        left = self.left.lengthscales()
        return self.right.lengthscales() if left is None else left

    def validate(self) -> None:
        for part in (self.left, self.right):
            _require_kernel(part, type(self).__name__)
            part.validate()


@dataclass(eq=False)
class Sum(_Pair):
    """The sum of two kernels: the covariance of a sum of independent functions.

    Parameters
    ----------
    left, right : Kernel
        The kernels that are added.

    Examples
    --------
    >>> kernel = Linear() + RBF(lengthscale=2.0)
    >>> type(kernel).__name__, kernel.get_params()["right__lengthscale"]
    ('Sum', 2.0)
    """

    def gram(self, free: Free, X: Array, Z: Array) -> Array:
        return self.left.gram(free["left"], X, Z) + self.right.gram(free["right"], X, Z)

    def diagonal(self, free: Free, X: Array) -> Array:
        return self.left.diagonal(free["left"], X) + self.right.diagonal(free["right"], X)

    def slopes(self, free: Free, X: np.ndarray, by_gram: np.ndarray) -> tuple[Free, np.ndarray]:
        of_left, by_X = self.left.slopes(free["left"], X, by_gram)
        of_right, also_by_X = self.right.slopes(free["right"], X, by_gram)
        return {"left": of_left, "right": of_right}, by_X + also_by_X


@dataclass(eq=False)
class Product(_Pair):
    """The product of two kernels; a product with a constant is a scaled kernel.

    Parameters
    ----------
    left, right : Kernel
        The kernels that are multiplied.

    Examples
    --------
    >>> kernel = 2.0 * RBF(lengthscale=1.0)
    >>> type(kernel).__name__, kernel.left.variance
    ('Product', 2.0)
    """

    def gram(self, free: Free, X: Array, Z: Array) -> Array:
        return self.left.gram(free["left"], X, Z) * self.right.gram(free["right"], X, Z)

    def diagonal(self, free: Free, X: Array) -> Array:
        return self.left.diagonal(free["left"], X) * self.right.diagonal(free["right"], X)

    def slopes(self, free: Free, X: np.ndarray, by_gram: np.ndarray) -> tuple[Free, np.ndarray]:
        of_left, by_X = self.left.slopes(free["left"], X, by_gram * self.right.gram(free["right"], X, X))
        of_right, also_by_X = self.right.slopes(free["right"], X, by_gram * self.left.gram(free["left"], X, X))
        return {"left": of_left, "right": of_right}, by_X + also_by_X


def _as_kernel(value: Any) -> Kernel:
    if isinstance(value, Kernel):
        return value
    if isinstance(value, Real) and 0.0 < float(value) < np.inf:
        return Constant(float(value))
    raise TypeError(f"{value!r} is not a kernel: kernels are added to and multiplied by kernels and positive numbers.")


def _require_kernel(part: Any, name: str) -> None:
    if not isinstance(part, Kernel):
        raise ValueError(f"{name} is made of kernels, and {part!r} is not one: use those of posteriori.kernels.")


def _numbers(value: Any) -> np.ndarray:
    """The value as an array of numbers, or NaN where it is not one."""
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return np.asarray(np.nan)


def _plain(values: np.ndarray) -> float | tuple[float, ...]:
    """The values as a number, or as a tuple of numbers."""
    return float(values.reshape(())) if values.size == 1 else tuple(values.tolist())


def _comparable(value: Any) -> Any:
    if isinstance(value, (list, tuple, np.ndarray)):
        return tuple(float(v) for v in np.ravel(value))
    return value
