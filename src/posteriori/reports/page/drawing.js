// What all charts share: the frame, in which marks are pointed at or gone through by keys, and the measuring of text.
//
// A chart is as wide as its place, and drawn again when that changes, so that text keeps its size. It is one stop of
// the Tab key: the arrow keys go through its marks, whose numbers are then shown and told to screen readers, as they
// are shown at the mark under the pointer; a table that is not seen holds all of them.

import { announce, isNumber, make, makeSvg, makeTable } from "./elements.js";

const WIDTH = 640; // before the place of a chart is known
const SIZE = 13; // of text, as in the style sheet
export const SMALL = 12; // of ticks

/**
 * A chart in a <div>. `layout(width)` gives { height, shapes, marks }; a mark is what can be pointed at: a box { x, y,
 * w, h }, a point [x, y] where its numbers are shown, a name and lines of [key, text]. `pick(i)`, if given, hears which
 * mark is clicked, or chosen by Enter; the arrow keys begin at the mark `first`.
 */
export function chart(given, layout) {
  const { kind, title, description, head, body, table = true, most = Infinity, pick = null, first = 0 } = given;
  const svg = makeSvg("svg", { role: "img", "aria-label": description ?? title });
  const tip = make("div", { className: "tip", hidden: true, "aria-hidden": "true" });
  const ruler = make("div", { className: "ruler" });
  const here = makeSvg("rect", { class: "here", rx: 3 });
  const unseen = table ? make("div", { className: "unseen" }, makeTable(title, head, body)) : null;
  const keys = `Arrow keys tell its values${pick ? ", Enter takes one" : ""}.`;
  const picture = make("div", {
    className: `chart ${kind}${pick ? " picked" : ""}`, tabIndex: 0, role: "group", "aria-label": `${title}. ${keys}`,
  }, ruler, svg, tip, unseen);
  let marks = [], at = -1, width = 0;

  function draw(room) {
    width = Math.min(room, most);
    const drawn = layout(width);
    marks = drawn.marks;
    const size = { viewBox: `0 0 ${width} ${drawn.height}`, width, height: drawn.height };
    for (const [name, value] of Object.entries(size)) svg.setAttribute(name, value);
    svg.replaceChildren(...drawn.shapes.flat(Infinity).filter(Boolean), here);
    leave();
  }
  function show(i) {
    at = i;
    const { x, y, w, h, point, name, lines } = marks[i];
    for (const [key, value] of Object.entries({ x, y, width: w, height: h })) here.setAttribute(key, value);
    here.classList.add("on");
    tip.replaceChildren(make("strong", {}, name),
      make("dl", {}, ...lines.flatMap(([key, text]) => [make("dt", {}, key), make("dd", {}, text)])));
    tip.hidden = false;
    const scale = svg.getBoundingClientRect().width / width || 1; // less than one on narrow paper
    const left = Math.max(0, Math.min(point[0] * scale - tip.offsetWidth / 2, picture.clientWidth - tip.offsetWidth));
    const above = point[1] * scale - tip.offsetHeight - 12;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > -tip.offsetHeight / 2 ? above : point[1] * scale + 16}px`;
  }
  function leave() {
    at = -1;
    here.classList.remove("on");
    tip.hidden = true;
  }
  function point(event) {
    const bounds = svg.getBoundingClientRect(), scale = bounds.width / width;
    const found = nearest(marks, (event.clientX - bounds.left) / scale, (event.clientY - bounds.top) / scale);
    if (found < 0) leave();
    else if (found !== at) show(found);
    const dragged = event.type === "pointermove" && event.buttons === 1 && event.pointerType === "mouse";
    if (found >= 0 && (dragged || event.type === "click")) pick?.(found);
  }
  function press(event) {
    if (event.key === "Escape" && at >= 0) leave();
    else if (event.key === "Enter" && pick && at >= 0) pick(at);
    else {
      const next = step(marks, at, event.key, first);
      if (next === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
      show(next);
      announce([marks[next].name, ...marks[next].lines.map((line) => line.join(" "))].join(", "));
    }
    event.preventDefault();
  }
  svg.addEventListener("pointermove", point);
  svg.addEventListener("pointerdown", point);
  svg.addEventListener("click", point);
  svg.addEventListener("pointerleave", leave);
  picture.addEventListener("keydown", press);
  picture.addEventListener("blur", leave);
  draw(WIDTH);
  // the ruler has no height: that drawing changes the chart's own is no new size
  new ResizeObserver(([entry]) => {
    const room = Math.floor(entry.contentRect.width);
    if (room > 0 && Math.min(room, most) !== width) draw(room);
  }).observe(ruler);
  return picture;
}

/** The mark whose box is nearest to a point, or -1 if none is near. */
function nearest(marks, x, y) {
  let found = -1, least = 24 ** 2;
  marks.forEach((mark, i) => {
    const dx = Math.max(mark.x - x, 0, x - mark.x - mark.w), dy = Math.max(mark.y - y, 0, y - mark.y - mark.h);
    const distance = dx * dx + dy * dy;
    if (distance < least) [found, least] = [i, distance];
  });
  return found;
}

const DIRECTIONS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** The mark to which a key leads; marks that are not in one line, the cells of a matrix, have four neighbours. */
function step(marks, at, key, first) {
  if (!marks.length) return undefined;
  if (at < 0 && key in DIRECTIONS) return first;
  if (key === "Home") return 0;
  if (key === "End") return marks.length - 1;
  if (!(key in DIRECTIONS)) return undefined;
  const [dx, dy] = DIRECTIONS[key], from = marks[at];
  if (from.column === undefined) return Math.max(0, Math.min(at + dx + dy, marks.length - 1));
  let found = at, least = Infinity;
  marks.forEach((mark, i) => {
    const right = mark.column - from.column, down = mark.row - from.row;
    const along = right * dx + down * dy, aside = Math.abs(right * dy) + Math.abs(down * dx);
    if (along > 0 && along + 4 * aside < least) [found, least] = [i, along + 4 * aside];
  });
  return found;
}

let ruled = null;

/** The width of a text in pixels. */
export function widthOf(text, size = SIZE) {
  ruled ??= document.createElement("canvas").getContext("2d");
  ruled.font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
  return ruled.measureText(text).width;
}

export const widest = (texts, size) => texts.reduce((most, text) => Math.max(most, widthOf(text, size)), 0);

/** A text without its middle if there is no room for it. */
export function fitted(text, room, size = SIZE) {
  if (widthOf(text, size) <= room) return text;
  const letters = [...text];
  const cut = (kept) => {
    const end = Math.floor(kept / 3);
    return `${letters.slice(0, kept - end).join("")}…${end ? letters.slice(-end).join("") : ""}`;
  };
  let least = 1, most = letters.length - 1;
  while (least < most) {
    const kept = Math.ceil((least + most) / 2);
    if (widthOf(cut(kept), size) <= room) least = kept;
    else most = kept - 1;
  }
  return cut(least);
}

/** Round numbers within [low, high], about as many as wanted. */
export function roundNumbers(low, high, wanted) {
  const rough = (high - low) / Math.max(1, wanted), power = 10 ** Math.floor(Math.log10(rough));
  const by = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / by - 1e-9); i <= high / by + 1e-9; i++) found.push(Number((i * by).toPrecision(12)));
  return found.length > 1 ? found : roundNumbers(low, high, wanted + 1);
}

/** The least and greatest of all numbers, made different. */
export function rangeOf(values) {
  const known = values.filter(isNumber);
  const low = known.reduce((a, b) => Math.min(a, b), Infinity);
  const high = known.reduce((a, b) => Math.max(a, b), -Infinity);
  if (low > high) return [0, 1];
  return low === high ? [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2] : [low, high];
}

/** Where a hairline fills one row of pixels. */
export const half = (value) => Math.round(value) + 0.5;
export const line = (name, x1, y1, x2, y2) => makeSvg("line", { class: name, x1, y1, x2, y2 });
export const text = (name, x, y, content, anchor = "start") =>
  makeSvg("text", { class: name, x, y, "text-anchor": anchor }, content);
export const rounded = (value) => Math.round(value * 100) / 100;
