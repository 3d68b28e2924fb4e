"""The line search: the full step where it is good, a shorter one where it is not, nothing where nothing falls."""

import numpy as np
import pytest

from posteriori.solvers.line_search import line_search


class Counted:
    """J of one variable and its slope, as the search wants them; remembers where it was evaluated."""

    def __init__(self, value, slope):
        self.value, self.slope, self.visited = value, slope, []

    def __call__(self, theta):
        x = float(theta[0, 0])
        self.visited.append(x)
        return float(self.value(x)), np.array([[float(self.slope(x))]])

    def search(self, x, direction, **options):
        theta = np.array([[x]])
        value, gradient = self(theta)
        self.visited.clear()
        found = line_search(self, theta, value, gradient, np.array([[direction]]), **options)
        return None if found is None else (float(found[0][0, 0]), found[1], float(found[2][0, 0]))


def parabola(offset=0.0):
    return Counted(lambda x: 0.5 * x * x + offset, lambda x: x)


def log_cosh():
    return Counted(lambda x: np.logaddexp(x, -x), np.tanh)


def barrier():
    """x - log x, infinite at and below zero; least at one."""
    return Counted(lambda x: x - np.log(x) if x > 0 else np.inf, lambda x: 1 - 1 / x if x > 0 else np.nan)


@pytest.mark.parametrize("direction", [-0.1, -1.0, -1.9])
def test_full_step_is_taken_when_good(direction):
    J = parabola()
    x = 1.0 + direction
    assert J.search(1.0, direction) == (x, 0.5 * x * x, x)
    assert J.visited == [x]


@pytest.mark.parametrize("direction", [-2.0, -3.0, -15.0])
def test_overshooting_is_shortened_to_the_minimum_of_the_cubic(direction):
    """Through a parabola the cubic is the parabola itself: the second trial is its minimum."""
    J = parabola()
    x, value, slope = J.search(1.0, direction)
    assert (x, value, slope) == pytest.approx((0.0, 0.0, 0.0), abs=1e-12)
    assert len(J.visited) == 2


@pytest.mark.parametrize("make", [log_cosh, parabola])
@pytest.mark.parametrize("start", [3.0, 30.0])
@pytest.mark.parametrize("direction", [-5.0, -100.0, -1e4])
@pytest.mark.parametrize("flat", [0.9, 0.5])
def test_shortened_steps_fall_enough_and_are_flat_enough(make, start, direction, flat):
    J = make()
    value, slope = J.value(start), J.slope(start) * direction
    x, found, g = J.search(start, direction, flat=flat)
    t = (x - start) / direction
    assert 0 < t <= 1
    assert found <= value + 1e-4 * t * slope
    assert (found, g) == (J.value(x), J.slope(x))
    assert t == 1 or abs(g * direction) <= flat * abs(slope)


@pytest.mark.parametrize("direction", [-50.0, -1e6, -1e12])
def test_trials_that_are_not_finite_are_shortened(direction):
    J = barrier()
    x, value, _ = J.search(10.0, direction)
    assert 0 < x < 10
    assert value < J.value(10.0)
    assert not np.isfinite(J.value(J.visited[0]))


def test_not_finite_anywhere_gives_up():
    J = Counted(lambda x: 1.0 if x == 0 else np.nan, lambda x: 1.0)
    assert J.search(0.0, -1.0, max_trials=12) is None
    assert len(J.visited) == 12


@pytest.mark.parametrize("direction", [1.0, 0.0, np.nan])
def test_no_descent_direction_costs_nothing(direction):
    J = parabola()
    assert J.search(1.0, direction) is None
    assert J.visited == []


def test_one_trial_is_all_or_nothing():
    assert parabola().search(1.0, -1.0, max_trials=1)[0] == 0.0
    assert parabola().search(1.0, -3.0, max_trials=1) is None


@pytest.mark.parametrize("noise", [0.0, 1e-7])
def test_decrease_lost_in_rounding_is_accepted_when_the_slope_falls(noise):
    """At J = 1e8 a fall of 5e-11 cannot be seen, and a rise of 1e-7 may be rounding."""
    J = parabola(offset=1e8)
    exact = J.value
    J.value = lambda x: exact(x) + noise * (x == 0)
    assert J.value(0.0) >= J.value(1e-5)
    x, _, slope = J.search(1e-5, -1e-5)
    assert (x, slope) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("rise", "slope_after"),
    [(0.0, 1.0), (1e-3, 0.0)],
    ids=["slope does not fall", "rise beyond rounding"],
)
def test_no_decrease_without_excuse_is_refused(rise, slope_after):
    J = Counted(lambda x: 1e6 + (rise if x < 1 else 0.0), lambda x: 1.0 if x == 1 else slope_after)
    assert J.search(1.0, -1.0, max_trials=1) is None
    assert J.visited == [0.0]
