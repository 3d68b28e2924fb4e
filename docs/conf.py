"""Settings of the documentation site: `make docs` builds it into docs/_build/html, without a network."""

import os
import sys
import warnings
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT), str(DOCS)]

# Code cells and the commands in them run in processes of their own, with this Python and these sources.
os.environ["PYTHONPATH"] = str(ROOT / "src")
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("POSTERIORI_JAX_CACHE", "off")
os.environ.setdefault("COLUMNS", "100")
os.environ["MATPLOTLIBRC"] = str(DOCS / "posteriori.mplstyle")

# Their settings are these alone, whatever the user's are; kernels say nothing that a reader of the build must know.
os.environ["IPYTHONDIR"] = str(DOCS / "_build" / ".ipython")
profile = DOCS / "_build" / ".ipython" / "profile_default"
profile.mkdir(parents=True, exist_ok=True)
(profile / "ipython_kernel_config.py").write_text("get_config().Application.log_level = 40\n", encoding="utf-8")

import numpydoc.xref  # noqa: E402
from extensions import api  # noqa: E402

import posteriori  # noqa: E402

project = "posteriori"
author = "The posteriori developers"
project_copyright = author
version = release = posteriori.__version__
language = "en"

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_nb",
    "sphinx_design",
    "sphinx_copybutton",
    "extensions.api",
    "extensions.generated",
    "extensions.links",
    "extensions.formulas",
    "extensions.llms",
    "extensions.outputs",
    "extensions.theory",
]
exclude_patterns = ["_build", "extensions", "live", "**.ipynb", "**/sg_execution_times.rst", "sg_execution_times.rst"]
suppress_warnings = ["config.cache"]
nitpicky = False
default_role = "py:obj"
keep_warnings = False

# Pages: MyST Markdown, whose cells run in a temporary folder each

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "attrs_inline", "attrs_block"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
nb_execution_mode = "cache"
nb_execution_cache_path = str(DOCS / "_build" / ".cells")
nb_execution_in_temp = True
nb_execution_timeout = 180
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
nb_mime_priority_overrides = [("html", "text/html", 0), ("html", "image/svg+xml", 5)]

# Reference: a page for each public name, written by extensions.api

autodoc_typehints = "none"
toc_object_entries_show_parents = "hide"
add_module_names = False
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = True
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_xref_param_type = True
numpydoc_xref_ignore = "all"
numpydoc.xref.DEFAULT_LINKS.clear()  # they lead to pages of Python and NumPy, which need a network
numpydoc_xref_aliases = {name.rpartition(".")[2]: f"posteriori.{name}" for name in api.names()}
viewcode_line_numbers = True

# Gallery

if (ROOT / "examples" / "gallery").is_dir():
    extensions.append("sphinx_gallery.gen_gallery")
    sphinx_gallery_conf = {
        "examples_dirs": "../examples/gallery",
        "gallery_dirs": "gallery",
        "filename_pattern": r"/plot_",
        "backreferences_dir": "reference/backreferences",
        "doc_module": ("posteriori",),
        "reset_modules": ("extensions.pictures.use_style",),
        "abort_on_example_error": True,
        "download_all_examples": False,
        "show_memory": False,
        "min_reported_time": 10**6,
        "remove_config_comments": True,
        "within_subsection_order": "FileNameSortKey",
        "plot_gallery": True,
        "matplotlib_animations": False,
    }

# Look

html_theme = "pydata_sphinx_theme"
html_title = "posteriori"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_last_updated_fmt = None
html_theme_options = {
    "logo": {
        "image_light": "_static/logo-light.svg",
        "image_dark": "_static/logo-dark.svg",
        "alt_text": "posteriori: start page",
    },
    "header_links_before_dropdown": 9,
    "navbar_align": "content",
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "show_prev_next": False,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_center": [],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "back_to_top_button": False,
}
html_sidebars = {"index": [], "live": []}
html_context = {"default_mode": "auto"}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"

warnings.filterwarnings("ignore", category=DeprecationWarning)
# Examples may import JAX before Sphinx deals pages to processes of its own, which have no use for it.
warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)
