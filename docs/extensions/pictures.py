"""Pictures of the gallery have the style of the site: sphinx-gallery would reset it to matplotlib's own."""

from pathlib import Path
from typing import Any

STYLE = Path(__file__).parents[1] / "posteriori.mplstyle"


def use_style(gallery_conf: dict[str, Any], example: str) -> None:
    """Draw the next example in the site's style, whatever the one before has set."""
    import matplotlib.pyplot as plt

    plt.rcdefaults()
    plt.style.use(STYLE)
