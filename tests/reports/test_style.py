"""The colours of page and report: legible, and told apart by colour-blind people, on light, dark and paper."""

import re
from itertools import combinations

import numpy as np
import pytest

from posteriori.reports import page

STYLE = page._read("style.css")
SERIES = [f"c{i}" for i in range(7)]
VISION = {
    "normal": np.eye(3),
    # Machado, Oliveira and Fernandes (2009), the strongest form of each, in linear RGB
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def colours(scheme):
    blocks = re.findall(r":root \{(.*?)\}", STYLE, re.S)
    light, dark, printed = (
        {name: np.array([int(text[i : i + 2], 16) for i in (0, 2, 4)]) / 255 for name, text in found}
        for found in (re.findall(r"--([\w-]+): #(\w{6});", blocks[b]) for b in (0, 1, -1))
    )
    assert set(dark) == set(light)
    return {"light": light, "dark": dark, "print": light | printed}[scheme]


def linear(c):
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(a, b):
    """The contrast of WCAG."""
    high, low = sorted([linear(a) @ TO_XYZ[1], linear(b) @ TO_XYZ[1]], reverse=True)
    return (high + 0.05) / (low + 0.05)


def lab(c, vision):
    """CIELAB, in which distances are about as large as they are seen."""
    xyz = TO_XYZ @ np.clip(np.asarray(VISION[vision]) @ linear(c), 0, 1) / [0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_text_and_borders_stand_out(scheme):
    colour = colours(scheme)
    for behind in ("page", "box"):
        for name in ("text", "quiet", "link", "wrong"):
            assert contrast(colour[name], colour[behind]) >= 4.5, (name, behind)
        assert contrast(colour["field"], colour[behind]) >= 3, behind  # borders of inputs
    assert contrast(colour["text"], colour["wrong-page"]) >= 4.5
    for name in (*SERIES, "cell", "error"):
        assert contrast(colour[name], colour["page"]) >= 3, name


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_numbers_in_cells_are_legible(scheme):
    colour = colours(scheme)
    formula = r"part <= 0\.5 \? ([\d.]+) \+ ([\d.]+) \* part : ([\d.]+) \+ ([\d.]+) \* part"
    a, b, c, d = map(float, re.search(formula, page._read("charts.js")).groups())
    for name in ("cell", "error"):
        for share in np.linspace(0, 1, 101):
            opacity, number = (a + b * share, "text") if share <= 0.5 else (c + d * share, "on-cell")
            shown = opacity * colour[name] + (1 - opacity) * colour["box"]
            assert contrast(shown, colour[number]) >= 4.5, (name, share)


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_series_are_told_apart(scheme, vision):
    colour = colours(scheme)
    for a, b in [*combinations(SERIES, 2), ("cell", "error")]:
        assert np.linalg.norm(lab(colour[a], vision) - lab(colour[b], vision)) > 14, (a, b)
