"""
Costs flip decisions
====================

The most probable class is the best choice only if all mistakes cost the same. Here a poisonous mushroom taken for an
edible one costs twenty times as much as an edible one thrown away. The probabilities are the same in both panels; the
decisions are not.
"""

import matplotlib.pyplot as plt
import numpy as np

import posteriori as po

rng = np.random.default_rng(0)
y = np.repeat(["edible", "poisonous"], 100)
X = np.array([[0.0, 0.0], [2.0, 1.0]])[(y == "poisonous").astype(int)] + rng.normal(size=(200, 2))
model = po.BayesianSoftmaxRegression().fit(X, y)

states = ["edible", "poisonous"]
equal = po.Utility([[0, -1], [-1, 0]], states, actions=["eat", "throw away"])
deadly = po.Utility([[0, -1], [-20, 0]], states, actions=["eat", "throw away"])

# %%
# Throwing away is better as soon as the probability of poison is above 1 / 21, not 1 / 2.

fig, axes = plt.subplots(1, 2, figsize=(9.5, 4.4), sharex=True, sharey=True, layout="constrained")
for ax, (name, utility) in zip(axes, {"equal costs": equal, "poison costs 20": deadly}.items(), strict=True):
    po.DecisionRegionDisplay.from_estimator(model, X, y, utility, ax=ax)
    ax.set(title=name, xlabel="colour of the cap", ylabel="")
    ax.get_legend().remove()
axes[0].set_ylabel("smell")
handles, labels = axes[0].get_legend_handles_labels()
fig.legend(handles, labels, loc="outside lower center", ncols=2)
fig.suptitle("The same probabilities, other costs, another border")
plt.show()

# %%
# **Take-away.** State what mistakes cost, and let :func:`~posteriori.decide` find the border; do not tune a threshold
# by hand.
