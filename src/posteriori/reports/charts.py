"""Charts of an evaluation as Vega-Lite specifications, and the script that draws them without a network.

Colours stand on a light and on a dark page alike; what must differ, such as the colour of text, is left to the page's
style sheet, which knows text and lines by their place in the drawing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

__all__ = ["MOST_NUMBERS", "bars", "confusion", "intervals", "reliability", "script"]

MOST_NUMBERS = 20
"""Classes up to which the cells of a confusion matrix have room for numbers."""

_MARK = "#3f7fc4"
_CELL = "#1f5fa8"
_ON_PALE, _ON_DARK = "#000", "#fff"
"""Numbers in cells. The style sheet turns the first into the page's own colour of text."""
_GREY = "#808080"
_STEP = 20
"""Height of a bar, in pixels."""
_SIDE = 340


def _altair() -> Any:
    try:
        import altair
        import vl_convert  # noqa: F401
    except ImportError:
        raise ImportError("The report needs Altair and vl-convert: pip install 'posteriori[report]'.") from None
    return altair


@cache
def script() -> str:
    """Vega, Vega-Lite and Vega-Embed in one piece, as they are in the installed package."""
    version = ".".join(_altair().SCHEMA_VERSION.split(".")[:2])  # v6.1.0: the bundle knows major and minor
    from vl_convert import javascript_bundle

    bundle = javascript_bundle(vl_version=version)  # type: ignore[call-arg]  # its stub asks for a snippet
    # the HTML parser must not see an end of the script in a string of it; names of one letter must not become global
    return "(() => {" + bundle.replace("</script", r"<\/script") + "})();"


def bars(labels: Sequence[str], values: Any, *, value: str) -> dict[str, Any]:
    """One horizontal bar for each label, in the order given."""
    alt = _altair()
    rows = [{"label": name, "value": _number(v)} for name, v in zip(labels, values, strict=True)]
    chart = _chart(alt, rows, height=_STEP * len(rows) + 4).mark_bar(color=_MARK, height={"band": 0.7})
    chart = chart.encode(
        x=alt.X("value:Q", title=value),
        y=_labels(alt),
        tooltip=[alt.Tooltip("label:N", title=" "), alt.Tooltip("value:Q", title=value, format=".4~g")],
    )
    return _finished(alt, chart)


def intervals(labels: Sequence[str], mean: Any, lower: Any, upper: Any, *, value: str) -> dict[str, Any]:
    """A point and an interval for each label."""
    alt = _altair()
    rows = [
        {"label": name, "mean": _number(m), "lower": _number(a), "upper": _number(b)}
        for name, m, a, b in zip(labels, mean, lower, upper, strict=True)
    ]
    base = _chart(alt, rows, height=_STEP * len(rows) + 4)
    tooltip = [alt.Tooltip("label:N", title=" ")]
    tooltip += [alt.Tooltip(f"{name}:Q", format=".4~g") for name in ("mean", "lower", "upper")]
    zero = alt.Chart(alt.Data(values=[{"zero": 0.0}])).mark_rule(color=_GREY).encode(x="zero:Q")
    y = _labels(alt)
    lines = base.mark_rule(color=_MARK, strokeWidth=2).encode(x=alt.X("lower:Q", title=value), x2="upper:Q", y=y)
    points = base.mark_point(color=_MARK, filled=True, opacity=1, size=55).encode(x="mean:Q", y=y, tooltip=tooltip)
    return _finished(alt, alt.layer(zero, lines, points).properties(width="container", height=_STEP * len(rows) + 4))


def reliability(probability: Any, frequency: Any, lower: Any, upper: Any, rows: Any) -> dict[str, Any]:
    """Frequency against probability with intervals; ticks along the bottom say how many rows a bin has."""
    alt = _altair()
    most = float(np.max(rows))
    data = [
        {"p": float(p), "f": float(f), "lower": float(a), "upper": float(b), "rows": int(m), "tick": 0.12 * m / most}
        for p, f, a, b, m in zip(probability, frequency, lower, upper, rows, strict=True)
    ]
    base = _chart(alt, data, height=_SIDE)
    unit = alt.Scale(domain=[0, 1], nice=False)
    x = alt.X("p:Q", scale=unit, title="probability of the most probable class")
    y = alt.Y("f:Q", scale=unit, title="how often it was the true one")
    tooltip = [
        alt.Tooltip("p:Q", title="mean probability", format=".3f"),
        alt.Tooltip("f:Q", title="frequency", format=".3f"),
        alt.Tooltip("lower:Q", title="from", format=".3f"),
        alt.Tooltip("upper:Q", title="to", format=".3f"),
        alt.Tooltip("rows:Q", title="rows"),
    ]
    ends = alt.Chart(alt.Data(values=[{"p": 0, "f": 0}, {"p": 1, "f": 1}]))
    diagonal = ends.mark_line(color=_GREY, strokeDash=[5, 4]).encode(x=x, y=y)
    ticks = base.mark_rule(color=_MARK, opacity=0.5, strokeWidth=6).encode(x=x, y=alt.Y("zero:Q"), y2="tick:Q")
    ticks = ticks.transform_calculate(zero="0")
    lines = base.mark_rule(color=_MARK, strokeWidth=2).encode(x=x, y="lower:Q", y2="upper:Q")
    points = base.mark_point(color=_MARK, filled=True, opacity=1, size=70).encode(x=x, y=y, tooltip=tooltip)
    layers = alt.layer(diagonal, ticks, lines, points)
    return _finished(alt, layers.properties(width="container", height=_SIDE))


def confusion(labels: Sequence[str], counts: np.ndarray) -> dict[str, Any]:
    """Cells as dark as the share of the true class they hold; empty ones are left out."""
    alt = _altair()
    K = len(labels)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    data = [
        {"truth": labels[k], "predicted": labels[j], "rows": counts[k, j].item(), "share": float(shares[k, j])}
        for k, j in zip(*np.nonzero(counts), strict=True)
    ]
    height = min(max(K * 34, 120), 34 * MOST_NUMBERS)
    base = _chart(alt, data, height=height)
    order = list(labels)
    crowded = K > MOST_NUMBERS
    x = alt.X(
        "predicted:N",
        sort=order,
        scale=alt.Scale(domain=order),
        title="most probable class",
        axis=alt.Axis(orient="top", labelAngle=-45 if K > 3 else 0, labelLimit=110, labelOverlap=crowded),
    )
    y = alt.Y(
        "truth:N",
        sort=order,
        scale=alt.Scale(domain=order),
        title="true class",
        axis=alt.Axis(labelLimit=110, labelOverlap=crowded),
    )
    # no shade on which neither dark nor white numbers are legible
    steps = alt.Scale(domain=[0, 0.5, 0.5001, 1], range=[0.1, 0.7, 0.87, 1])
    tooltip = [
        alt.Tooltip("truth:N", title="true class"),
        alt.Tooltip("predicted:N", title="most probable class"),
        alt.Tooltip("rows:Q"),
        alt.Tooltip("share:Q", title="of the true class", format=".1%"),
    ]
    shade = alt.FillOpacity("share:Q", scale=steps, legend=None)
    cells = base.mark_rect(color=_CELL, stroke=None).encode(x=x, y=y, fillOpacity=shade, tooltip=tooltip)
    if crowded:
        return _finished(alt, cells)
    size = 13 if K <= 10 else 10
    numbers = [
        base.transform_filter(condition)
        .mark_text(fontSize=size, color=colour)
        .encode(
            x=x, y=y, text=alt.Text("rows:Q", format=",.4~g" if counts.dtype.kind == "f" else ",d"), tooltip=tooltip
        )
        for condition, colour in (("datum.share <= 0.5", _ON_PALE), ("datum.share > 0.5", _ON_DARK))
    ]
    return _finished(alt, alt.layer(cells, *numbers).properties(width="container", height=height))


def _number(value: Any) -> float | None:
    """A number that JSON can hold: None, which is not drawn, for what is infinite."""
    return float(value) if np.isfinite(value) else None


def _chart(alt: Any, rows: list[dict[str, Any]], height: int) -> Any:
    return alt.Chart(alt.Data(values=rows)).properties(width="container", height=height)


def _labels(alt: Any) -> Any:
    """The labels from top to bottom, in the order of the data."""
    return alt.Y("label:N", sort=None, title=None, axis=alt.Axis(labelLimit=170))


def _finished(alt: Any, chart: Any) -> dict[str, Any]:
    """The specification, without a background and in the page's own font."""
    font = "system-ui, sans-serif"
    chart = chart.configure(background="transparent", font=font, autosize={"type": "fit-x", "contains": "padding"})
    chart = chart.configure_view(stroke=None)
    grey = {"domainColor": _GREY, "tickColor": _GREY, "labelColor": _GREY, "titleColor": _GREY}
    chart = chart.configure_axis(
        **grey, gridColor=_GREY, gridOpacity=0.25, labelFontSize=12, titleFontSize=12, titleFontWeight="normal"
    )
    return chart.to_dict()
