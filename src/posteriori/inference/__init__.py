"""How it is computed: solvers that take functions and return solutions with certificates."""

from posteriori.inference.automatic import Automatic
from posteriori.inference.descent import GradientDescent
from posteriori.inference.lbfgs import LBFGS
from posteriori.inference.newton import Newton, newton_decrement, newton_direction
from posteriori.inference.solution import BayesianSolution, Iterate, Solution, Status, TraceEntry, run
from posteriori.inference.solver import Solver
from posteriori.inference.stochastic import StochasticGradient

__all__ = [
    "LBFGS",
    "Automatic",
    "BayesianSolution",
    "GradientDescent",
    "Iterate",
    "Newton",
    "Solution",
    "Solver",
    "Status",
    "StochasticGradient",
    "TraceEntry",
    "newton_decrement",
    "newton_direction",
    "run",
]
