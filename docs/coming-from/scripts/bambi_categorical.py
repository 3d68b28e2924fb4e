"""The Bambi side of docs/coming-from/brms-bambi.md.

From this folder, ``python bambi_categorical.py > ../recorded/bambi_categorical.txt``
prints what the page shows, and writes the numbers with all digits to
../recorded/bambi_categorical.json.
"""

import json
from importlib.metadata import version
from pathlib import Path

import arviz as az
import bambi as bmb
import numpy as np
import pandas as pd

HERE = Path(__file__).parent
BUNDLED = HERE.parents[2] / "src" / "posteriori" / "tables" / "bundled"
SHOWN = pd.DataFrame({"flipper": [-2.0, 0.0, 0.0, 1.0], "mass": [-1.0, -0.5, 0.5, 0.0]})


def main() -> None:
    """Sample the posterior by NUTS, and write its moments and predictions."""
    penguins = pd.read_csv(BUNDLED / "penguins.csv")[["species", "flipper_length_mm", "body_mass_g"]].dropna()
    for name, column in {"flipper": "flipper_length_mm", "mass": "body_mass_g"}.items():
        penguins[name] = (penguins[column] - penguins[column].mean()) / penguins[column].std(ddof=0)
    priors = {
        "Intercept": bmb.Prior("Normal", mu=0, sigma=5),
        "flipper": bmb.Prior("Normal", mu=0, sigma=2),
        "mass": bmb.Prior("Normal", mu=0, sigma=2),
    }
    model = bmb.Model("species ~ flipper + mass", penguins, family="categorical", priors=priors)
    draws = model.fit(draws=4000, tune=1000, chains=4, cores=1, random_seed=1, progressbar=False)
    print(az.summary(draws, var_names=["Intercept", "flipper", "mass"], kind="stats"))

    model.predict(draws, data=SHOWN, kind="response_params")
    probabilities = np.concatenate(np.asarray(draws.posterior["p"]))
    lower, upper = np.quantile(probabilities, [0.025, 0.975], axis=0)
    print("\nprobabilities of four new penguins", probabilities.mean(axis=0).round(3), sep="\n")
    print("lower ends of 95 % intervals", lower.round(3), sep="\n")
    print("upper ends", upper.round(3), sep="\n")

    theta = [np.concatenate(np.asarray(draws.posterior[name])) for name in ("Intercept", "flipper", "mass")]
    versions = {name: version(name) for name in ("bambi", "pymc")}
    print("\nversions", *(f"{name} {number}" for name, number in versions.items()))
    numbers = {
        "versions": versions,
        "coefficients": ["Intercept", "flipper", "mass"],
        "classes": ["Chinstrap", "Gentoo"],
        "means": np.array([draw.mean(axis=0) for draw in theta]).tolist(),
        "sds": np.array([draw.std(axis=0) for draw in theta]).tolist(),
        "probabilities": probabilities.mean(axis=0).tolist(),
        "lower": lower.tolist(),
        "upper": upper.tolist(),
    }
    (HERE.parent / "recorded" / "bambi_categorical.json").write_text(json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    main()
