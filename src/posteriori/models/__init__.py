"""What is believed: parameters, priors and log joint densities, as sums over blocks of rows."""
