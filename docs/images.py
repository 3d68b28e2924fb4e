"""Make the picture of the README from an example of the gallery: ``python docs/images.py``."""

import runpy
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
from PIL import Image

HERE = Path(__file__).parent

if __name__ == "__main__":
    plt.style.use(HERE / "posteriori.mplstyle")
    runpy.run_path(str(HERE.parent / "examples" / "gallery" / "models" / "plot_regions.py"))
    (HERE / "images").mkdir(exist_ok=True)
    picture = HERE / "images" / "regions.png"
    plt.gcf().savefig(picture, dpi=110)
    Image.open(picture).convert("RGB").quantize(128).save(picture, optimize=True)
