"""A fit as it goes: what is compiled, what is told, what an interruption leaves, and where the next call goes on."""

import logging
import os
import subprocess
import sys
import warnings
from contextlib import contextmanager

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

jax = pytest.importorskip("jax")

from tests.gp.gp_cases import X, Y, assert_probabilities, deep, gp, three_classes  # noqa: E402
from tests.slow import quick_first  # noqa: E402

from posteriori import ApproximationWarning, ConvergenceWarning, Status, kernels  # noqa: E402
from posteriori.gp import ascent as gp_ascent  # noqa: E402
from posteriori.gp import fit as gp_fit  # noqa: E402
from posteriori.gp import progress as gp_progress  # noqa: E402

few_steps = pytest.mark.filterwarnings(
    "ignore::posteriori.ConvergenceWarning", "ignore::posteriori.ApproximationWarning"
)
makers = pytest.mark.parametrize("make", [gp, deep])


def batched(**options):
    """Three batches of sixteen rows."""
    return gp(**{"batch_size": 16} | options)


# Compiling


@pytest.fixture
def compiled(caplog):
    """Names of the functions that XLA compiles while something is done."""

    def names(work):
        caplog.clear()
        with jax.log_compiles(), caplog.at_level(logging.WARNING, logger="jax"):
            work()
        told = [record.getMessage() for record in caplog.records]
        return [message.split("(")[1].split(")")[0] for message in told if "XLA compilation of jit(" in message]

    return names


@few_steps
@pytest.mark.parametrize(
    ("model", "training"),
    [
        pytest.param(batched(), "train_row_sites", id="batches"),
        pytest.param(deep(), "train_tied_sites", id="layers", marks=pytest.mark.slow),
    ],
)
def test_a_fit_compiles_its_training_once_and_the_next_one_nothing(model, training, compiled):
    """At most once: another test may have compiled it already."""
    assert compiled(lambda: model.fit(X, Y)).count(training) <= 1
    model.predict_proba(X)
    other_rows, y = three_classes(38, seed=1)
    model.set_params(max_iter=100, learning_rate=0.05, tol=1e-4, random_state=1)
    assert compiled(lambda: model.fit(other_rows, y)) == []
    assert compiled(lambda: model.predict_proba(other_rows)) == []


@few_steps
def test_a_kernel_with_given_lengthscales_is_compiled_once_too(compiled):
    model = gp(kernel=kernels.RBF(30.0), max_iter=0, calibrate=False).fit(X, Y)
    assert compiled(lambda: model.fit(*three_classes(38, seed=1))).count("train_row_sites") == 0


def test_neither_importing_nor_describing_a_model_nor_a_kernel_at_work_needs_jax():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, numpy as np, posteriori as po\n"
            "from sklearn.base import clone\n"
            "kernel = 0.5 * po.kernels.RBF(2.0) + po.kernels.Matern() * po.kernels.Linear() + po.kernels.Constant()\n"
            "for model in (po.GPClassifier(kernel), po.DeepGPClassifier((3,), kernel=kernel)):\n"
            "    repr(clone(model).set_params(n_inducing=3))\n"
            "    hasattr(model, 'classes_')\n"
            "X = np.arange(6.0).reshape(3, 2)\n"
            "kernel.validate()\n"
            "free = kernel.start(2, 1.0)\n"
            "assert kernel.gram(free, X, X).shape == (3, 3)\n"
            "kernel.learned(free, np.ones(2)).in_units(np.ones(2))\n"
            "print([name for name in ('jax', 'jaxlib', 'optax') if name in sys.modules])",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


@few_steps
@makers
def test_nothing_global_changes(make):
    np.random.seed(7)  # noqa: NPY002
    before = (jax.config.jax_enable_x64, jax.config.jax_default_device, [*warnings.filters])
    drawn = np.random.get_state()[1].copy()  # noqa: NPY002
    model = make().fit(X, Y)
    P = model.predict_proba(X)
    model.predict_interval(X[:8])
    assert (jax.config.jax_enable_x64, jax.config.jax_default_device, [*warnings.filters]) == before
    assert jax.numpy.ones(2).dtype == np.float32
    np.testing.assert_array_equal(np.random.get_state()[1], drawn)  # noqa: NPY002
    assert P.dtype == np.float64
    assert all(type(a) is np.ndarray for a in (P, model.scale_, model._fitted.mean, *model.predict_latent(X)))


# Batches


@few_steps
@pytest.mark.parametrize(("settled", "atol"), [(None, 5e-3), (1e-9, 1e-4)], ids=["as it comes", "to the end"])
def test_rows_in_batches_come_to_the_same_fixed_point(settled, atol, monkeypatch):
    if settled is not None:
        monkeypatch.setattr(gp_fit, "_SETTLED", settled)
        monkeypatch.setattr(gp_fit, "_SETTLING_CHUNKS", 3000)
    whole, parts = gp(max_iter=0).fit(X, Y), batched(max_iter=0).fit(X, Y)
    np.testing.assert_allclose(parts.predict_proba(X), whole.predict_proba(X), rtol=0, atol=atol)
    assert parts.log_evidence_ == pytest.approx(whole.log_evidence_, abs=2 * atol)


@few_steps
def test_rows_in_batches_learn_about_the_same():
    start, whole, parts = (
        gp(max_iter=0).fit(X, Y),
        gp(max_iter=200).fit(X, Y),
        batched(learning_rate=0.1, max_iter=2000).fit(X, Y),
    )
    assert np.abs(parts.predict_proba(X) - whole.predict_proba(X)).mean() < 0.05
    assert parts.log_evidence_ - start.log_evidence_ > 0.6 * (whole.log_evidence_ - start.log_evidence_) > 1.0


@few_steps
def test_batches_are_the_same_every_time():
    P, Q, R = (batched(random_state=seed).fit(X, Y).predict_proba(X) for seed in (1, 1, 2))
    np.testing.assert_array_equal(P, Q)
    assert np.abs(P - R).max() > 1e-9


# How it ended


@makers
def test_too_few_steps_are_told_of(make):
    with pytest.warns(ConvergenceWarning, match="still rising after max_iter=40 steps: raise max_iter, or tol"):
        model = make().fit(X, Y)
    assert model.solution_.status is Status.ITERATION_LIMIT
    assert not model.solution_.converged
    assert model.solution_.n_iter == 40


def test_enough_steps_are_not():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = gp(max_iter=2000).fit(X, Y)
        gp(max_iter=0).fit(X, Y)  # where nothing was to be learned
    solution = model.solution_
    assert solution.converged
    assert solution.settled
    assert solution.n_iter == solution.trace[-1].n_steps < 2000
    assert solution.n_passes > solution.n_iter
    energies = [chunk.energy for chunk in solution.trace]
    assert energies[-1] > energies[0]
    assert solution.energy == model.log_evidence_


@few_steps
@pytest.mark.parametrize("max_iter", [1, 30])
def test_there_are_no_more_steps_than_asked_for(max_iter):
    assert gp(max_iter=max_iter).fit(X, Y).solution_.n_iter <= max_iter


@pytest.fixture
def delicate(monkeypatch):
    """Training whose energy is no number unless the jitter is at least so much."""

    def need(jitter):
        real = gp_fit.train_row_sites

        def train(model, start, state, batches, plan, given, power):
            after, trace = real(model, start, state, batches, plan, given, power)
            return after, trace if given >= jitter else jax.tree.map(lambda a: a + np.nan, trace)

        monkeypatch.setattr(gp_fit, "train_row_sites", train)

    return need


@few_steps
def test_jitter_that_was_needed_is_told_of(delicate):
    delicate(1e-4)
    with pytest.warns(ApproximationWarning, match="A jitter of 0.0001 was needed"):
        model = gp().fit(X, Y)
    assert model.solution_.jitter == 1e-4
    assert model.score(X, Y) > 0.85


@few_steps
def test_an_energy_that_is_no_number_whatever_is_done_leaves_nothing(delicate):
    delicate(1.0)
    model = gp()
    with pytest.raises(FloatingPointError, match="check X for columns of extreme scale, or use fewer inducing inputs"):
        model.fit(X, Y)
    with pytest.raises(NotFittedError):
        model.predict_proba(X)


@few_steps
def test_an_energy_that_is_no_number_is_told_of_where_nothing_is_learned_too(delicate):
    delicate(1.0)
    with pytest.raises(FloatingPointError):
        gp(max_iter=0).fit(X, Y)


# Interruptions


@pytest.fixture
def interrupt(monkeypatch):
    """Ctrl-C while the n-th chunk is told of, once."""

    def after(n):
        told = []

        @contextmanager
        def bar(verbose, max_iter):
            def report(chunk):
                told.append(chunk)
                if len(told) == n:
                    raise KeyboardInterrupt

            yield report

        monkeypatch.setattr(gp_progress, "progress_bar", bar)

    return after


@pytest.mark.parametrize("make", quick_first([gp, batched, deep], 2))
def test_an_interruption_leaves_a_model_that_predicts(make, interrupt):
    interrupt(4)
    model = make(max_iter=1000)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    assert model.solution_.status is Status.INTERRUPTED
    assert model.solution_.n_iter == (48 if make is batched else 40)  # whole epochs of three batches
    assert_probabilities(model.predict_proba(X), 40)
    assert model.score(X, Y) > 0.85
    assert np.isfinite(model.predict_interval(X[:8])).all()


@few_steps
def test_an_interruption_keeps_what_was_learned(interrupt):
    shorter = gp(max_iter=40).fit(X, Y)
    interrupt(4)
    model = gp(max_iter=1000)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    np.testing.assert_array_equal(model.predict_proba(X), shorter.predict_proba(X))


@few_steps
@pytest.mark.parametrize("make", quick_first([batched, deep]))
def test_a_few_steps_in_batches_or_samples_are_not_lost(make):
    start, few = make(max_iter=0).fit(X, Y), make(max_iter=80).fit(X, Y)
    assert np.abs(np.log(few.scale_ / start.scale_)).max() > 0.01


class Interrupted:
    """Training that is interrupted at a call."""

    def __init__(self, call):
        self.left, self.real = call, gp_fit.train_row_sites

    def __call__(self, *args):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return self.real(*args)


@few_steps
def test_an_interruption_before_anything_is_learned_leaves_the_last_fit(monkeypatch):
    model = gp().fit(X, Y)
    before = vars(model).copy()
    monkeypatch.setattr(gp_fit, "train_row_sites", Interrupted(1))
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:, :1], Y == 0)
    assert vars(model) == before


@few_steps
def test_an_interruption_after_all_is_learned_keeps_it(monkeypatch):
    monkeypatch.setattr(gp_fit, "train_row_sites", Interrupted(3))
    model = gp()
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    assert model.solution_.status is Status.INTERRUPTED
    assert model.score(X, Y) > 0.85


# Checkpoints


@pytest.fixture
def saved_often(monkeypatch):
    monkeypatch.setattr(gp_ascent, "_SAVE_EVERY", -1.0)


@few_steps
@pytest.mark.usefixtures("saved_often")
@pytest.mark.parametrize("make", quick_first([gp, deep, batched], 2))
def test_an_interrupted_fit_goes_on_where_it_was(make, interrupt, tmp_path):
    path = tmp_path / "fit.npz"
    interrupt(3)
    with pytest.raises(KeyboardInterrupt):
        make(max_iter=80, checkpoint=path).fit(X, Y)
    assert path.is_file()
    whole, again = make(max_iter=80).fit(X, Y), make(max_iter=80, checkpoint=path).fit(X, Y)
    assert again.solution_.trace[0].n_steps == (36 if make is batched else 30)  # two chunks were kept
    assert again.solution_.n_iter == whole.solution_.n_iter
    np.testing.assert_array_equal(again.predict_proba(X), whole.predict_proba(X))
    assert again.solution_.energy == whole.solution_.energy
    assert [*tmp_path.iterdir()] == []


@few_steps
@pytest.mark.usefixtures("saved_often")
def test_a_fit_that_ends_leaves_no_file(tmp_path):
    path = tmp_path / "folder" / "fit"
    gp(checkpoint=str(path)).fit(X, Y)
    assert [*path.parent.iterdir()] == []


@few_steps
def test_a_quick_fit_is_never_written(tmp_path):
    gp(checkpoint=tmp_path / "folder" / "fit").fit(X, Y)
    assert [*tmp_path.iterdir()] == []


@few_steps
@pytest.mark.usefixtures("saved_often")
def test_checkpoints_of_other_fits_are_refused(interrupt, tmp_path):
    path = tmp_path / "fit"
    interrupt(2)
    with pytest.raises(KeyboardInterrupt):
        gp(checkpoint=path).fit(X, Y)
    kept = path.read_bytes()
    others = {
        "rows": (gp(), X + np.eye(40, 2), Y, None),
        "labels": (gp(), X, Y[::-1], None),
        "weights": (gp(), X, Y, np.append(2.0, np.ones(39))),
        "settings": (gp(learning_rate=0.05), X, Y, None),
        "kernel": (gp(kernel=kernels.RBF()), X, Y, None),
        "class": (deep(layers=()), X, Y, None),
    }
    for model, *rows in others.values():
        with pytest.raises(ValueError, match=r"checkpoint='.*fit' belongs to another fit, of other rows or settings"):
            model.set_params(checkpoint=path).fit(*rows)
        assert not hasattr(model, "classes_")
        assert path.read_bytes() == kept
    path.write_text("no checkpoint")
    with pytest.raises(ValueError, match=r"checkpoint='.*fit' is not the checkpoint of a fit.*remove it"):
        gp(checkpoint=path).fit(X, Y)


@few_steps
@pytest.mark.usefixtures("saved_often")
def test_a_write_that_fails_leaves_the_last_file(interrupt, tmp_path, monkeypatch):
    path = tmp_path / "fit"
    interrupt(2)
    with pytest.raises(KeyboardInterrupt):
        gp(checkpoint=path).fit(X, Y)
    kept = path.read_bytes()

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        gp(checkpoint=path, max_iter=80).fit(X, Y)
    assert [p.name for p in tmp_path.iterdir()] == ["fit"]
    assert path.read_bytes() == kept


# What is shown


@few_steps
@pytest.mark.parametrize("make", quick_first([gp, deep]))
def test_a_quiet_fit_writes_nothing(make, capsys):
    make().fit(X, Y).predict_proba(X)
    assert capsys.readouterr() == ("", "")


@few_steps
@pytest.mark.parametrize("make", quick_first([gp, deep]))
def test_a_line_says_steps_energy_and_time(make, capsys):
    model = make(verbose=1).fit(X, Y)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"learning: 40 steps, energy {model.solution_.trace[-1].energy:.2f}, ")
    assert err.endswith(" s\n")


@few_steps
@pytest.mark.parametrize("make", quick_first([gp, deep]))
def test_a_line_a_chunk(make, capsys):
    model = make(verbose=2).fit(X, Y)
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.strip().splitlines()
    assert len(lines) == 4
    for line, chunk in zip(lines, model.solution_.trace, strict=True):
        assert line.startswith(f"step {chunk.n_steps}  energy {chunk.energy:.3f}  rate {chunk.rate:.2g}")
