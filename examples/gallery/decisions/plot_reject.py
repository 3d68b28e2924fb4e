"""
Leaving hard cases to an expert
===============================

A tumour is operated on or not, and mistakes have their costs. A third action, "ask the expert", has a known price and
is always right. It pays where the model is unsure.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

import posteriori as po

data = load_breast_cancer()
names = data.target_names[data.target]
X, X_new, y, y_new = train_test_split(data.data[:, :10], names, test_size=0.5, random_state=1, stratify=names)

two = po.Utility.from_costs([[0, 20], [2, 0]], states=["malignant", "benign"], actions=["operate", "send home"])
three = two.with_reject(-0.5, "expert")
model = po.BayesianSoftmaxRegression().fit(X, y)
clinic = po.UtilityClassifier(model, three).fit(X, y)

# %%
# Left: how often each action was taken, and its share in the mean utility. Right: the same with two actions, and with
# the action that is right for the most probable class.

most_probable = np.where(model.predict(X_new) == "malignant", "operate", "send home")
worth = {
    "most probable\nclass": two.matrix[
        (y_new == "benign").astype(int), (most_probable == "send home").astype(int)
    ].mean(),
    "two actions": po.UtilityClassifier(model, two).fit(X, y).score(X_new, y_new),
    "three actions": clinic.score(X_new, y_new),
}

fig, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4.2), width_ratios=[1.3, 1], layout="constrained")
po.ConfusionUtilityDisplay.from_estimator(clinic, X_new, y_new, ax=left)
left.set_title("With three actions, one of them the expert")
right.bar(list(worth), list(worth.values()), color=["C1", "C5", "C0"])
right.axhline(0, color="0.6", linewidth=1)
right.set(ylabel="mean utility", title="What deciding is worth")
plt.show()

# %%
# **Take-away.** Add the action that people really have, asking, with its price: the model then says itself for whom it
# pays.
