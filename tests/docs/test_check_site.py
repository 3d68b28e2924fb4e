"""The checker of the built site finds what is wrong with it, and nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest
from docs.check_site import troubles

GOOD = """<!DOCTYPE html><html><head><link rel="stylesheet" href="style.css?v=1"><link rel="canonical" href="http://a.org/">
</head><body><h1 id="top">x</h1><a href="#top">up</a><a href="other.html#place">on</a><a href="folder/">in</a>
<a href="https://example.org/x">out</a><a href="mailto:a@b.c">mail</a><img src="a.svg" alt="a picture"></body></html>"""


@pytest.fixture
def site(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "index.html").write_text("<p>x</p>")
    (tmp_path / "other.html").write_text('<p id="place">x</p>')
    (tmp_path / "style.css").write_text("p { background: url(a.svg#x) } q { background: url('data:,x') }")
    (tmp_path / "a.svg").write_text("<svg/>")
    (tmp_path / "index.html").write_text(GOOD)
    return tmp_path


def test_a_good_site_has_no_troubles(site):
    assert troubles(site) == []


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ('<a href="gone.html">x</a>', "gone.html is not there"),
        ('<a href="other.html#gone">x</a>', "other.html#gone: no such place in the page"),
        ('<a href="#gone">x</a>', "#gone: no such place in the page"),
        ('<img src="gone.png" alt="x">', "gone.png is not there"),
        ('<img src="a.svg">', "picture a.svg has no alt text"),
        ('<script src="https://cdn.example.org/x.js"></script>', "loads https://cdn.example.org/x.js from the web"),
        ('<link rel="stylesheet" href="//fonts.example.org/x">', "loads //fonts.example.org/x from the web"),
        ('<a href="https://nowhere">x</a>', "https://nowhere is no address"),
        ('<a href="ftp://example.org/x">x</a>', "ftp://example.org/x is no address"),
    ],
)
def test_a_fault_is_found(site, fault, said):
    (site / "index.html").write_text(f"{GOOD}{fault}")
    assert troubles(site) == [f"index.html: {said}"]


@pytest.mark.parametrize(
    ("style", "said"),
    [
        ("@import 'https://fonts.example.org/x';", "loads https://fonts.example.org/x from the web"),
        ("p { background: url(gone.png) }", "gone.png is not there"),
    ],
)
def test_a_fault_of_a_style_is_found(site, style, said):
    (site / "style.css").write_text(style)
    assert troubles(site) == [f"style.css: {said}"]


def test_the_command_prints_what_was_built_and_fails_on_troubles(site):
    script = Path(__file__).parents[2] / "docs" / "check_site.py"
    built = site.parent / "docs" / "_build"
    built.mkdir(parents=True)
    site = site.rename(built / "html")
    good = subprocess.run([sys.executable, script, site], capture_output=True, text=True, check=False)
    assert good.returncode == 0
    assert good.stdout.splitlines()[-1].startswith("pages: 3, ")
    assert "wrong links: 0" in good.stdout
    (site / "index.html").write_text('<a href="gone.html">x</a>')
    bad = subprocess.run([sys.executable, script, site], capture_output=True, text=True, check=False)
    assert bad.returncode == 1
    assert "gone.html is not there" in bad.stdout
