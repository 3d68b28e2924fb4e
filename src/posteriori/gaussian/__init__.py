"""Gaussian classes: one Gaussian for each class, by maximum likelihood, by MAP, or integrated out."""
