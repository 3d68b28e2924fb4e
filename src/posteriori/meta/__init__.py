"""Estimators of estimators, and what is done with any classifier: decide, calibrate, compare, predict to a file."""
