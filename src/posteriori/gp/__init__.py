"""Gaussian processes: latent functions of the classes, in one layer or several, by expectation propagation."""
