"""
Separated classes have no maximum
=================================

If a line tells two classes apart without error, the likelihood grows without limit as the weights grow: there is no
maximum. Many programs stop somewhere and return large numbers. Here the fit says what happened, and a prior gives a
finite answer.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

import posteriori as po

x = np.array([1.0, 1.4, 1.9, 2.3, 2.6, 3.1, 3.3, 3.8])
y = np.array([0, 0, 0, 0, 1, 1, 1, 1])  # everything above 2.45 is of class 1

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    likelihood = po.SoftmaxRegression(alpha=0).fit(x[:, None], y)
print(likelihood.solution_.status)
print(f"{caught[0].category.__name__}: {caught[0].message}")

# %%
# The weaker the prior, the larger the slope, without end. Jeffreys' prior has no strength to choose, and is finite too.

alphas = np.logspace(0, -10, 41)
slopes = [np.diff(po.SoftmaxRegression(alpha).fit(x[:, None], y).coef_[:, 0])[0] for alpha in alphas]

fig, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4), layout="constrained")
left.plot(alphas, slopes, color="C0")
left.set(xscale="log", xlabel="precision of the prior", ylabel="slope of the logit", xlim=(1, 1e-10), ylim=(0, None))
left.set_title("The slope grows as the prior fades")
x_new = np.linspace(0, 5, 200)
curves = {
    "precision 1e-10": po.SoftmaxRegression(1e-10).fit(x[:, None], y),
    "precision 0.1": po.BayesianSoftmaxRegression(0.1).fit(x[:, None], y),
    "Jeffreys": po.BayesianSoftmaxRegression("jeffreys").fit(x[:, None], y),
}
for name, model in curves.items():
    right.plot(x_new, model.predict_proba(x_new[:, None])[:, 1], label=name)
right.plot(x, y, "o", color="C6", markersize=5)
right.set(xlabel="x", ylabel="probability of class 1", title="Eight rows, three answers")
right.legend(loc="center right")
plt.show()

# %%
# **Take-away.** Large coefficients with huge standard errors are a sign of separation; a prior, or Jeffreys'
# correction, is the remedy, and a ``SeparationWarning`` tells you when you need it.
