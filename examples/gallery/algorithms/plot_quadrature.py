r"""
The integral behind the argmax node
===================================

A Gaussian process predicts the class whose latent is the largest. Where the latents are independent, :math:`h_k \sim
N(\mu_k, v_k)`, class :math:`y` wins with probability

.. math:: Z_y = \int N(t; \mu_y, v_y) \prod_{k \ne y} \Phi\Big(\frac{t - \mu_k}{\sqrt{v_k}}\Big)\, dt .

Gauss-Hermite quadrature replaces the integral by a sum over a few nodes. Its nodes are where the latent of class y
is, and that may be the wrong place.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

variance, rival_variance = 1.0, 0.05


def factors(t, difference):
    """The density of the latent of class y, and the probability that its two rivals are below t."""
    return norm.pdf(t, 0, np.sqrt(variance)), norm.cdf((t - difference) / np.sqrt(rival_variance)) ** 2


def gauss_hermite(difference, n_nodes):
    """The sum over nodes at the latent of class y."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    return weights @ factors(np.sqrt(variance) * nodes, difference)[1] / weights.sum()


def exact(difference):
    """The integral, on a fine grid."""
    t = np.linspace(-10, 14, 4001)
    return np.trapezoid(np.prod(factors(t, difference), axis=0), t)


# %%
# On the left, a rival whose mean is four higher: the integrand is where the density is almost zero, and few nodes
# are there. On the right, the error for rivals that are higher and higher.

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
t = np.linspace(-4, 7, 400)
density, below = factors(t, 4.0)
left.fill_between(t, density * below / (density * below).max(), color="C1", alpha=0.4, linewidth=0, label="integrand")
left.plot(t, density / density.max(), color="C0", label="latent of the class")
left.plot(t, below, color="C6", linewidth=1.2, linestyle="--", label="rivals are below")
nodes = np.polynomial.hermite_e.hermegauss(20)[0]
left.plot(nodes, np.zeros(20), "|", color="C2", markersize=14, markeredgewidth=1.5, label="20 nodes")
left.set(xlim=(-4, 7), ylim=(-0.08, 1.75), yticks=[], xlabel="latent", title="Most nodes miss the integrand")
left.legend(loc="upper left", ncols=2)

differences = np.linspace(0, 6, 49)
truth = np.array([exact(d) for d in differences])
for k, n in enumerate([10, 20, 40]):
    estimate = np.array([gauss_hermite(d, n) for d in differences])
    right.plot(differences, np.maximum(np.abs(estimate / truth - 1), 1e-6), color=f"C{k}", label=f"{n} nodes")
right.set(yscale="log", ylim=(1e-4, 3), xlabel="by how much the rivals are higher", ylabel="relative error of Z")
right.set_title("The less likely the class, the larger the error")
right.legend(loc="lower right")
plt.show()

# %%
# **Take-away.** An unlikely label is where a fit learns most, and where nodes at the latent's mean are worst.
# posteriori finds the mode of the integrand first and puts its nodes there: section 6.2 of the theory has the formulas.
