// How often numbers are in each of some bins of equal width.

import { chart, half, line, roundNumbers, rounded, text, widthOf } from "./drawing.js";
import { count, makeSvg, number } from "./elements.js";

/** Bars that stand on the edges of their bins; `edges` are one more than `counts`. */
export function histogram({ edges, counts, title, valueTitle, ...options }) {
  const most = Math.max(1, ...counts), low = edges[0], high = edges.at(-1) > low ? edges.at(-1) : low + 1;
  const range = (b) => `${number(edges[b], 3)} to ${number(edges[b + 1], 3)}`;
  function layout(width) {
    const room = widthOf(count(most), 12) + 8, top = 26, bottom = top + Math.min(150, 0.4 * width);
    const toX = (value) => room + ((value - low) / (high - low)) * (width - room - 4);
    const toY = (rows) => bottom - (rows / most) * (bottom - top);
    const shapes = [text("axis-title", 0, 12, "rows")];
    for (const rows of roundNumbers(0, most, 3).filter(Number.isInteger)) {
      shapes.push(line(rows ? "grid" : "zero", room, half(toY(rows)), width, half(toY(rows))));
      shapes.push(text("tick", room - 8, toY(rows) + 4, count(rows), "end"));
    }
    for (const value of roundNumbers(low, high, Math.min(6, Math.floor(width / 90)))) {
      const shown = number(value), at = Math.min(toX(value), width - widthOf(shown, 12) / 2);
      shapes.push(text("tick", at, bottom + 17, shown, "middle"));
    }
    shapes.push(text("axis-title", width, bottom + 36, valueTitle, "end"));
    const marks = counts.map((rows, b) => {
      const x = toX(edges[b]), w = Math.max(1, toX(edges[b + 1]) - x - 1), y = toY(rows);
      const [at, size] = [{ x: rounded(x), y: rounded(y) }, { width: rounded(w), height: rounded(bottom - y) }];
      if (rows) shapes.push(makeSvg("rect", { class: "bar best", ...at, ...size }));
      return { x, y: top, w, h: bottom - top, point: [x + w / 2, y], name: range(b), lines: [["rows", count(rows)]] };
    });
    return { height: bottom + 44, shapes, marks };
  }
  const body = counts.map((rows, b) => [range(b), count(rows)]);
  return chart({ kind: "histogram", title, head: [valueTitle, "rows"], body, ...options }, layout);
}
