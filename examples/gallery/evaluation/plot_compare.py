"""
Comparing models
================

:func:`~posteriori.compare` fits each model once and judges it by rows left out. What counts is the standard error of
the *difference* of two log-losses, row by row, as models are often wrong about the same rows.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import posteriori as po

X, y = load_wine(return_X_y=True)
found = po.compare(
    {
        "softmax": po.SoftmaxRegression(),
        "Bayesian softmax": po.BayesianSoftmaxRegression(),
        "Gaussian classes": po.GaussianClassifier(),
        "forest": po.ForestClassifier(n_trees=150, random_state=0),
        "scikit-learn's logistic": make_pipeline(StandardScaler(), LogisticRegression()),
    },
    X,
    y,
)
print(found)

# %%
# Thick bars are one standard error of the difference from the best model, thin ones two.

display = po.ComparisonDisplay.from_comparison(found)
display.ax_.set_title("Five models of 178 wines, each row predicted without itself")
plt.show()

# %%
# **Take-away.** Do not compare the errors of two log-losses; look at the error of their difference.
