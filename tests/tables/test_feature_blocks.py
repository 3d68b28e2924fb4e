"""Which encoded columns belong together: what `TableEncoder` writes into names is what is read off them."""

import datetime

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from posteriori.tables.encoder import TableEncoder
from posteriori.tables.feature_blocks import feature_blocks

N = 60


def messy():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "mass": rng.normal(size=N),
            "age_years": rng.normal(size=N),
            "island": rng.choice(["Biscoe", "Dream", "Torgersen"], N),
            "sex": rng.choice(["f", "m"], N),
            "tame": rng.choice([True, False], N),
            "formula": rng.choice(["x=1", "x=2", "y>=3"], N),
            "seen": [datetime.datetime(2024, 1, 1) + datetime.timedelta(days=37 * n, hours=5 * n) for n in range(N)],
        }
    )
    table.loc[:9, ["mass", "island"]] = None
    return table


def test_blocks_of_an_encoded_table():
    encoder = TableEncoder().fit(messy())
    found = dict(zip(encoder.get_feature_names_out(), encoder.get_feature_blocks_out(), strict=True))
    assert found == {
        "mass": "(numbers)",
        "mass_missing": "(missing)",
        "age_years": "(numbers)",
        "island=Biscoe": "island",
        "island=Dream": "island",
        "island=Torgersen": "island",
        "island=(missing)": "island",
        "sex=m": "(two levels)",
        "tame": "(numbers)",
        "formula=x=1": "formula",
        "formula=x=2": "formula",
        "formula=y>=3": "formula",
        "seen_years": "(numbers)",
        "seen_month_sin": "seen",
        "seen_month_cos": "seen",
        "seen_weekday_sin": "seen",
        "seen_weekday_cos": "seen",
        "seen_hour_sin": "seen",
        "seen_hour_cos": "seen",
    }


def test_arrays_have_blocks_although_their_columns_have_no_names():
    rows = [[n / 7, "abc"[n % 3]] for n in range(N)]
    assert TableEncoder().fit(rows).get_feature_blocks_out().tolist() == ["(numbers)", "x1", "x1", "x1"]


def test_names_of_strangers_are_numbers():
    assert feature_blocks(["length", "depth", "island_Dream"]) == ["(numbers)"] * 3
    assert feature_blocks([]) == []


def test_blocks_of_nothing():
    with pytest.raises(NotFittedError):
        TableEncoder().get_feature_blocks_out()
