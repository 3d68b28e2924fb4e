"""Benchmarks of posteriori against its peers: ``python -m benchmarks --help``."""
