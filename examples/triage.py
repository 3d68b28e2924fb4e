"""Triage of breast tumours: what a decision is worth when mistakes do not cost the same.

A malignant tumour that is sent home costs 20, a benign one that is operated on costs 2; a second opinion costs 0.5 and
is always right. Argmax ignores all of this; a threshold tuned by scikit-learn knows the two costs but not the second
opinion; the action with the highest expected utility knows all three. Held-out folds say what each is worth.

    python examples/triage.py
"""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer
from sklearn.model_selection import RepeatedStratifiedKFold, TunedThresholdClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import posteriori as po

COSTS = po.Utility.from_costs([[0, 20], [2, 0]], states=["malignant", "benign"], actions=["operate", "send home"])
TRIAGE = COSTS.with_reject(-0.5, "second opinion")


def two_actions(predicted):
    """Labels as the actions they stand for."""
    return np.where(predicted == "malignant", "operate", "send home")


def utilities(y, actions):
    """What each action was worth."""
    rows = {state: k for k, state in enumerate(TRIAGE.states)}
    columns = {action: a for a, action in enumerate(TRIAGE.actions)}
    return np.array([TRIAGE.matrix[rows[state], columns[action]] for state, action in zip(y, actions, strict=True)])


def gain(y, predicted):
    """Mean utility of labels taken for actions: what scikit-learn tunes its threshold for."""
    return utilities(y, two_actions(predicted)).mean()


def main(n_repeats=4):
    """Print mean utility and gain over argmax, with standard errors over rows."""
    data = load_breast_cancer()
    X, y = data.data, np.where(data.target == 0, "malignant", "benign")
    logistic = make_pipeline(StandardScaler(), LogisticRegression())
    ways = {
        "argmax": lambda a, ya, b: two_actions(logistic.fit(a, ya).predict(b)),
        "threshold tuned by scikit-learn": lambda a, ya, b: two_actions(
            TunedThresholdClassifierCV(logistic, scoring=make_scorer(gain)).fit(a, ya).predict(b)
        ),
        "expected utility, two actions": lambda a, ya, b: po.UtilityClassifier(logistic, COSTS).fit(a, ya).predict(b),
        "expected utility, second opinion": lambda a, ya, b: (
            po.UtilityClassifier(logistic, TRIAGE).fit(a, ya).predict(b)
        ),
        "the same, Bayesian probabilities": lambda a, ya, b: (
            po.UtilityClassifier(po.BayesianSoftmaxRegression(), TRIAGE).fit(a, ya).predict(b)
        ),
    }
    realised = {name: np.zeros(len(y)) for name in ways}
    opinions = dict.fromkeys(ways, 0)
    for train, test in RepeatedStratifiedKFold(n_splits=5, n_repeats=n_repeats, random_state=0).split(X, y):
        for name, way in ways.items():
            actions = way(X[train], y[train], X[test])
            realised[name][test] += utilities(y[test], actions) / n_repeats
            opinions[name] += np.sum(actions == "second opinion")
    base = realised["argmax"]
    print(f"{'':34}{'mean utility':>14}{'gain over argmax':>26}{'second opinions':>18}")
    for name, worth in realised.items():
        difference = worth - base
        error = difference.std() / np.sqrt(len(y))
        share = opinions[name] / (n_repeats * len(y))
        print(f"{name:34}{worth.mean():>14.4f}{difference.mean():>+15.4f} +- {error:.4f}{share:>17.1%}")


if __name__ == "__main__":
    main()
