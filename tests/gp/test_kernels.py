"""Kernels as users write them: what they compute, their parameters by name, their units, and what they refuse."""

import numpy as np
import pytest
from sklearn.base import clone

from posteriori import GPClassifier
from posteriori.gp.kernels import ARD, RBF, Constant, Kernel, Linear, Matern, Product, RationalQuadratic, Sum

RNG = np.random.default_rng(0)
D = 3
X, Z = RNG.normal(size=(7, D)), RNG.normal(size=(5, D))
LENGTHS = (0.7, 1.3, 2.9)
UNIT = np.array([0.01, 3.0, 400.0])


def gram(kernel, X=X, Z=Z, typical=1.0):
    return kernel.gram(kernel.start(X.shape[1], typical), X, Z)


def moved(free, step):
    """Free parameters a random step away; the same one, times `step`, at every call."""
    draw = np.random.default_rng(1).normal
    return {
        name: moved(part, step) if isinstance(part, dict) else part + step * draw(size=np.shape(part))
        for name, part in free.items()
    }


def distance(x, z, lengths):
    return np.sqrt(sum(((a - b) / length) ** 2 for a, b, length in zip(x, z, lengths, strict=True)))


def naive(k):
    return np.array([[k(x, z) for z in Z] for x in X])


def naive_rbf(lengths):
    return naive(lambda x, z: np.exp(-0.5 * distance(x, z, lengths) ** 2))


def naive_linear(lengths):
    return naive(lambda x, z: sum(a * b / length**2 for a, b, length in zip(x, z, lengths, strict=True)))


SUM = 0.4 + 2.0 * RBF(LENGTHS) * Linear(1.5)
FORMULAS = {
    "one lengthscale": (RBF(1.7, ard=False), naive_rbf([1.7] * D)),
    "one lengthscale, relevances to be learned": (RBF(1.7), naive_rbf([1.7] * D)),
    "a lengthscale for each feature": (RBF(LENGTHS), naive_rbf(LENGTHS)),
    "a list": (RBF([*LENGTHS]), naive_rbf(LENGTHS)),
    "the typical distance": (RBF(), naive_rbf([2.2] * D)),
    "matern 1/2": (Matern(LENGTHS, order=0.5), naive(lambda x, z: np.exp(-distance(x, z, LENGTHS)))),
    "rational quadratic": (
        RationalQuadratic(LENGTHS, shape=0.7),
        naive(lambda x, z: (1 + distance(x, z, LENGTHS) ** 2 / 1.4) ** -0.7),
    ),
    "linear": (Linear(LENGTHS), naive_linear(LENGTHS)),
    "constant": (Constant(0.3), np.full((7, 5), 0.3)),
    "sum": (RBF(LENGTHS) + Linear(1.5), naive_rbf(LENGTHS) + naive_linear([1.5] * D)),
    "product": (RBF(LENGTHS) * Linear(1.5), naive_rbf(LENGTHS) * naive_linear([1.5] * D)),
    "number times kernel": (2.5 * RBF(LENGTHS), 2.5 * naive_rbf(LENGTHS)),
    "kernel times number": (RBF(LENGTHS) * 2.5, 2.5 * naive_rbf(LENGTHS)),
    "number plus kernel": (2 + RBF(LENGTHS), 2 + naive_rbf(LENGTHS)),
    "kernel plus number of numpy": (RBF(LENGTHS) + np.float32(2), 2 + naive_rbf(LENGTHS)),
    "number of numpy times kernel": (np.float64(2.5) * RBF(LENGTHS), 2.5 * naive_rbf(LENGTHS)),
    "products before sums": (SUM, 0.4 + 2.0 * naive_rbf(LENGTHS) * naive_linear([1.5] * D)),
    "shared relevances": (
        ARD(LENGTHS, inner=RBF(2.0, ard=False) + Linear(1.0)),
        naive_rbf(2.0 * np.array(LENGTHS)) + naive_linear(LENGTHS),
    ),
}
kernels = pytest.mark.parametrize(("kernel", "expected"), FORMULAS.values(), ids=FORMULAS)
each_kernel = pytest.mark.parametrize("kernel", [kernel for kernel, _ in FORMULAS.values()], ids=FORMULAS)


# What they compute


@kernels
def test_gram_matrices_are_the_formulas_of_every_pair(kernel, expected):
    np.testing.assert_allclose(gram(kernel, typical=2.2), expected, rtol=1e-12)


@each_kernel
def test_the_diagonal_is_that_of_the_gram_matrix(kernel):
    free = kernel.start(D, 1.0)
    diagonal = kernel.diagonal(free, X)
    assert diagonal.shape == (len(X),)
    np.testing.assert_allclose(diagonal, np.diag(kernel.gram(free, X, X)), rtol=1e-7)


@each_kernel
def test_numpy_and_jax_give_the_same(kernel):
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        free = jax.tree.map(jax.numpy.asarray, kernel.start(D, 1.0))
        of_jax = kernel.gram(free, jax.numpy.asarray(X), jax.numpy.asarray(Z))
        diagonal = kernel.diagonal(free, jax.numpy.asarray(X))
        assert isinstance(of_jax, jax.Array)
        assert of_jax.dtype == diagonal.dtype == np.float64
    np.testing.assert_allclose(of_jax, gram(kernel), rtol=1e-12)
    np.testing.assert_allclose(diagonal, kernel.diagonal(kernel.start(D, 1.0), X), rtol=1e-12)


def test_a_linear_kernel_with_a_reach_fades_away():
    kernel = Linear(LENGTHS, reach=1.5)
    fading = np.exp(-((X**2).sum(1)[:, None] + (Z**2).sum(1)) / (2 * 1.5**2))
    np.testing.assert_allclose(gram(kernel), naive_linear(LENGTHS) * fading, rtol=1e-12)
    np.testing.assert_allclose(kernel.diagonal(kernel.start(D, 1.0), X), np.diag(gram(kernel, X, X)), rtol=1e-12)


@each_kernel
def test_the_tree_of_what_may_move_has_the_shape_of_the_free_parameters(kernel):
    def names(tree):
        return {name: names(value) if isinstance(value, dict) else None for name, value in tree.items()}

    assert names(kernel.learnable()) == names(kernel.start(D, 1.0))


def test_fixed_parts_stay_and_others_move():
    kernel = RBF(fixed=True) + Constant(2.0, fixed=True) * Matern()
    assert kernel.learnable() == {
        "left": {"log_lengthscale": False},
        "right": {"left": {"log_variance": False}, "right": {"log_lengthscale": True}},
    }


@pytest.mark.parametrize("kernel", [RBF(), Matern(), Linear(), Constant(), RBF() * Linear() + 2.0, ARD()], ids=str)
def test_the_prior_of_the_free_parameters_is_a_gaussian_about_the_start(kernel):
    """Highest there, with one lengthscale for all features, and four times as low at twice the distance."""
    start = kernel.start(D, 1.0)
    assert kernel.log_prior(start, start) == 0.0
    once, twice = (kernel.log_prior(moved(start, step), start) for step in (1.0, 2.0))
    assert once < -0.01
    assert twice == pytest.approx(4.0 * once, rel=1e-12)


def test_the_prior_of_a_pair_is_that_of_its_parts():
    left, right = RBF(), Constant(2.0)
    for pair in (left + right, left * right):
        start = pair.start(D, 1.0)
        free = {"left": {"log_lengthscale": np.array([0.3, -1.0, 2.0])}, "right": {"log_variance": np.float64(1.7)}}
        parts = left.log_prior(free["left"], start["left"]) + right.log_prior(free["right"], start["right"])
        assert pair.log_prior(free, start) == pytest.approx(parts, rel=1e-14)


# Units


GIVEN = {name: kernel for name, (kernel, _) in FORMULAS.items() if name != "the typical distance"}
LEARNED = {name: kernel for name, (kernel, _) in FORMULAS.items()}


@pytest.mark.parametrize("kernel", GIVEN.values(), ids=GIVEN)
def test_a_kernel_given_in_the_data_s_units_is_one_of_standardised_features(kernel):
    np.testing.assert_allclose(gram(kernel.in_units(UNIT), X / UNIT, Z / UNIT), gram(kernel), rtol=1e-10)


@pytest.mark.parametrize("kernel", LEARNED.values(), ids=LEARNED)
def test_a_learned_kernel_is_told_in_the_data_s_units(kernel):
    """Free parameters of standardised features, wherever learning took them, give a kernel that can be passed back."""
    free = moved(kernel.start(D, 1.0), 0.3)
    learned = kernel.learned(free, UNIT)
    expected = kernel.gram(free, X, Z)
    np.testing.assert_allclose(gram(learned, X * UNIT, Z * UNIT), expected, rtol=1e-10)
    np.testing.assert_allclose(gram(learned.in_units(UNIT)), expected, rtol=1e-10)
    learned.validate()


def test_lengthscales_to_be_found_have_no_unit():
    assert RBF().in_units(UNIT) == RBF()
    np.testing.assert_array_equal(RBF().start(D, 2.5)["log_lengthscale"], np.full(D, np.log(2.5)))
    np.testing.assert_array_equal(RBF(ard=False).start(D, 2.5)["log_lengthscale"], [np.log(2.5)])


def test_one_lengthscale_for_all_features_stays_one_to_be_learned():
    assert RBF(2.0, ard=False).in_units(UNIT).start(D, 1.0)["log_lengthscale"].size == 1


def test_lengthscales_are_those_of_the_first_part_that_has_any():
    assert (Constant(2.0) + RBF()).lengthscales() is None
    np.testing.assert_array_equal((2.0 * (RBF() + Linear(LENGTHS)) + RBF(1.0)).lengthscales(), LENGTHS)
    np.testing.assert_array_equal(ARD(LENGTHS).lengthscales(), LENGTHS)


# Parameters by name


def test_parameters_of_the_parts_are_reached_by_name():
    kernel = 0.5 * RBF(1.0) + Matern(order=1.5)
    params = kernel.get_params()
    assert params["left__left__variance"] == 0.5
    assert params["left__right"] == RBF(1.0)
    assert params["right__order"] == 1.5
    assert set(kernel.get_params(deep=False)) == {"left", "right"}
    assert kernel.set_params(left__right__lengthscale=3.0, right__order=0.5) is kernel
    assert kernel == 0.5 * RBF(3.0) + Matern(order=0.5)
    assert kernel.set_params(left=Linear()) == Linear() + Matern(order=0.5)


def test_parameters_of_an_inner_kernel_are_reached_by_name():
    kernel = ARD(inner=RBF(1.0))
    assert kernel.get_params()["inner__lengthscale"] == 1.0
    assert kernel.set_params(inner__lengthscale=2.0).inner == RBF(2.0)


@pytest.mark.parametrize("kernel", [RBF(), RBF() + 1.0, (RBF() + 1.0) * Linear()])
@pytest.mark.parametrize("name", ["width", "middle__lengthscale"])
def test_unknown_parameters_are_named_with_those_there_are(kernel, name):
    with pytest.raises(ValueError, match=rf"{type(kernel).__name__} has no parameter '{name}'.*lengthscale"):
        kernel.set_params(**{name: 1.0})


@each_kernel
def test_clones_are_equal_and_share_nothing(kernel):
    copy = clone(kernel)
    assert copy == kernel
    assert copy is not kernel
    assert hash(copy) == hash(kernel)
    for name, part in kernel.get_params().items():
        if hasattr(part, "get_params"):
            assert copy.get_params()[name] is not part


def test_kernels_are_equal_when_all_their_parameters_are():
    assert RBF(1.0) != RBF(2.0)
    assert RBF(1.0) != Matern(1.0)
    assert RBF() + Linear() != RBF() * Linear()
    assert RBF() + Linear() != Linear() + RBF()
    assert 2 * RBF() == Product(Constant(2.0), RBF())
    assert RBF() + 2 == Sum(RBF(), Constant(2.0))
    assert len({RBF(), RBF(), Linear(), RBF() + Linear(), RBF() + Linear()}) == 3


def test_equal_kernels_have_equal_hashes():
    assert RBF(1) == RBF(1.0)
    assert hash(RBF(1)) == hash(RBF(1.0))


def test_kernels_with_arrays_of_lengthscales_can_be_compared():
    assert RBF(np.array(LENGTHS)) == RBF(np.array(LENGTHS))


# What is refused


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (RBF(-1.0), r"RBF's lengthscale=-1.0 must be positive"),
        (RBF(np.nan), r"RBF's lengthscale=nan must be positive"),
        (Matern(np.inf), r"Matern's lengthscale=inf must be positive"),
        (Linear([1.0, 0.0]), r"Linear's lengthscale=\[1.0, 0.0\] must be positive"),
        (RBF([[1.0]]), r"RBF's lengthscale=\[\[1.0\]\] must be positive: one number, or one for each feature"),
        (RBF(ard="yes"), r"RBF's ard='yes' and fixed=False must be True or False"),
        (RBF(fixed=1), r"RBF's ard=True and fixed=1 must be True or False"),
        (Matern(order=2), r"Matern's order=2 is unknown: use one of \[0.5, 1.5, 2.5\]"),
        (Linear(reach=0.0), r"Linear's reach=0.0 must be None or a positive number"),
        (Constant(0.0), r"Constant's variance=0.0 must be a positive number"),
        (Constant(np.inf), r"Constant's variance=inf"),
        (1.0 + RBF(-1.0), r"RBF's lengthscale=-1.0"),
        (RBF(-1.0) * Linear(), r"RBF's lengthscale=-1.0"),
        (ARD(inner=RBF(-1.0)), r"RBF's lengthscale=-1.0"),
    ],
)
def test_parameters_that_make_no_sense_are_named(kernel, message):
    with pytest.raises(ValueError, match=message):
        kernel.validate()


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (RBF("long"), "RBF's lengthscale='long'"),
        (Constant("large"), "Constant's variance='large'"),
        (ARD(inner=3.0), "3.0"),
        (Sum(RBF(), 3.0), "3.0"),
    ],
)
def test_things_of_the_wrong_kind_are_named(kernel, message):
    with pytest.raises((TypeError, ValueError), match=message):
        kernel.validate()


def test_lengthscales_are_one_or_as_many_as_features():
    with pytest.raises(ValueError, match="RBF has 2 lengthscales: one number, or one for each of 3 features"):
        RBF([1.0, 2.0]).start(3, 1.0)


def test_a_wrong_number_of_lengthscales_is_named_in_any_units():
    with pytest.raises(ValueError, match="RBF has 2 lengthscales"):
        RBF([1.0, 2.0]).in_units(UNIT)


@pytest.mark.parametrize("other", [0, -1.0, np.nan, np.inf, "RBF", None], ids=str)
def test_only_kernels_and_positive_numbers_are_added_and_multiplied(other):
    for combined in (lambda: RBF() + other, lambda: other + RBF(), lambda: RBF() * other, lambda: other * RBF()):
        with pytest.raises(TypeError, match="is not a kernel"):
            combined()


# Blocks, and kernels made longer


def test_lengthscales_of_blocks_have_the_prior_of_sums():
    """log l = centre + part of the block + part of its own: the density is that of the sums, up to a constant."""
    numbers = np.array([0, 1, 1, 1, 2, 2])
    kernel = RBF(1.0, blocks=tuple(numbers))
    same = numbers[:, None] == numbers
    alone = same.sum(axis=0) == 1
    covariance = 1.0 * same + 0.5**2 * np.diag(~alone)
    precision = np.linalg.inv(covariance)
    start = kernel.start(6, 1.0)

    def naive_prior(values):
        # the centre is the mean of the blocks' means, each weighted by how well it is known
        known = np.array([1.0, 1.0 / (1.0 + 0.25 / 3), 1.0 / (1.0 + 0.25 / 2)])
        means = np.array([values[numbers == b].mean() for b in range(3)])
        centre = known @ means / known.sum()
        apart = values - centre
        return -0.5 * apart @ precision @ apart - 0.5 * (centre / 2.0) ** 2

    draws = [{"log_lengthscale": RNG.normal(size=6)} for _ in range(3)]
    got = [float(kernel.log_prior(free, start)) for free in draws]
    expected = [naive_prior(free["log_lengthscale"]) for free in draws]
    np.testing.assert_allclose(np.diff(got), np.diff(expected), atol=1e-10)


def test_without_blocks_every_lengthscale_is_a_block_of_its_own():
    free, start = {"log_lengthscale": RNG.normal(size=D)}, RBF().start(D, 1.0)
    assert RBF(blocks=(0, 1, 2)).log_prior(free, start) == pytest.approx(RBF().log_prior(free, start), abs=1e-12)
    assert RBF().in_blocks((0, 0, 1)) == RBF(blocks=(0, 0, 1))
    assert RBF(blocks=(0, 1, 2)).in_blocks((0, 0, 1)) == RBF(blocks=(0, 1, 2))  # a user's own blocks stay


def test_blocks_follow_the_features_that_are_kept():
    assert RBF(blocks=(5, 7, 7)).of_features(np.array([0, 2]), 3).blocks == (5, 7)
    with pytest.raises(ValueError, match="3 blocks: one for each of 4"):
        RBF(blocks=(5, 7, 7)).of_features(np.arange(4), 4)


@pytest.mark.parametrize(
    "kernel", [RBF(LENGTHS), ARD(LENGTHS), RBF(LENGTHS) + Matern(2.0) * Linear(1.5)], ids=["rbf", "ard", "sum"]
)
def test_a_kernel_made_longer_sees_features_made_smaller(kernel):
    free = kernel.start(D, 1.0)
    longer = kernel.lengthened(free, np.log(2.0))
    np.testing.assert_allclose(kernel.gram(longer, X, Z), kernel.gram(free, X / 2.0, Z / 2.0), atol=1e-12)


def test_a_rational_quadratic_kernel_of_a_large_shape_is_an_rbf_kernel():
    """The difference is d^4 / (8 a): shapes beyond a million are held there, so that nothing overflows."""
    for shape, tolerance in ((1e4, 2e-3), (1e6, 2e-5), (1e300, 2e-5)):
        np.testing.assert_allclose(gram(RationalQuadratic(LENGTHS, shape=shape)), naive_rbf(LENGTHS), atol=tolerance)
    free = RationalQuadratic(LENGTHS, shape=1e300).start(D, 1.0)
    slopes, _ = RationalQuadratic(LENGTHS).slopes(free, X, np.eye(len(X)))
    assert slopes["log_shape"] == 0.0


def test_fixed_lengthscales_stay():
    kernel = RBF(LENGTHS, fixed=True)
    free = kernel.start(D, 1.0)
    assert kernel.lengthened(free, 1.0) is free


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (RationalQuadratic(shape=0.0), "shape=0.0 must be a positive number"),
        (RationalQuadratic(shape="wide"), "shape='wide' must be a positive number"),
        (RationalQuadratic(shape_fixed=2), "shape_fixed=2 must be True or False"),
        (RBF(blocks=3), "blocks=3 must be None or"),
    ],
)
def test_wrong_shapes_and_blocks_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong.validate()


def test_a_kernel_that_lacks_a_member_says_which():
    class OnlyGram(Kernel):
        def gram(self, free, X, Z):
            return X @ Z.T

    with pytest.raises(NotImplementedError, match=r"OnlyGram needs a method 'validate'.* docs/adding\.md"):
        GPClassifier(OnlyGram()).fit(X, np.arange(len(X)) % 2)
    for member, arguments in {
        "start": (D, 1.0),
        "diagonal": ({}, X),
        "slopes": ({}, X, np.eye(len(X))),
        "learned": ({}, np.ones(D)),
        "in_units": (np.ones(D),),
        "structure": (),
        "learnable": (),
        "log_prior": ({}, {}),
        "prior_slopes": ({}, {}),
    }.items():
        with pytest.raises(NotImplementedError, match=f"OnlyGram needs a method '{member}'"):
            getattr(OnlyGram(), member)(*arguments)
