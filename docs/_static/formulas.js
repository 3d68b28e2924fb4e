// Sets the formulas of a page; one that cannot be set stays as TeX, in red.
for (const element of document.querySelectorAll(".math")) {
  katex.render(element.textContent, element, { displayMode: element.tagName === "DIV", throwOnError: false });
}
