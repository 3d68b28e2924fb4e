"""A climb in chunks on hills of one dimension: when it slows down, when it ends, and what it does about NaN."""

import numpy as np
import pytest

pytest.importorskip("jax")

from posteriori.gp.ascent import ascend
from posteriori.gp.checkpoint import Position
from posteriori.solvers.solution import Status

TOP, HEIGHT, CHUNK = 3.0, -10.0, 20
JITTERS = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2]


def hill(x):
    return HEIGHT - (x - TOP) ** 2


def uphill(x, first, rate, jitter):
    """Twenty steps along the slope, and what each of them has seen."""
    energies = []
    for _ in range(CHUNK):
        energies.append(hill(x))
        x = x + rate * 2.0 * (TOP - x)
    return x, np.array(energies)


class Noisy:
    """The same with noise in what is seen, a different one at every chunk."""

    def __init__(self, sd, advance=uphill):
        self.sd, self.advance = sd, advance

    def __call__(self, x, first, rate, jitter):
        after, energies = self.advance(x, first, rate, jitter)
        return after, energies + np.random.default_rng(first).normal(scale=self.sd, size=CHUNK)


def climb(advance=uphill, x=0.0, rate=0.01, tol=1e-3, max_iter=10_000, at=None, **options):
    return ascend(advance, x, at or Position(0, rate), tol=tol, max_iter=max_iter, **options)


# When it ends


def test_it_ends_at_the_top():
    end = climb()
    assert end.status is Status.CONVERGED
    assert end.state == pytest.approx(TOP, abs=0.1)
    assert hill(end.state) == pytest.approx(HEIGHT, abs=0.01)
    energies = [chunk.energy for chunk in end.trace]
    assert (np.diff(energies) > 0.0).all()
    assert end.n_steps == CHUNK * len(end.trace) == end.trace[-1].n_steps
    assert end.jitter == JITTERS[0]
    assert (np.diff([chunk.seconds for chunk in end.trace]) >= 0.0).all()


def test_three_cuts_of_the_rate_are_its_end():
    """Each where the energy rises by less than tol of its size from one chunk to the next."""
    end = climb()
    energies = np.array([chunk.energy for chunk in end.trace])
    rests = np.append(False, np.diff(energies) < 1e-3 * np.abs(energies[1:]))
    assert rests.sum() == 3
    assert rests[-1]
    np.testing.assert_allclose([chunk.rate for chunk in end.trace], 0.01 * 0.3 ** np.cumsum(rests), rtol=1e-12)


def test_a_smaller_tolerance_climbs_higher():
    ends = [climb(tol=tol) for tol in (1e-1, 1e-3, 1e-5)]
    gaps = [HEIGHT - hill(end.state) for end in ends]
    assert gaps[0] > 10 * gaps[1] > 100 * gaps[2]
    assert ends[0].n_steps < ends[1].n_steps < ends[2].n_steps


def test_the_scale_of_an_energy_does_not_matter():
    """Beyond one: a rise is measured by the energy's own size."""

    def larger(x, first, rate, jitter):
        after, energies = uphill(x, first, rate, jitter)
        return after, 1e6 * energies

    assert climb(larger).n_steps == climb().n_steps
    assert climb(larger).state == climb().state


def test_it_ends_after_so_many_steps():
    end = climb(max_iter=60)
    assert end.status is Status.ITERATION_LIMIT
    assert end.n_steps == 60


def test_no_steps_leave_everything_as_it_is():
    def never(*_):
        raise AssertionError

    end = climb(never, x=1.5, max_iter=0)
    assert (end.state, end.n_steps, end.trace, end.status) == (1.5, 0, [], Status.ITERATION_LIMIT)


def test_the_best_state_is_kept_where_the_way_leads_down_again():
    """Steps so long that they jump over the top, further each time."""

    def too_long(x, first, rate, jitter):
        return uphill(x, first, 1.05 if first >= 60 else 0.01, jitter)

    end = climb(too_long, max_iter=120)
    assert min(chunk.energy for chunk in end.trace) < HEIGHT - 5.0
    best = climb(max_iter=60).state
    assert end.state == best


# Noise


def test_noise_alone_ends_a_climb():
    """On a plain nothing rises but by chance."""
    end = climb(Noisy(1.0, lambda x, *_: (x, np.full(CHUNK, -100.0))), tol=1e-6, max_iter=20_000, noisy=1)
    assert end.status is Status.CONVERGED
    assert len(end.trace) < 200


def test_a_slope_beneath_the_noise_is_climbed():
    """Sixteen steps of the energy's noise, taken a little at a time: it is not left halfway."""
    end = climb(Noisy(0.5), rate=0.002, tol=1e-5, noisy=1)
    assert end.status is Status.CONVERGED
    assert HEIGHT - hill(end.state) < 0.5


def test_of_few_noisy_chunks_the_last_is_kept():
    """Steps taken are not thrown away because there were not enough of them to be sure."""
    seen = []
    end = climb(Noisy(0.01), max_iter=80, noisy=1, watch=lambda *now: seen.append(now))
    assert end.state == seen[-1][0]
    assert end.n_steps == 80


def test_no_climb_ends_on_long_steps():
    """Where all steps are needed, the second half of them is shorter, and the last quarter shorter still."""
    end = climb(Noisy(0.01), rate=1e-4, max_iter=1600, noisy=1)
    rates = 1e-4 * 0.3 ** np.repeat([0, 1, 2], [40, 20, 20])
    np.testing.assert_allclose([1e-4, *(chunk.rate for chunk in end.trace[:-1])], rates, rtol=1e-12)
    assert end.status is Status.ITERATION_LIMIT


def test_every_rate_serves_half_as_long_as_the_one_before():
    end = climb(Noisy(0.5), rate=0.002, tol=1e-5, noisy=1)
    _, counts = np.unique([chunk.rate for chunk in end.trace], return_counts=True)
    served = counts[::-1]
    assert served[1] >= (served[0] + 1) // 2 - 1
    assert served[2] >= served[1] // 2 - 1


# What is no number


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("enough", JITTERS[1:])
def test_jitter_is_raised_until_it_is_enough(value, enough):
    asked = []

    def delicate(x, first, rate, jitter):
        asked.append((first, rate, jitter))
        after, energies = uphill(x, first, rate, jitter)
        if first >= 40 and jitter < enough:
            return np.nan, np.where(np.arange(CHUNK) == 7, value, energies)
        return after, energies

    end = climb(delicate)
    assert end.status is Status.CONVERGED
    assert end.jitter == enough
    assert hill(end.state) > HEIGHT - 0.3
    tries = JITTERS.index(enough)
    # the same chunk again and again: a step of jitter, and half the rate, each time
    assert asked[2 : 3 + tries] == [(40, 0.01 * 0.5**i, JITTERS[i]) for i in range(tries + 1)]
    assert [chunk.n_steps for chunk in end.trace] == [*range(CHUNK, end.n_steps + 1, CHUNK)]  # nothing twice
    assert np.isfinite([chunk.energy for chunk in end.trace]).all()


def test_after_the_last_jitter_there_is_a_sentence():
    with pytest.raises(FloatingPointError, match=r"ceased to be finite, even with a jitter of 0\.01.*check X.*fewer"):
        climb(lambda x, *_: (x, np.full(CHUNK, np.nan)))


def test_a_state_that_led_to_nan_is_not_where_it_goes_on():
    begun = []

    def delicate(x, first, rate, jitter):
        begun.append(x)
        after, energies = uphill(x, first, rate, jitter)
        return (np.nan, np.full(CHUNK, np.nan)) if first == 40 and jitter < 1e-4 else (after, energies)

    climb(delicate, max_iter=60)
    assert begun[2] == begun[3] == begun[4] == climb(max_iter=40).state


# Interruptions


def interrupted_at(n):
    def advance(x, first, rate, jitter):
        if first == n * CHUNK:
            raise KeyboardInterrupt
        return uphill(x, first, rate, jitter)

    return advance


def test_an_interruption_keeps_what_was_reached():
    end = climb(interrupted_at(3))
    assert end.status is Status.INTERRUPTED
    assert end.n_steps == 60
    assert end.state == climb(max_iter=60).state


def test_an_interruption_of_those_who_watch_is_one_too():
    def watch(state, at, chunk):
        if chunk.n_steps == 60:
            raise KeyboardInterrupt

    end = climb(watch=watch)
    assert end.status is Status.INTERRUPTED
    assert end.state == climb(max_iter=60).state


def test_before_the_first_chunk_there_is_nothing_to_keep():
    with pytest.raises(KeyboardInterrupt):
        climb(interrupted_at(0))


@pytest.mark.parametrize("noisy", [0, 1])
@pytest.mark.parametrize("n", [1, 5, 10])
def test_from_any_position_it_goes_on_as_if_nothing_had_happened(n, noisy):
    seen = []
    advance = Noisy(0.01) if noisy else uphill
    whole = climb(advance, noisy=noisy, watch=lambda *now: seen.append(now))
    state, at, chunk = seen[n - 1]
    assert chunk.n_steps == at.n_steps
    rest = climb(advance, x=state, at=at, noisy=noisy)
    assert rest.status is whole.status
    assert rest.state == whole.state
    assert [c[:3] for c in rest.trace] == [c[:3] for c in whole.trace[n:]]


@pytest.mark.parametrize("noisy", [0, 1])
def test_a_climb_that_had_ended_goes_no_further(noisy):
    """Kept after its last chunk, and taken up again because what followed was interrupted."""
    seen = []
    advance = Noisy(0.01) if noisy else uphill
    whole = climb(advance, noisy=noisy, watch=lambda *now: seen.append(now))
    state, at, _ = seen[-1]
    rest = climb(advance, x=state, at=at, noisy=noisy)
    assert (rest.status, rest.n_steps, rest.state) == (whole.status, whole.n_steps, state)
