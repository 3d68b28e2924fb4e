"""Markdown and LaTeX: well formed, whatever the labels are called."""

import re

import numpy as np
import pytest

import posteriori as po
from posteriori.reports.markup import Figures, Matrix, Paragraph, Table, Words, WrittenSum, equation, given, plain

WEIRD = [r"a_b & 100% \x", "{c} $d$ ~^#", "[*] <|>", "*e*\n`f`"]


def weird():
    rng = np.random.default_rng(0)
    return po.walkthrough(rng.normal(size=(12, 2)), np.repeat(WEIRD, 3), format="latex")


WALKTHROUGHS = {
    "built-in": lambda: po.walkthrough(),
    "two classes": lambda: po.walkthrough([[1.0], [2.0], [3.0]], ["a", "b", "a"]),
    "largest": lambda: po.walkthrough(np.random.default_rng(0).normal(size=(50, 5)), [*range(5)] * 10),
    "weird labels": weird,
}
walkthroughs = pytest.mark.parametrize("make", WALKTHROUGHS.values(), ids=WALKTHROUGHS)


def assert_balanced(latex):
    bare = re.sub(r"\\[\\{}$&%#_]", lambda found: "" if found[0] != r"\\" else r"\\", latex)
    depth = 0
    for sign in re.findall(r"[{}]", bare):
        depth += 1 if sign == "{" else -1
        assert depth >= 0
    assert depth == 0
    open_environments = []
    for kind, name in re.findall(r"\\(begin|end)\{([a-z*]+)\}", latex):
        if kind == "begin":
            open_environments.append(name)
        else:
            assert open_environments.pop() == name
    assert open_environments == []
    for paragraph in bare.split("\n\n"):
        assert paragraph.count("$") % 2 == 0, paragraph
        assert not re.search(r"\n *\n", paragraph)


def columns_of(row):
    return len(re.findall(r"(?<!\\)&", row)) + 1


@walkthroughs
def test_latex_is_well_formed(make):
    latex = make().to_latex()
    assert_balanced(latex)
    tables = re.findall(r"\\begin\{tabular\}\{(\w+)\}\n(.*?)\\end\{tabular\}", latex, re.DOTALL)
    assert len(tables) >= 9
    for columns, body in tables:
        rows = [row for row in body.replace("\\hline\n", "").split(" \\\\\n") if row]
        assert {columns_of(row) for row in rows} == {len(columns)}
        assert not any(row.startswith(("[", "*")) for row in rows)  # would belong to the \\ before
    matrices = re.findall(r"\\begin\{pmatrix\} (.*?) \\end\{pmatrix\}", latex)
    assert len(matrices) > 20
    for body in matrices:
        assert len({columns_of(row) for row in body.split(r"\\")}) == 1
    outside = re.sub(r"\\begin\{pmatrix\}.*?\\end\{pmatrix\}", "", latex)
    for body in re.findall(r"\\begin\{align\*\}\n(.*?)\n\\end\{align\*\}", outside, re.DOTALL):
        assert "\n\n" not in body  # a blank line ends the paragraph, and the compilation
        assert {columns_of(row) for row in body.split("\\\\\n")} == {2}
    assert not re.search(r"\de[-+]\d", latex)


@walkthroughs
def test_markdown_is_well_formed(make):
    text = make().to_markdown()
    assert text.count("```") % 2 == 0
    assert "\\begin" not in re.sub(r"\\\\", "", text)
    prose = re.sub(r"```text\n.*?\n```", "", text, flags=re.DOTALL)
    for block in prose.split("\n\n"):
        if block.startswith("|"):
            assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1
            assert len({len(line) for line in block.splitlines()}) == 1  # legible as plain text
        else:
            assert re.sub(r"\\`", "", block).count("`") % 2 == 0
            assert max(map(len, block.splitlines()), default=0) <= 100
    for blocks in re.findall(r"```text\n(.*?)\n```", text, re.DOTALL):
        assert not re.search(r"[\\{}$]", blocks)
    assert not re.search(r"-0\.0+\b(?!e)(?!\d)", text)
    assert not re.search(r"\b(nan|inf)\b", text)


def test_documents():
    fragment, document = po.walkthrough().to_latex(), po.walkthrough().to_latex(document=True)
    assert fragment.startswith(r"\section*{")
    assert document.startswith("\\documentclass")
    assert document.endswith("\\end{document}\n")
    assert fragment.strip() in document
    for package in ("amsmath", "graphicx"):
        assert f"\\usepackage{{{package}}}" in document
    assert_balanced(document)
    assert str(po.walkthrough(format="latex")) == fragment
    assert "\\begin{align*}" in fragment
    assert "\\begin{pmatrix}" in fragment


def test_both_formats_show_the_same_numbers():
    by_steps = po.walkthrough()
    for step in by_steps.steps:
        text, latex = (sorted(re.findall(r"\d+\.\d+", form())) for form in (step.to_markdown, step.to_latex))
        assert text == latex, step.key


def test_labels_are_escaped():
    by_steps = weird()
    latex, text = by_steps["data"].to_latex(), by_steps["data"].to_markdown()
    assert r"a\_b \& 100\% \textbackslash{}x" in latex
    assert r"\{c\} \$d\$ \textasciitilde{}\textasciicircum{}\#" in latex
    assert r"{[}{*}] \textless{}\textbar{}\textgreater{}" in latex
    assert r"\[\*\] \<\|>" in text
    assert r"\*e\* \`f\`" in text


@pytest.mark.parametrize(
    ("mathematics", "text"),
    [
        (r"\frac{\exp(f_{nk})}{\sum_{j} \exp(f_{nj})}", "exp(f_nk)/(sum_j exp(f_nj))"),
        (r"\tfrac{K D}{2} \log(\tfrac{\alpha}{2 \pi})", "(K D)/2 log(alpha/(2 pi))"),
        (r"x^{*\top} \Sigma_{kl} x^*", "x*T Sigma_kl x*"),
        (r"\tfrac{1}{2} \log \lvert H \rvert", "1/2 log |H|"),
        (r"\sqrt{0.5 - 0.2 \cdot 0.3}", "sqrt(0.5 - 0.2 * 0.3)"),
        (r"W^{(t)} - s \, d, \quad k \le l", "W^(t) - s d, k <= l"),
        (r"H(W_{\mathrm{MAP}})^{-1}", "H(W_MAP)^-1"),
    ],
)
def test_plain_mathematics(mathematics, text):
    assert plain(mathematics) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2 / 3, "0.6667"),
        (-2 / 3, "-0.6667"),
        (0.0, "0.0000"),
        (-0.0, "0.0000"),
        (1e-17, "0.0000"),
        (-1e-16, "0.0000"),
        (0.001, "0.0010"),
        (0.00099, "9.9000e-04"),
        (-1.5e-09, "-1.5000e-09"),
        (12345.678912, "12345.6789"),
    ],
)
def test_numbers(value, text):
    assert Figures(4).number(value) == text
    assert Figures(4).factor(value) == (f"({text})" if text.startswith("-") else text)


def test_given_numbers_are_shown_in_full():
    assert [given(v) for v in (1.0, -2.0, 0.125, -0.0, 1 / 3, 1e-5)] == [
        *("1", "-2", "0.125", "0", "0.333333333333", "1e-05")
    ]


def test_matrices_forget_rounding_errors_beside_large_entries():
    assert Figures(2).matrix(np.array([[1e6, 1e-9], [1.0, 0.0]])).rows == (("1000000.00", "0.00"), ("1.00", "0.00"))
    assert Figures(2).matrix(np.array([1.0, 2.0])).rows == (("1.00",), ("2.00",))


def test_equations_are_laid_out():
    lines = equation("f", (Matrix((("1", "-2"),)), Matrix((("3",), ("4",))), "=", "-5")) + equation("g_{11}", "7")
    assert lines.to_markdown() == "\n".join(
        ["```text", "f    = [ 1  -2 ] [ 3 ] = -5", "                 [ 4 ]", "", "g_11 = 7", "```"]
    )
    assert lines.to_latex() == "\n".join(
        [
            r"\begin{align*}",
            r"f &= \begin{pmatrix} 1 & -2 \end{pmatrix} \begin{pmatrix} 3 \\ 4 \end{pmatrix} = -5 \\",
            r"g_{11} &= 7",
            r"\end{align*}",
        ]
    )


def test_long_sums_are_broken():
    lines = equation("s", WrittenSum(tuple("abcdef")), r"\approx 2")
    assert lines.to_markdown() == "```text\ns = a + b + c + d\n    + e + f\n  ~ 2\n```"
    assert r"&\quad + e + f \\" in lines.to_latex()
    assert r"&\approx 2" in lines.to_latex()


def test_products():
    assert Figures(2).products([-1.0, -0.5], [2.0, -3.0], exact=True).terms == (r"-1.00 \cdot 2", r"(-0.50) \cdot (-3)")


def test_paragraphs_and_tables():
    words = Paragraph(("Take $x_1^{\\top} \\cdot 2$ of ", Words("a_b*"), " at 5 %."))
    assert words.to_markdown() == r"Take `x_1^T * 2` of a_b\* at 5 %."
    assert words.to_latex() == r"Take $x_1^{\top} \cdot 2$ of a\_b{*} at 5 \%."
    table = Table((Words("who"), "f_{n1}"), ((Words("a|b"), "-1.5e-06"), (Words("c"), "")))
    assert table.to_markdown() == "| who  |     f_n1 |\n| :--- | -------: |\n| a\\|b | -1.5e-06 |\n| c    |          |"
    assert r"a\textbar{}b & $-1.5 \cdot 10^{-6}$ \\" in table.to_latex()
    assert "resizebox" not in table.to_latex()
    assert "resizebox" in Table(("n",) * 11, (("1",) * 11,)).to_latex()
