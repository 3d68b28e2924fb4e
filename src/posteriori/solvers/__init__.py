"""Optimisation of any smooth problem: solvers that take a problem and return a solution with its certificate."""
