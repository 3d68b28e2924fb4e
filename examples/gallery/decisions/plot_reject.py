"""
Leaving hard cases to an expert
===============================

A third action, "ask an expert", has a known price and is always right. It pays where the model is unsure. The curve
shows what a decision is worth on average if the clearest rows are decided by the model, and how this falls with
harder ones.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

import posteriori as po

data = load_breast_cancer()
names = data.target_names[data.target]
X, X_new, y, y_new = train_test_split(data.data[:, :10], names, test_size=0.5, random_state=1, stratify=names)

costs = po.Utility.from_costs([[0, 20], [2, 0]], states=["malignant", "benign"], actions=["operate", "send home"])
with_expert = costs.with_reject(-0.5, "expert")
clinic = po.UtilityClassifier(po.BayesianSoftmaxRegression(), with_expert).fit(X, y)

# %%
# Left: the model's decisions, with their share in the mean utility. Right: the curve, without the expert.

fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), width_ratios=[1.15, 1], layout="constrained")
po.ConfusionUtilityDisplay.from_estimator(clinic, X_new, y_new, ax=left)
po.UtilityCurveDisplay.from_estimator(clinic.estimator_, X_new, y_new, costs, ax=right)
right.get_legend().remove()
right.axhline(-0.5, color="C1", linestyle="--", linewidth=1.5)
right.text(0.02, -0.49, "price of the expert", color="C1", va="bottom")
right.set(title="The clearest rows are worth more", ylim=(-0.8, 0.05))
left.set_title(f"Mean utility with the expert {clinic.score(X_new, y_new):.3f}")
plt.show()

two_actions = po.UtilityClassifier(po.BayesianSoftmaxRegression(), costs).fit(X, y).score(X_new, y_new)
print(f"mean utility without the expert {two_actions:.3f}")

# %%
# **Take-away.** Add the action that people really have, asking, with its price: the model then says itself for whom it
# pays.
