"""
The certificate of a fit
========================

How near is a fit to the optimum? ``solution_.gap`` estimates the distance of the objective from its minimum, and
``trace`` has that estimate for the iterations that made one. It is compared here with the true distance, which needs
the minimum itself.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine

import posteriori as po

X, y = load_wine(return_X_y=True)  # raw columns, from 0.13 to 1680
best = po.SoftmaxRegression(1.0).fit(X, y).solution_
print(best.status)
print(f"J = {best.objective:.6f}, proven to be at most {best.gap_bound:.0e} above the minimum")

# %%
# Two solvers on raw columns. Dots are estimates made during the fit, lines the true distance afterwards.

fig, ax = plt.subplots(layout="constrained")
for k, (name, solver) in enumerate({"Newton": po.Newton(), "L-BFGS": po.LBFGS()}.items()):
    solution = po.SoftmaxRegression(1.0, solver=solver, tol=1e-12).fit(X, y).solution_
    above = np.array([entry.objective for entry in solution.trace]) - best.objective
    estimates = [(i, entry.gap) for i, entry in enumerate(solution.trace) if entry.gap is not None]
    ax.plot(np.maximum(above, 1e-13), color=f"C{k}", label=f"{name}, true distance")
    ax.plot(*np.transpose(estimates), "o", color=f"C{k}", markersize=5, label=f"{name}, estimate")
ax.set(yscale="log", ylim=(1e-11, 1e3), xlabel="iteration", ylabel="distance from the minimum, nats")
ax.set_title("Estimates of the gap agree with the true distance")
ax.legend()
plt.show()

# %%
# **Take-away.** You need not raise ``max_iter`` and hope: a fit says how far it is from the optimum.
