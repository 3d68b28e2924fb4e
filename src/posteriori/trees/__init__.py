"""Ensembles of decision trees: forests of randomised trees, and boosted trees."""
