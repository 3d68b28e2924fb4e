"""Learning a kernel: slopes of the evidence against differences, ascents that rise and end, kernels about as likely."""

import numpy as np
import pytest

from posteriori.gp import learning
from posteriori.gp.choosing import LearningPlan, learn_kernel
from posteriori.gp.coupled import CoupledSweep, SiteParameters, row_sites
from posteriori.gp.inputs import LabelledRows
from posteriori.gp.kernels import ARD, RBF, Constant, Linear, Matern
from posteriori.gp.learning import KernelEvidence, KernelState, Learned, ascend, likely_vectors, settle
from posteriori.gp.trees import leaves, packed, rebuilt, unpacked
from posteriori.solvers.solution import Status
from posteriori.threads import one_blas_thread

N, D, RATE = 24, 2, 0.01


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """As fits have it: threads of BLAS fight over small matrices where cores are busy."""
    with one_blas_thread():
        yield


def rows(n=N, K=3, seed=0, noise=0.4):
    """Rows of classes that straight lines tell apart, up to noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    scores = np.stack([X[:, 0], X[:, 1], -X.sum(axis=1)])[:K]
    return LabelledRows(X, np.argmax(scores + noise * rng.normal(size=(K, n)), axis=0), np.ones(n))


def evidence_of(kernel, K=3, rate=RATE):
    start = KernelState(kernel.start(D, 1.0), np.full(K, 0.5))
    return KernelEvidence(kernel, rows(K=K), K, rate, start)


KERNEL = ARD(inner=RBF(1.0, ard=False, fixed=True) + Linear(1.0, reach=10.0) + Constant(0.5))


# The evidence and its slopes


@pytest.fixture
def settled_tightly(monkeypatch):
    """Sites go all the way to their fixed point, where alone slopes with sites held are those of the evidence."""
    monkeypatch.setattr(learning, "_NEAR", 1e-11)
    monkeypatch.setattr(learning, "_MOST_SWEEPS", 400)


def check_slopes(evidence, seed=1):
    """Steps of every parameter, sites settled anew; the first evaluations bring them to rest within rounding."""
    vector = evidence.pack(evidence.start)
    vector = vector + 0.3 * np.random.default_rng(seed).normal(size=vector.shape)
    for _ in range(5):
        _, slopes = evidence(vector)
        evidence.accept()
    h = 1e-4
    ends = [[evidence(vector + step)[0] for step in (h * e, -h * e)] for e in np.eye(len(vector))]
    expected = [(up - down) / (2 * h) for up, down in ends]
    np.testing.assert_allclose(slopes, expected, rtol=1e-5, atol=1e-5)
    assert np.abs(slopes).max() > 0.1


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("kernel", [KERNEL, Matern(1.3, order=1.5) * Constant(2.0) + Linear()], ids=["ard", "product"])
def test_slopes_are_those_of_finite_differences(kernel, K, settled_tightly):
    check_slopes(evidence_of(kernel, K, rate=0.0))


def test_slopes_with_a_rate_of_mislabelled_rows_are_those_of_finite_differences(settled_tightly):
    check_slopes(evidence_of(KERNEL))


@pytest.mark.xfail(strict=True, reason="sites of rows that contradict their neighbours are held at the least precision")
def test_slopes_with_a_mislabelled_row_are_those_of_finite_differences(settled_tightly):
    evidence = evidence_of(KERNEL)
    near = LabelledRows(0.1 * evidence.rows.X, np.append(np.zeros(N - 1, dtype=int), 1), np.ones(N))
    check_slopes(KernelEvidence(KERNEL, near, 3, RATE, evidence.start))


def test_slopes_with_weighted_rows_are_those_of_finite_differences(settled_tightly):
    given = rows()
    weighted = LabelledRows(given.X, given.y, np.resize([1.0, 2.0, 1.5], N))
    check_slopes(KernelEvidence(KERNEL, weighted, 3, 0.0, KernelState(KERNEL.start(D, 1.0), np.zeros(3))))


def test_the_value_is_the_energy_of_the_sites_plus_the_log_prior(settled_tightly):
    evidence = evidence_of(KERNEL)
    vector = evidence.pack(evidence.start) + 0.2
    vector[-3:] = [0.1, 1.0, 1.0]
    value, _ = evidence(vector)
    free = evidence.unpack(vector).free
    gram = KERNEL.gram(free, evidence.rows.X, evidence.rows.X)
    sites = row_sites(evidence.rows.y, evidence.rows.c, 3, RATE)
    _, visit, rests, _ = settle(sites, gram, np.exp([0.2, 2.0, 2.0]), sites.start(), 1e-11, 400)
    assert rests
    log_prior = float(KERNEL.log_prior(free, evidence.start.free))
    log_prior -= 0.5 * ((0.7 - 0.5) / 3.0) ** 2 + 0.5 * (0.6**2 + 2 * 0.3**2)  # of the mean, and about it
    assert value == pytest.approx(visit.energy + log_prior, abs=1e-8)


def test_where_sites_find_no_fixed_point_there_is_no_evidence(monkeypatch):
    monkeypatch.setattr(learning, "_NEAR", 0.0)
    monkeypatch.setattr(learning, "_MOST_SWEEPS", 3)
    evidence = evidence_of(KERNEL)
    vector = evidence.pack(evidence.start)
    value, slopes = evidence(vector)
    assert value == -np.inf
    np.testing.assert_array_equal(slopes, np.zeros(len(vector)))
    learned = ascend(evidence, vector, [], tol=1e-3, max_iter=5)
    assert learned.n_steps == 0
    assert not learned.at_rest
    np.testing.assert_array_equal(learned.vector, vector)


def test_parameters_without_end_have_no_evidence():
    evidence = evidence_of(KERNEL)
    vector = evidence.pack(evidence.start)
    vector[-1] = 400.0  # its variance is infinite
    value, slopes = evidence(vector)
    assert value == -np.inf
    np.testing.assert_array_equal(slopes, 0.0)


# Vectors and trees


def test_packing_and_unpacking_a_state_is_no_change():
    evidence = evidence_of(KERNEL)
    rng = np.random.default_rng(0)
    vector = rng.normal(size=len(evidence.pack(evidence.start)))
    np.testing.assert_array_equal(evidence.pack(evidence.unpack(vector)), vector)
    state = evidence.unpack(evidence.pack(evidence.start))
    np.testing.assert_array_equal(state.log_scale, evidence.start.log_scale)
    for got, expected in zip(leaves(state.free), leaves(evidence.start.free), strict=True):
        np.testing.assert_array_equal(got, expected)
    np.testing.assert_allclose(evidence.unpack(vector).variances, np.exp(vector[-3:]) ** 2, rtol=1e-12)


def test_sizes_are_those_of_the_kinds_in_the_vector():
    evidence = evidence_of(KERNEL)
    # in the order of names: the constant's variance and the linear part's lengthscale within, relevances, scales
    assert sum(evidence.sizes()) == len(evidence.pack(evidence.start))
    assert sorted(evidence.sizes()) == [1, 1, D, 3]
    assert evidence.sizes()[-1] == 3


def test_trees_are_packed_in_the_order_of_names_whatever_that_of_the_dict():
    tree = {"b": np.array([1.0, 2.0]), "a": [np.float64(3.0), {"c": np.array([[4.0, 5.0]])}], "d": None}
    chosen = {"b": True, "a": [False, {"c": True}], "d": None}
    vector = packed(tree, chosen)
    np.testing.assert_array_equal(vector, [4.0, 5.0, 1.0, 2.0])
    back = unpacked(-vector, tree, chosen)
    assert list(back) == ["b", "a", "d"]
    np.testing.assert_array_equal(back["b"], [-1.0, -2.0])
    np.testing.assert_array_equal(back["a"][1]["c"], [[-4.0, -5.0]])
    assert back["a"][0] == 3.0
    assert back["d"] is None


def test_named_tuples_stay_what_they_are():
    tree = SiteParameters(np.ones(2), np.zeros(3))
    back = rebuilt(tree, [1.0, 2.0])
    assert isinstance(back, SiteParameters)
    assert back == (1.0, 2.0)


def test_nothing_to_learn_is_an_empty_vector():
    assert packed({"a": np.ones(3)}, {"a": False}).shape == (0,)
    np.testing.assert_array_equal(unpacked(np.zeros(0), {"a": np.ones(3)}, {"a": False})["a"], np.ones(3))


# Ascents


def test_an_ascent_rises_with_every_step_and_ends():
    evidence = evidence_of(KERNEL)
    start = evidence.pack(evidence.start)
    seen = []
    learned = ascend(evidence, start, [], tol=1e-4, max_iter=200, report=seen.append)
    values = [chunk.energy for chunk in learned.trace]
    assert learned.at_rest
    assert not learned.interrupted
    assert 0 < learned.n_steps < 200
    assert len(values) == learned.n_steps
    assert (np.diff([evidence_of(KERNEL)(start)[0], *values]) > 0.0).all()
    assert values[-1] == learned.value
    assert [chunk.n_steps for chunk in learned.trace] == list(range(1, learned.n_steps + 1))
    assert seen == learned.trace
    assert max(chunk.rate for chunk in learned.trace) <= 1.0 + 1e-12


def test_an_ascent_ends_where_the_slope_is_nearly_zero(settled_tightly):
    evidence = evidence_of(KERNEL)
    start = evidence.pack(evidence.start)
    first = np.abs(evidence(start)[1]).max()
    learned = ascend(evidence, start, [], tol=1e-9, max_iter=200)
    assert learned.at_rest
    assert np.abs(evidence(learned.vector)[1]).max() < 1e-3 * first
    for step in 0.05 * np.eye(len(start)):
        assert evidence(learned.vector + step)[0] < learned.value
        assert evidence(learned.vector - step)[0] < learned.value


def test_an_ascent_takes_no_more_steps_than_it_may():
    evidence = evidence_of(KERNEL)
    learned = ascend(evidence, evidence.pack(evidence.start), [], tol=0.0, max_iter=3)
    assert learned.n_steps == 3
    assert not learned.at_rest


def test_an_ascent_that_begins_at_its_end_rests_there():
    evidence = evidence_of(KERNEL)
    first = ascend(evidence, evidence.pack(evidence.start), [], tol=1e-4, max_iter=200)
    again = ascend(evidence, first.vector, first.memory, tol=1e-4, max_iter=200)
    assert again.at_rest
    assert again.n_steps <= 6
    assert again.value >= first.value - 0.1


def test_fixed_parameters_stay_where_they_are():
    kernel = RBF(1.3, fixed=True) + Constant(0.7)
    evidence = evidence_of(kernel)
    learned = ascend(evidence, evidence.pack(evidence.start), [], tol=1e-4, max_iter=50)
    state = evidence.unpack(learned.vector)
    assert learned.n_steps > 0
    np.testing.assert_array_equal(state.free["left"]["log_lengthscale"], np.full(D, np.log(1.3)))
    assert state.free["right"]["log_variance"] != np.log(0.7)
    assert len(learned.vector) == 1 + 3


@pytest.mark.parametrize("stop", [1, 3])
def test_an_interrupted_ascent_keeps_the_best_vector(stop):
    evidence = evidence_of(KERNEL)
    start = evidence.pack(evidence.start)
    seen = []

    def report(chunk):
        seen.append(chunk)
        if len(seen) == stop:
            raise KeyboardInterrupt

    learned = ascend(evidence, start, [], tol=1e-6, max_iter=100, report=report)
    assert learned.interrupted
    assert not learned.at_rest
    assert learned.n_steps == stop
    assert learned.value == seen[-1].energy
    calm = ascend(evidence_of(KERNEL), start, [], tol=0.0, max_iter=stop)
    np.testing.assert_array_equal(learned.vector, calm.vector)
    assert learned.value > evidence_of(KERNEL)(start)[0]


class Quadratic:
    """A stand-in for the evidence of n rows: -(v - best)^T H (v - best) / 2, wherever it is asked for."""

    def __init__(self, H, best, sizes=None, n=1):
        self.H, self.best, self._sizes = H, best, sizes
        self.rows = LabelledRows(np.zeros((n, 1)), np.zeros(n, dtype=int), np.ones(n))
        self.n_calls = 0

    def __call__(self, vector):
        self.n_calls += 1
        away = vector - self.best
        return -0.5 * away @ self.H @ away, -self.H @ away

    def sizes(self):
        return self._sizes

    def accept(self):
        pass


def random_precision(P, seed=0):
    A = np.random.default_rng(seed).normal(size=(P, 2 * P))
    return A @ A.T / P + 0.5 * np.eye(P)


def test_quasi_newton_steps_find_the_top_of_a_quadratic():
    H, best = random_precision(6) * np.outer(*[[1.0, 10.0, 1.0, 0.2, 3.0, 1.0]] * 2), np.linspace(-2.0, 2.0, 6)
    learned = ascend(Quadratic(H, best), np.zeros(6), [], tol=1e-13, max_iter=200)
    np.testing.assert_allclose(learned.vector, best, atol=1e-4)
    assert learned.at_rest
    assert learned.n_steps < 60


def test_the_first_step_tells_how_long_the_second_is():
    """Its curvature is taken for that of all directions: the second step ends near the top."""
    learned = ascend(Quadratic(np.diag([100.0, 50.0]), np.array([1.7, 0.3])), np.zeros(2), [], tol=0.0, max_iter=2)
    np.testing.assert_allclose(learned.trace[0].rate, 1.0)
    np.testing.assert_allclose(learned.vector, [1.7, 0.3], atol=0.15)


def test_what_was_learned_of_a_quadratic_serves_the_next_ascent():
    """An ascent with twice as many rows, whose evidence is twice as curved, goes on from the memory of the first."""
    H, best = random_precision(6), np.linspace(-2.0, 2.0, 6)
    first = ascend(Quadratic(H, best), np.zeros(6), [], tol=1e-10, max_iter=200)
    moved = best + 0.1
    afresh, onwards = (
        ascend(Quadratic(2.0 * H, moved, n=2), first.vector, memory, tol=0.0, max_iter=4)
        for memory in ([], first.memory)
    )
    assert np.abs(onwards.vector - moved).max() < 0.1 * np.abs(afresh.vector - moved).max()


def test_no_log_parameter_moves_by_more_than_one():
    H, best = np.eye(3), np.array([50.0, -20.0, 0.0])
    learned = ascend(Quadratic(H, best), np.zeros(3), [], tol=0.0, max_iter=5)
    assert [chunk.rate for chunk in learned.trace] == pytest.approx([1.0] * 5)
    assert np.abs(learned.vector).max() == pytest.approx(5.0)


# Sites come to rest


@pytest.mark.parametrize("K", [2, 3])
def test_sites_settle_at_the_same_point_from_any_start(K):
    given = rows(K=K)
    sites = row_sites(given.y, given.c, K, RATE)
    kernel = RBF(1.0) + Constant(0.5)
    gram, variances = kernel.gram(kernel.start(D, 1.0), given.X, given.X), np.full(K, 4.0)
    weak = sites.start()
    rng = np.random.default_rng(0)
    strong = SiteParameters(rng.gamma(1.0, size=weak.precision.shape), rng.normal(size=weak.shift.shape))
    ends = [settle(sites, gram, variances, start, 1e-12, 500) for start in (weak, strong)]
    for at, visit, rests, n_sweeps in ends:
        assert rests
        assert n_sweeps < 500
        for now, target in zip(at, visit.target, strict=True):
            np.testing.assert_allclose(now, target, atol=1e-4)
    assert ends[0][1].energy == pytest.approx(ends[1][1].energy, abs=1e-9)
    np.testing.assert_allclose(ends[0][1].solved.mean, ends[1][1].solved.mean, atol=1e-4)


class Overshooting:
    """A site whose visits ask for a step beyond the fixed point: steps of one length would oscillate for ever."""

    def __init__(self, factor):
        self.factor = factor
        self.steps = []

    def sweep(self, gram, variances, at):
        x = at.precision[0, 0]
        target = SiteParameters(-self.factor * at.precision, at.shift)
        self.steps.append(x)
        return CoupledSweep(None, -1.0 - x, target)


def test_oscillating_sites_take_shorter_steps():
    """With damping 0.8, x -> -1.08 x grows; with half of it or less, x falls."""
    sites = Overshooting(1.6)
    start = SiteParameters(np.ones((1, 1)), np.zeros((1, 1)))
    at, visit, rests, n_sweeps = settle(sites, np.ones((1, 1)), np.ones(1), start, 1e-8, 200)
    assert rests
    assert n_sweeps < 100
    assert visit.energy == pytest.approx(-1.0, abs=1e-6)
    assert at.precision[0, 0] == pytest.approx(0.0, abs=1e-6)
    ratios = np.divide(sites.steps[1:], sites.steps[:-1])
    np.testing.assert_allclose(ratios[:3], 1.0 - 0.8 * 2.6)
    assert (np.abs(ratios[3:]) < 1.0).all()


def test_sites_that_never_rest_are_told():
    start = SiteParameters(np.ones((1, 1)), np.zeros((1, 1)))
    _, visit, rests, n_sweeps = settle(Overshooting(-1.5), np.ones((1, 1)), np.ones(1), start, 1e-10, 7)
    assert not rests
    assert n_sweeps == 7
    assert visit.energy == pytest.approx(-1.0 - 1.4**6)


# Kernels about as likely as the best


@pytest.mark.parametrize("P", [1, 2, 4])
def test_likely_vectors_have_the_mean_and_covariance_of_laplace(P):
    H, best = 4.0 * random_precision(P), np.linspace(-1.0, 1.0, P)
    evidence = Quadratic(H, best)
    vectors = np.array(likely_vectors(evidence, best, 64))
    assert len(vectors) == 64
    np.testing.assert_allclose(vectors.mean(axis=0), best, atol=1e-12)
    away = vectors - best
    covariance = away.T @ away / len(away)
    np.testing.assert_allclose(H @ covariance, np.eye(P), atol=0.05)
    assert evidence.n_calls == P + 1


def test_directions_that_the_evidence_says_nothing_about_have_a_bound():
    """A curvature of zero, or one the wrong way, is a standard deviation of 2.5; no parameter moves by more than 3."""
    H = np.diag([0.0, -5.0, 100.0])
    vectors = np.array(likely_vectors(Quadratic(H, np.zeros(3)), np.zeros(3), 64))
    assert np.abs(vectors).max() <= 3.0
    spread = vectors.std(axis=0)
    assert (spread[:2] > 1.8).all()
    assert (spread[:2] <= 2.5).all()
    assert spread[2] == pytest.approx(0.1, rel=1e-6)


def test_many_parameters_of_one_kind_move_together():
    P, sizes = 23, [20, 1, 2]
    H = np.diag(np.concatenate([np.full(20, 0.2), [9.0], np.full(2, 8.0)]))
    vectors = np.array(likely_vectors(Quadratic(H, np.zeros(P), sizes), np.zeros(P), 64))
    assert len(vectors) == 64
    for first, last in ((0, 20), (20, 21), (21, 23)):
        np.testing.assert_allclose(vectors[:, first:last], vectors[:, first : first + 1].repeat(last - first, axis=1))
    # the curvatures of one kind add up
    np.testing.assert_allclose(vectors[:, [0, 20, 21]].std(axis=0), 1 / np.sqrt([4.0, 9.0, 16.0]), rtol=0.02)


def test_without_evidence_nearby_the_best_vector_is_alone():
    class Edge(Quadratic):
        def __call__(self, vector):
            value, slope = super().__call__(vector)
            return (-np.inf, np.zeros_like(slope)) if vector[1] > self.best[1] + 0.05 else (value, slope)

    best = np.array([1.0, 2.0])
    (only,) = likely_vectors(Edge(np.eye(2), best), best, 8)
    np.testing.assert_array_equal(only, best)


# Choosing


def plan(**options):
    return LearningPlan(**{"tol": 1e-3, "max_iter": 60, "n_learning": None, "seed": 0} | options)


def test_of_several_kernels_that_of_the_most_evidence_is_chosen():
    """Classes by the distance from the centre: linear functions cannot tell them, smooth ones can."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, D))
    X = X / np.linalg.norm(X, axis=1, keepdims=True) * rng.choice([0.3, 1.5], 60)[:, None]
    ring = LabelledRows(X, (np.linalg.norm(X, axis=1) > 1.0).astype(int), np.ones(60))
    candidates = {"linear": Linear(), "smooth": RBF()}
    chosen = learn_kernel(candidates, ring, 2, RATE, 1.0, 1.0, plan())
    assert chosen.record.kernel == "smooth"
    assert chosen.kernel is candidates["smooth"]
    assert set(chosen.record.considered) == {"linear", "smooth"}
    assert chosen.record.considered["smooth"] > chosen.record.considered["linear"] + 5.0
    assert chosen.record.n_learning == 60
    assert sorted(chosen.part) == list(range(60))
    assert chosen.record.status is Status.CONVERGED


@pytest.mark.parametrize(("rise", "name"), [(1.9, "simple"), (2.1, "rich")])
def test_a_later_kernel_must_be_worth_a_margin(rise, name, monkeypatch):
    """Two nats of evidence, or the earlier one is taken."""
    values = iter([-10.0, -10.0 + rise])

    def ascended(evidence, vector, memory, **options):
        return Learned(vector, next(values), 1, True, False)

    monkeypatch.setattr("posteriori.gp.choosing.ascend", ascended)
    chosen = learn_kernel({"simple": RBF(), "rich": RBF() + Linear()}, rows(), 3, RATE, 1.0, 1.0, plan())
    assert chosen.record.kernel == name
    assert chosen.record.considered == {"simple": -10.0, "rich": -10.0 + rise}


def test_a_kernel_may_be_learned_from_a_part_of_the_rows():
    given = rows(60)
    chosen = learn_kernel({"one": RBF()}, given, 3, RATE, 1.0, 1.0, plan(n_learning=30))
    assert chosen.record.n_learning == 30
    assert len(np.unique(chosen.part)) == 30
    shares = np.bincount(given.y[chosen.part], minlength=3) / 30
    np.testing.assert_allclose(shares, np.bincount(given.y, minlength=3) / 60, atol=0.04)
    assert chosen.sites.precision.shape == (3, 30)
    subset = LabelledRows(given.X[chosen.part], given.y[chosen.part], given.c[chosen.part])
    evidence = KernelEvidence(chosen.kernel, subset, 3, RATE, chosen.start)
    assert evidence(evidence.pack(chosen.state))[0] == pytest.approx(chosen.record.trace[-1].energy, abs=0.1)


def test_without_steps_the_kernel_is_as_it_starts():
    chosen = learn_kernel({"one": RBF(), "two": Linear()}, rows(), 3, RATE, 2.0, 1.7, plan(max_iter=0))
    assert chosen.record.kernel == "one"
    assert chosen.sites is None
    np.testing.assert_array_equal(chosen.state.free["log_lengthscale"], np.log([1.7, 1.7]))
    np.testing.assert_allclose(chosen.state.variances, 4.0)


def test_too_few_steps_are_said():
    chosen = learn_kernel({"one": KERNEL}, rows(), 3, RATE, 1.0, 1.0, plan(max_iter=2, tol=0.0))
    assert chosen.record.status is Status.ITERATION_LIMIT
    assert chosen.record.n_iter == 2


def test_an_interrupted_choice_keeps_the_best_so_far():
    def report(chunk):
        if chunk.n_steps == 2:
            raise KeyboardInterrupt

    chosen = learn_kernel({"one": KERNEL, "two": RBF()}, rows(), 3, RATE, 1.0, 1.0, plan(report=report))
    assert chosen.record.status is Status.INTERRUPTED
    assert chosen.record.kernel == "one"
    assert chosen.record.n_iter == 2
    assert set(chosen.record.considered) == {"one"}
