"""Every number of the walkthrough against a naive calculation with 50 digits, and what is printed against both."""

import itertools
import re

import mpmath as mp
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import posteriori as po
from posteriori.reports import by_hand

DIGITS = 50
STEPS = [
    *("data", "prior", "softmax", "posterior", "gradient", "hessian", "newton", "iterations", "map", "covariance"),
    *("latent", "monte_carlo", "plug_in", "evidence", "utility", "decision"),
]


def random_problem(seed, N, columns, K, **options):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, columns)).round(2)
    y = np.append(np.arange(K), rng.integers(0, K, N - K))
    return {"X": X, "y": y, **options}


BUILT_IN = {
    "X": np.array([[-2.0], [-1.0], [0.0], [1.0], [1.0], [2.0]]),
    "y": np.array(["dry", "rain", "dry", "rain", "storm", "storm"]),
    "x_new": [0.5],
    "utility": np.array([[10, 7, 5, 2], [-4, 5, 4, 2], [-20, -10, 3, 2]]),
}
PROBLEMS = {
    "built-in": BUILT_IN,
    "two classes": random_problem(1, 7, 1, 2, x_new=[0.3], alpha=0.5),
    "four classes": random_problem(2, 12, 2, 4, x_new=[0.3, -1.0], alpha=3.0, n_draws=3, random_state=5),
    "five classes": random_problem(3, 15, 3, 5, x_new=[1.0, 0, -1.0], utility=np.arange(10.0).reshape(5, 2)),
    "separated": {"X": [[-3.0], [-2.0], [2.0], [3.0]], "y": [0, 0, 1, 1], "x_new": [0.1], "alpha": 1e-3},
    "balanced": {"X": [[-1.0], [-1.0], [1.0], [1.0]], "y": ["a", "b", "a", "b"], "x_new": [0.0]},
}
SLOW = dict.fromkeys(("four classes", "five classes"), pytest.mark.slow)
problems = pytest.mark.parametrize(
    "problem", [pytest.param(problem, id=name, marks=SLOW.get(name, ())) for name, problem in PROBLEMS.items()]
)


def calculated(problem):
    return po.walkthrough() if problem is BUILT_IN else po.walkthrough(**problem)


class Naive:
    """The formulas, entry by entry, in arbitrary precision."""

    def __init__(self, X, y, alpha=1.0, x_new=None, utility=None, n_draws=8, random_state=0):
        classes = sorted(set(np.asarray(y).tolist()))
        self.X = [[mp.mpf(1), *map(mp.mpf, map(float, row))] for row in np.asarray(X, dtype=float)]
        self.codes = [classes.index(label) for label in np.asarray(y).tolist()]
        self.N, self.K, self.D, self.alpha = len(self.X), len(classes), len(self.X[0]), mp.mpf(alpha)
        self.x = [mp.mpf(1), *map(mp.mpf, map(float, x_new))]
        self.U = np.eye(self.K) if utility is None else np.asarray(utility, dtype=float)
        self.Z = np.random.default_rng(random_state).standard_normal((n_draws, self.K)).round(2)

    def zero(self):
        return [[mp.mpf(0)] * self.D for _ in range(self.K)]

    def softmax(self, f):
        total = mp.fsum(mp.exp(v) for v in f)
        return [mp.exp(v) / total for v in f]

    def f(self, W, x):
        return [mp.fdot(w, x) for w in W]

    def P(self, W):
        return [self.softmax(self.f(W, x)) for x in self.X]

    def E(self, W):
        return -mp.fsum(mp.log(p[c]) for p, c in zip(self.P(W), self.codes, strict=True))

    def J(self, W):
        return self.E(W) + self.alpha / 2 * mp.fsum(w * w for row in W for w in row)

    def shares(self, W):
        return [
            [[(p[k] - (k == c)) * x[d] for d in range(self.D)] for k in range(self.K)]
            for p, x, c in zip(self.P(W), self.X, self.codes, strict=True)
        ]

    def g(self, W):
        shares = self.shares(W)
        return [
            [mp.fsum(share[k][d] for share in shares) + self.alpha * W[k][d] for d in range(self.D)]
            for k in range(self.K)
        ]

    def H(self, W):
        P, size = self.P(W), self.K * self.D
        H = mp.matrix(size, size)
        for i in range(size):
            for j in range(size):
                (k, d), (m, e) = divmod(i, self.D), divmod(j, self.D)
                terms = (p[k] * ((k == m) - p[m]) * x[d] * x[e] for p, x in zip(P, self.X, strict=True))
                H[i, j] = mp.fsum(terms) + (self.alpha if i == j else 0)
        return H

    def flat(self, W):
        return mp.matrix([w for row in W for w in row])

    def table(self, v):
        return [[v[k * self.D + d] for d in range(self.D)] for k in range(self.K)]

    def direction(self, W):
        return self.table(mp.lu_solve(self.H(W), self.flat(self.g(W))))

    def step(self, W, scale):
        d = self.direction(W)
        return [[w - mp.mpf(scale) * v for w, v in zip(*rows, strict=True)] for rows in zip(W, d, strict=True)]

    def optimum(self):
        W = self.zero()
        for _ in range(200):
            J, d, scale = self.J(W), self.direction(W), mp.mpf(1)
            while self.J(self.step(W, scale)) > J:
                scale /= 2
            W = self.step(W, scale)
            if max(abs(v) for row in d for v in row) < mp.mpf(10) ** -(DIGITS - 15):
                return W
        raise AssertionError("no optimum")


def array(values):
    return np.array([[float(v) for v in row] for row in values])


def as_numpy(M):
    return np.array(M.tolist(), dtype=float)


def norm(W):
    return float(mp.sqrt(mp.fsum(w * w for row in W for w in row)))


def blocks(M, K, letter):
    D = len(M) // K
    return {f"{letter}_{k + 1}{j + 1}": M[k * D : (k + 1) * D, j * D : (j + 1) * D] for k in range(K) for j in range(K)}


def expected_values(naive, scales):
    """All values of all steps, by the formulas; only the lengths of the Newton steps are taken over."""
    K, D, N, alpha = naive.K, naive.D, naive.N, naive.alpha
    zero = naive.zero()
    density = mp.sqrt(alpha / (2 * mp.pi))  # of one weight at zero
    log_prior = K * D * mp.log(density)
    path = [zero]
    for scale in scales[:-1]:
        path.append(naive.step(path[-1], scale))
    W = naive.optimum()
    H = naive.H(W)
    Sigma = H**-1
    m = naive.f(W, naive.x)
    C = mp.matrix(K, K)
    for k in range(K):
        for j in range(K):
            C[k, j] = mp.fsum(naive.x[d] * Sigma[k * D + d, j * D + e] * naive.x[e] for d in range(D) for e in range(D))
    L = mp.cholesky(C)
    F = [[m[k] + mp.fsum(L[k, j] * mp.mpf(float(z[j])) for j in range(K)) for k in range(K)] for z in naive.Z]
    draws = [naive.softmax(f) for f in F]
    S = len(draws)
    p = [mp.fsum(draw[k] for draw in draws) / S for k in range(K)]
    variance = [mp.fsum((draw[k] - p[k]) ** 2 for draw in draws) / (S - 1) for k in range(K)]
    EU = [mp.fsum(p[k] * mp.mpf(u) for k, u in enumerate(column)) for column in naive.U.T]
    log_det = mp.log(mp.det(H))
    diagonal = [mp.cholesky(H)[i, i] for i in range(K * D)]
    log_evidence = -naive.J(W) + K * D * mp.log(alpha) / 2 - log_det / 2
    H0, H1, S1 = as_numpy(naive.H(zero)), as_numpy(H), as_numpy(Sigma)
    best = max(range(len(EU)), key=lambda a: EU[a])
    return {
        "data": {"X": array(naive.X), "Y": np.eye(K)[naive.codes]},
        "prior": {"alpha": float(alpha), "log_prior_at_zero": float(log_prior)},
        "softmax": {"W": np.zeros((K, D)), "logits": np.zeros((N, K)), "P": np.full((N, K), 1 / K)},
        "posterior": {
            "log_likelihood": float(-naive.E(zero)),
            "log_prior": float(log_prior),
            "log_joint": float(log_prior - naive.E(zero)),
            "objective": float(naive.J(zero)),
        },
        "gradient": {
            "contributions": np.array([array(share) for share in naive.shares(zero)]),
            "gradient": array(naive.g(zero)),
        },
        "hessian": {"H": H0, **blocks(H0, K, "H")},
        "newton": {"direction": array(naive.direction(zero)), "scale": scales[0], "W": array(path[1])},
        "iterations": {
            "objective": np.array([float(naive.J(V)) for V in path]),
            "gradient_norm": np.array([norm(naive.g(V)) for V in path]),
            "scale": np.asarray(scales),
            "step_norm": np.array([s * norm(naive.direction(V)) for s, V in zip(scales, path, strict=True)]),
            "W": np.array([array(V) for V in path]),
        },
        "map": {
            "W": array(W),
            "logits": array([naive.f(W, x) for x in naive.X]),
            "P": array(naive.P(W)),
            "cross_entropy": float(naive.E(W)),
            "objective": float(naive.J(W)),
            "gradient": np.zeros((K, D)),
        },
        "covariance": {"H": H1, **blocks(H1, K, "H"), "Sigma": S1, **blocks(S1, K, "Sigma")},
        "latent": {"x_new": array([naive.x])[0], "mean": array([m])[0], "cov": as_numpy(C), "L": as_numpy(L)},
        "monte_carlo": {
            "Z": naive.Z,
            "logits": array(F),
            "draws": array(draws),
            "p": array([p])[0],
            "standard_error": np.sqrt(array([variance])[0] / S),
        },
        "plug_in": {"p": array([naive.softmax(m)])[0]},
        "evidence": {
            "log_determinant": float(log_det),
            "cholesky_diagonal": array([diagonal])[0],
            "log_evidence": float(log_evidence),
        },
        "utility": {"utility": naive.U, "p": array([p])[0], "expected_utility": array([EU])[0]},
        "decision": {"action": best, "expected_utility": float(EU[best])},
    }


@problems
def test_every_number_of_every_step(problem):
    by_steps = calculated(problem)
    with mp.workdps(DIGITS):
        expected = expected_values(Naive(**problem), by_steps["iterations"].values["scale"])
    assert [step.key for step in by_steps.steps] == STEPS == list(expected)
    for step in by_steps.steps:
        assert set(step.values) == set(expected[step.key]), step.key
        for name, value in step.values.items():
            want = expected[step.key][name]
            atol = 1e-12 * max(1.0, np.abs(want).max())
            np.testing.assert_allclose(value, want, rtol=1e-9, atol=atol, err_msg=f"{step.key}: {name}")
            assert np.shape(value) == np.shape(want)


@problems
def test_derivatives_are_differences_of_the_objective(problem):
    by_steps = calculated(problem)
    with mp.workdps(DIGITS):
        naive = Naive(**problem)
        h = mp.mpf(10) ** -15

        def moved(W, i, by):
            flat = [w for row in W for w in row]
            flat[i] += by
            return naive.table(flat)

        some = range(0, naive.K * naive.D, max(1, naive.K * naive.D // 6))
        for step, W in (("hessian", naive.zero()), ("covariance", by_steps["map"].values["W"].tolist())):
            slope = by_steps["gradient" if step == "hessian" else "map"].values["gradient"].ravel()
            for i in some:
                above, below = (naive.J(moved(W, i, s)) for s in (h, -h))
                assert float((above - below) / (2 * h)) == pytest.approx(slope[i], abs=1e-11)
                for j in some:
                    corners = [naive.J(moved(moved(W, i, a * h), j, b * h)) * a * b for a in (1, -1) for b in (1, -1)]
                    second = float(mp.fsum(corners) / (4 * h * h))
                    assert by_steps[step].values["H"][i, j] == pytest.approx(second, rel=1e-9, abs=1e-11)


@problems
def test_closed_forms(problem):
    by_steps = calculated(problem)
    X, Y = by_steps["data"].values["X"], by_steps["data"].values["Y"]
    (N, D), K, alpha = X.shape, Y.shape[1], by_steps["prior"].values["alpha"]
    assert by_steps["posterior"].values["log_likelihood"] == pytest.approx(-N * np.log(K), rel=1e-14)
    np.testing.assert_allclose(by_steps["gradient"].values["gradient"], (1 / K - Y).T @ X, atol=1e-12)
    kronecker = np.kron(np.eye(K) / K - 1 / K**2, X.T @ X) + alpha * np.eye(K * D)
    np.testing.assert_allclose(by_steps["hessian"].values["H"], kronecker, atol=1e-11)
    W, Sigma = by_steps["map"].values["W"], by_steps["covariance"].values["Sigma"]
    np.testing.assert_allclose(W.sum(axis=0), 0.0, atol=1e-11)  # the prior treats the classes alike
    # only the prior knows the sum of the logits of all classes: its variance is |x|^2 K / alpha
    x, cov = by_steps["latent"].values["x_new"], by_steps["latent"].values["cov"]
    assert cov.sum() == pytest.approx(K * (x @ x) / alpha, rel=1e-9)
    np.testing.assert_allclose(by_steps["covariance"].values["H"] @ Sigma, np.eye(K * D), atol=1e-9)
    assert by_steps["monte_carlo"].values["p"].sum() == pytest.approx(1.0, abs=1e-14)


@problems
def test_agrees_with_softmax_regression(problem):
    by_steps = calculated(problem)
    alpha = by_steps["prior"].values["alpha"]
    model = po.SoftmaxRegression(alpha=alpha, fit_intercept=True, penalize_intercept=True, tol=1e-14)
    model.fit(problem["X"], problem["y"])
    W = by_steps["map"].values["W"]
    np.testing.assert_allclose(W[:, 0], model.intercept_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(W[:, 1:], model.coef_, rtol=1e-6, atol=1e-8)
    assert by_steps["map"].values["objective"] == pytest.approx(model.solution_.objective, rel=1e-12)
    np.testing.assert_allclose(
        by_steps["plug_in"].values["p"], model.predict_proba([problem["x_new"]])[0], rtol=1e-6, atol=1e-8
    )


def test_two_classes_are_logistic_regression_with_half_the_precision():
    problem = PROBLEMS["two classes"]
    W = calculated(problem)["map"].values["W"]
    np.testing.assert_allclose(W[0], -W[1], atol=1e-12)
    design = np.column_stack([np.ones(len(problem["X"])), problem["X"]])
    peer = LogisticRegression(C=2 / problem["alpha"], fit_intercept=False, tol=1e-12, solver="newton-cholesky")
    np.testing.assert_allclose(W[1] - W[0], peer.fit(design, problem["y"]).coef_[0], rtol=1e-7)


def test_steps_are_halved_where_the_objective_would_grow():
    X = np.column_stack([np.ones(4), [-77.9, -3.8, 826.1, -474.3]])
    Y = np.eye(3)[[1, 0, 0, 1]]
    iterates = by_hand.newton(X, Y, 1e-3)
    halved = [at for at in iterates if 0 < at.scale < 1]
    assert len(halved) > 0
    for at in halved:
        assert by_hand.objective(at.W - 2 * at.scale * at.direction, X, Y, 1e-3) > at.objective
        assert by_hand.objective(at.W - at.scale * at.direction, X, Y, 1e-3) <= at.objective
    values = [at.objective for at in iterates]
    assert all(after <= before + 1e-12 for before, after in itertools.pairwise(values))
    assert np.abs(iterates[-1].gradient).max() < 1e-9


def test_the_first_halving_that_helps_is_taken():
    X, Y = (po.walkthrough()["data"].values[name] for name in "XY")
    start = by_hand.newton(X, Y, 1.0)[0]
    far = 4 * start.direction
    J = {s: by_hand.objective(start.W - s * far, X, Y, 1.0) for s in (0.0, 0.25, 0.5, 1.0)}
    assert J[1.0] > J[0.0] > J[0.5] > J[0.25]
    assert by_hand._halve(start.W, far, start.objective, X, Y, 1.0) == 0.5


# What is printed


def table(text, *header):
    """The cells below a header that begins with these, without the row names."""
    start = re.escape("| " + " | ".join(header))
    lines = next(block.splitlines() for block in text.split("\n\n") if re.match(start, re.sub(r" +", " ", block)))
    return [[cell.strip() for cell in line.strip("|").split("|")][1:] for line in lines[2:]]


def shown(values, digits=4):
    """Numbers as the text must show them: the same number of decimals, or of figures where they are small."""
    cells = []
    for value in np.ravel(values):
        small = abs(value) < 10.0 ** (1 - digits)
        zero = abs(value) < 1e-12 * np.abs(values).max() or abs(value) < 1e-15
        cells.append(f"{0:.{digits}f}" if zero else f"{value:.{digits}e}" if small else f"{value:.{digits}f}")
    return cells


def assert_matrix_in(text, values, digits=4):
    for row in np.atleast_2d(values):
        assert re.search(r"\[ +" + r" +".join(map(re.escape, shown_row(row, values, digits))) + r" \]", text), row


def shown_row(row, values, digits):
    cells = np.reshape(shown(values, digits), np.atleast_2d(values).shape)
    return cells[int(np.flatnonzero((np.atleast_2d(values) == row).all(axis=1))[0])]


@pytest.mark.parametrize("digits", [2, 4, 7])
@pytest.mark.parametrize("name", ["built-in", "two classes", "four classes"])
def test_printed_numbers_are_the_values_rounded(name, digits):
    problem = PROBLEMS[name]
    by_steps = po.walkthrough(digits=digits) if name == "built-in" else po.walkthrough(**problem, digits=digits)
    values = {step.key: step.values for step in by_steps.steps}
    texts = {step.key: step.to_markdown() for step in by_steps.steps}
    N, K = values["data"]["Y"].shape

    rows = table(texts["data"], "n", "x_n1")
    D = values["data"]["X"].shape[1]
    np.testing.assert_array_equal(np.array([row[:D] for row in rows], dtype=float), values["data"]["X"])
    np.testing.assert_array_equal(np.array([row[D + 1 :] for row in rows], dtype=float), values["data"]["Y"])

    rows = table(texts["gradient"], "row", "g_11")
    assert rows[:N] == [shown(share, digits) for share in values["gradient"]["contributions"]]
    clean = np.where(np.abs(values["gradient"]["gradient"]) < 1e-12, 0.0, values["gradient"]["gradient"])
    assert rows[-1] == shown(clean, digits)
    rows = table(texts["map"], "row", "g_11")
    assert rows[-1] == shown(np.zeros(K * D), digits)
    assert rows[-2] == shown(by_steps["prior"].values["alpha"] * values["map"]["W"], digits)

    rows = table(texts["map"], "n", "f_n1")
    losses = -np.log(values["map"]["P"][values["data"]["Y"] == 1])
    for n in range(N):
        loss = shown([losses[n]], digits)
        assert rows[n] == shown(values["map"]["logits"][n], digits) + shown(values["map"]["P"][n], digits) + loss
    rows = table(texts["iterations"], "t", "w_11")
    assert rows == [shown(W, digits) for W in values["iterations"]["W"]]
    rows = table(texts["iterations"], "t", "J")
    assert [row[0] for row in rows] == shown(values["iterations"]["objective"], digits)
    assert [row[1] for row in rows[:3]] == shown(values["iterations"]["gradient_norm"][:3], digits)
    assert rows[-1][1:] == ["<10^-12", "", ""]

    rows = table(texts["monte_carlo"], "s", "z_s1")
    for s, row in enumerate(rows[:-2]):
        assert row[:K] == [f"{z:.2f}" for z in values["monte_carlo"]["Z"][s]]
        assert row[K : 2 * K] == shown(values["monte_carlo"]["logits"][s], digits)
        assert row[2 * K :] == shown(values["monte_carlo"]["draws"][s], digits)
    assert rows[-2][2 * K :] == shown(values["monte_carlo"]["p"], digits)
    assert rows[-1][2 * K :] == shown(values["monte_carlo"]["standard_error"], digits)
    rows = table(texts["plug_in"], "class", "plug-in")
    assert [row[0] for row in rows] == shown(values["plug_in"]["p"], digits)
    assert [row[1] for row in rows] == shown(values["monte_carlo"]["p"], digits)

    for key in ("hessian", "covariance"):
        for k in range(1, K + 1):
            for j in range(k, K + 1):
                assert_matrix_in(texts[key], values[key][f"H_{k}{j}"], digits)
    assert_matrix_in(texts["newton"], values["newton"]["W"], digits)
    assert_matrix_in(texts["newton"], values["newton"]["direction"], digits)
    assert_matrix_in(texts["map"], values["map"]["W"], digits)
    assert_matrix_in(texts["covariance"], values["covariance"]["Sigma"], digits)
    assert_matrix_in(texts["latent"], values["latent"]["cov"], digits)
    assert_matrix_in(texts["latent"], values["latent"]["L"], digits)
    assert_matrix_in(texts["evidence"], values["evidence"]["cholesky_diagonal"], digits)
    for key, name in (
        ("prior", "log_prior_at_zero"),
        ("posterior", "log_likelihood"),
        ("posterior", "log_joint"),
        ("posterior", "objective"),
        ("map", "objective"),
        ("evidence", "log_determinant"),
        ("evidence", "log_evidence"),
        ("decision", "expected_utility"),
    ):
        assert re.search(rf"(= |`|\| +){re.escape(shown([values[key][name]], digits)[0])}\b", texts[key]), (key, name)
    for a, value in enumerate(values["utility"]["expected_utility"], start=1):
        assert re.search(rf"EU\({a}\) = [^=]*= {re.escape(shown([value], digits)[0])}\n", texts["utility"])


@problems
def test_the_printed_draws_give_the_printed_probabilities(problem):
    text = calculated(problem)["monte_carlo"].to_markdown()
    latent = calculated(problem)["latent"].to_markdown()
    rows = table(text, "s", "z_s1")
    K = len(rows[0]) // 3
    Z = np.array([row[:K] for row in rows[:-2]], dtype=float)
    mean = np.array(re.findall(r"m_\d += [^=]*= (\S+)", latent), dtype=float)
    lower = np.array(re.findall(r"L_\d\d = .* = (\S+)", latent), dtype=float)
    L = np.zeros((K, K))
    L[np.tril_indices(K)] = lower
    odds = np.exp(mean + Z @ L.T)
    p = (odds / odds.sum(axis=1, keepdims=True)).mean(axis=0)
    tolerance = 5e-4 * max(1.0, np.abs(Z).max())
    np.testing.assert_allclose(np.array(rows[-2][2 * K :], dtype=float), p, atol=tolerance)


def test_every_filled_in_sum_of_products_is_right():
    """A pocket calculator on the text itself: each chain of printed products equals the number after it."""
    text = re.sub(r"\n +\+ ", " + ", calculated(BUILT_IN).to_markdown())
    lines = re.findall(r"= ([-\d.()*+/ ]*\*[-\d.()*+/ ]*)\n? *= (-?[\d.]+)\n", text)
    assert len(lines) > 12
    for products, result in lines:
        assert eval(products) == pytest.approx(float(result), abs=2e-3), (products, result)
    roots = re.findall(r"L_\d\d = (.*) = (\S+)", text)
    assert len(roots) == 6
    for filled, result in roots:
        assert eval(filled, {"sqrt": np.sqrt}) == pytest.approx(float(result), abs=3e-4)


# The object


def test_the_example_is_the_example():
    text = str(po.walkthrough())
    assert text == str(po.walkthrough())
    assert text == po.walkthrough().to_markdown() == po.walkthrough()._repr_markdown_()
    for sentence in ("Six mornings", "full precision", "with 4 decimals", 'The best action is "bus"'):
        assert sentence in " ".join(text.split())
    explicit = po.walkthrough(**BUILT_IN)
    for step, same in zip(explicit.steps, po.walkthrough().steps, strict=True):
        for name, value in step.values.items():
            np.testing.assert_array_equal(value, same.values[name])


def test_draws_follow_the_random_state():
    first, second = po.walkthrough(random_state=1), po.walkthrough(random_state=2)
    Z = first["monte_carlo"].values["Z"]
    assert not np.array_equal(Z, second["monte_carlo"].values["Z"])
    np.testing.assert_array_equal(Z, po.walkthrough(random_state=1, digits=7)["monte_carlo"].values["Z"])
    generator = po.walkthrough(random_state=np.random.default_rng(1))
    np.testing.assert_array_equal(Z, generator["monte_carlo"].values["Z"])
    np.testing.assert_array_equal(Z, Z.round(2))
    many = po.walkthrough(n_draws=50)["monte_carlo"]
    assert many.values["Z"].shape == (50, 3)
    one = po.walkthrough(n_draws=1)["monte_carlo"]
    assert "standard error" in many.to_markdown()
    assert "standard error" not in one.to_markdown()
    assert np.isnan(one.values["standard_error"]).all()


def test_few_draws_estimate_the_integral():
    by_steps = po.walkthrough(n_draws=50)
    mean, cov = by_steps["latent"].values["mean"], by_steps["latent"].values["cov"]
    F = np.random.default_rng(0).multivariate_normal(mean, cov, size=200_000)
    odds = np.exp(F)
    integral = (odds / odds.sum(axis=1, keepdims=True)).mean(axis=0)
    error = by_steps["monte_carlo"].values["standard_error"]
    assert (np.abs(by_steps["monte_carlo"].values["p"] - integral) < 4 * error).all()
    assert (error < 0.04).all()


def test_drawing_logits_is_drawing_weights():
    by_steps = po.walkthrough()
    W, Sigma = by_steps["map"].values["W"], by_steps["covariance"].values["Sigma"]
    x = by_steps["latent"].values["x_new"]
    F = np.random.default_rng(0).multivariate_normal(W.ravel(), Sigma, size=200_000).reshape(-1, *W.shape) @ x
    np.testing.assert_allclose(F.mean(axis=0), by_steps["latent"].values["mean"], atol=0.01)
    np.testing.assert_allclose(np.cov(F.T), by_steps["latent"].values["cov"], atol=0.01)


def test_steps_are_found_by_key_and_by_title():
    by_steps = po.walkthrough()
    for step in by_steps.steps:
        assert by_steps[step.key] is step
        assert by_steps[step.title] is step
    with pytest.raises(KeyError, match="no step is called 'mode'; there are data, prior"):
        by_steps["mode"]
    with pytest.raises(AttributeError):
        by_steps.steps[0].title = "another"
    assert repr(by_steps) == f"Walkthrough({', '.join(STEPS)})"
