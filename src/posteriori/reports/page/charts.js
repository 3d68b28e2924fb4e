// Small charts in SVG. Each is drawn as wide as its place and drawn again when that changes.
//
// A chart is one stop of the Tab key: the arrow keys go through its marks, whose numbers are then shown and told to
// screen readers, as they are shown at the mark under the pointer; a table that is not seen holds all of them.
// Colours are left to the style sheet.

import { announce, count, isNumber, make, makeSvg, makeTable, number, percent, probability } from "./elements.js";

const WIDTH = 640; // before the place of a chart is known
const SIZE = 13, SMALL = 12; // of text, as in the style sheet
const STEP = 24, STACKED = 42; // from row to row, with the label beside the bar or above it
const MOST_COLOURS = 7; // series that have a colour of their own

// --- what all charts share ---------------------------------------------------------------------------------------------

/**
 * A chart in a <div>. `layout(width)` gives { height, shapes, marks }; a mark is what can be pointed at: a box { x, y,
 * w, h }, a point [x, y] where its numbers are shown, a name and lines of [key, text].
 */
function chart({ kind, title, description, head, body, table = true, most = Infinity }, layout) {
  const svg = makeSvg("svg", { role: "img", "aria-label": description ?? title });
  const tip = make("div", { className: "tip", hidden: true, "aria-hidden": "true" });
  const ruler = make("div", { className: "ruler" });
  const here = makeSvg("rect", { class: "here", rx: 3 });
  const unseen = table ? make("div", { className: "unseen" }, makeTable(title, head, body)) : null;
  const picture = make("div", {
    className: `chart ${kind}`, tabIndex: 0, role: "group", "aria-label": `${title}. Arrow keys tell its values.`,
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
  }
  function press(event) {
    if (event.key === "Escape" && at >= 0) leave();
    else {
      const next = step(marks, at, event.key);
      if (next === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
      show(next);
      announce([marks[next].name, ...marks[next].lines.map((line) => line.join(" "))].join(", "));
    }
    event.preventDefault();
  }
  svg.addEventListener("pointermove", point);
  svg.addEventListener("pointerdown", point);
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
function step(marks, at, key) {
  if (!marks.length) return undefined;
  if (key === "Home" || (at < 0 && key in DIRECTIONS)) return 0;
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
function widthOf(text, size = SIZE) {
  ruled ??= document.createElement("canvas").getContext("2d");
  ruled.font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
  return ruled.measureText(text).width;
}

const widest = (texts, size) => texts.reduce((most, text) => Math.max(most, widthOf(text, size)), 0);

/** A text without its middle if there is no room for it. */
function fitted(text, room, size = SIZE) {
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
function roundNumbers(low, high, wanted) {
  const rough = (high - low) / Math.max(1, wanted), power = 10 ** Math.floor(Math.log10(rough));
  const by = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / by - 1e-9); i <= high / by + 1e-9; i++) found.push(Number((i * by).toPrecision(12)));
  return found.length > 1 ? found : roundNumbers(low, high, wanted + 1);
}

/** The least and greatest of all numbers, made different. */
function rangeOf(values) {
  const known = values.filter(isNumber);
  const low = known.reduce((a, b) => Math.min(a, b), Infinity), high = known.reduce((a, b) => Math.max(a, b), -Infinity);
  if (low > high) return [0, 1];
  return low === high ? [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2] : [low, high];
}

const half = (value) => Math.round(value) + 0.5; // where a hairline fills one row of pixels
const line = (name, x1, y1, x2, y2) => makeSvg("line", { class: name, x1, y1, x2, y2 });
const text = (name, x, y, content, anchor = "start") =>
  makeSvg("text", { class: name, x, y, "text-anchor": anchor }, content);
const rounded = (value) => Math.round(value * 100) / 100;

/** Hairlines at round numbers with the numbers below; those at the ends stay inside. */
function axis(numbers, scale, top, bottom, width, shown = number) {
  return numbers.map((value) => {
    const x = scale(value), label = shown(value), room = widthOf(label, SMALL) / 2;
    const at = Math.max(room, Math.min(x, width - room));
    return [line(value === 0 ? "zero" : "grid", half(x), top, half(x), bottom), text("tick", at, bottom + 16, label, "middle")];
  });
}

/** Numbers of each class, in the order of the classes, whether given as a list or by name. */
function listed(names, given) {
  if (given === null || given === undefined) return names.map(() => null);
  const values = typeof given.length === "number" ? Array.from(given) : names.map((name) => given[name]);
  return names.map((_, i) => (isNumber(values[i]) ? values[i] : null));
}

// --- a row for each label ----------------------------------------------------------------------------------------------

/** Labels, a drawing for each and its numbers as text, from top to bottom; the numbers have one line or two. */
function rows({ labels, values, domain, ticks, shown, axisTitle, drawn, lines, at }) {
  return (width) => {
    const most = widest(labels), valueRoom = widest(values);
    const stacked = most > 0.34 * width && width < 480;
    const left = stacked ? 0 : Math.ceil(Math.min(most, 0.4 * width)) + 12;
    const right = width - (valueRoom ? Math.ceil(valueRoom) + 12 : 8);
    const by = stacked ? STACKED : STEP, bottom = labels.length * by + 4;
    const [low, high] = domain;
    const scale = (value) => left + ((value - low) / (high - low)) * (right - left);
    const shapes = [axis(ticks(Math.max(2, Math.floor((right - left) / 70))), scale, 0, bottom, right + 8, shown)];
    if (axisTitle) shapes.push(text("axis-title", right, bottom + 34, axisTitle, "end"));
    const marks = labels.map((label, i) => {
      const top = i * by, middle = top + (stacked ? 30 : by / 2);
      const name = fitted(label, stacked ? width : left - 12);
      shapes.push(stacked ? text("label halo", 0, top + 15, name) : text("label", left - 10, middle + 4.5, name, "end"));
      shapes.push(drawn(i, scale, middle), text("value", width, middle + 4.5, values[i], "end"));
      const x = isNumber(at[i]) ? scale(at[i]) : left;
      return { x: 0, y: top, w: width, h: by, point: [x, middle - 6], name: label, lines: lines(i) };
    });
    return { height: bottom + (axisTitle ? 40 : 22), shapes, marks };
  };
}

function bar(name, from, to, middle, thickness) {
  const x = Math.min(from, to), w = Math.abs(to - from);
  return makeSvg("rect", { class: name, x: rounded(x), y: middle - thickness / 2, width: rounded(Math.max(w, 1)), height: thickness, rx: Math.min(2, w / 2) });
}

function whisker(from, to, middle, cap) {
  const y = middle;
  return [line("whisker", from, y, to, y), ...[from, to].map((x) => line("whisker", x, y - cap, x, y + cap))];
}

/** The probabilities of one row as bars, with whiskers for their intervals; the most probable class stands out. */
export function probabilityBars({ classes, proba, lower, upper, title = "Probabilities", ...options }) {
  const labels = classes.map(String), p = listed(labels, proba), a = listed(labels, lower), b = listed(labels, upper);
  const best = p.indexOf(p.reduce((most, value) => (value > most ? value : most), -Infinity));
  const has = (i) => a[i] !== null && b[i] !== null;
  const range = (i) => `${probability(a[i])} to ${probability(b[i])}`;
  const layout = rows({
    labels, values: p.map(probability), domain: [0, 1], axisTitle: null, at: p,
    ticks: (room) => (room > 6 ? [0, 0.2, 0.4, 0.6, 0.8, 1] : [0, 0.5, 1]), shown: (value) => String(value),
    drawn: (i, scale, y) => [
      p[i] === null ? null : bar(i === best ? "bar best" : "bar", scale(0), scale(p[i]), y, 12),
      has(i) ? whisker(scale(a[i]), scale(b[i]), y, 4) : null,
    ],
    lines: (i) => [["probability", probability(p[i])], ...(has(i) ? [["interval", range(i)]] : [])],
  });
  const intervals = labels.some((_, i) => has(i));
  const head = ["class", "probability", ...(intervals ? ["from", "to"] : [])];
  const body = labels.map((label, i) =>
    [label, probability(p[i]), ...(intervals ? [probability(a[i]), probability(b[i])] : [])]);
  const description = best < 0 ? title : `${title}: ${labels[best]} is most probable with ${probability(p[best])}`;
  return chart({ kind: "probabilities", title, description, head, body, ...options }, layout);
}

/** One bar for each label, from zero to its value. */
export function bars({ labels, values, title, valueTitle = "value", ...options }) {
  const names = labels.map(String), known = listed(names, values), domain = rangeOf([0, ...known]);
  const shown = known.every((value) => value === null || Number.isInteger(value)) ? count : number;
  const layout = rows({
    labels: names, values: known.map((value) => shown(value)), domain, axisTitle: valueTitle, at: known, shown: number,
    ticks: (room) => roundNumbers(...domain, Math.min(room, 6)),
    drawn: (i, scale, y) => (known[i] === null ? null : bar("bar best", scale(0), scale(known[i]), y, 13)),
    lines: (i) => [[valueTitle, shown(known[i])]],
  });
  const body = names.map((name, i) => [name, shown(known[i])]);
  return chart({ kind: "bars", title, head: ["label", valueTitle], body, ...options }, layout);
}

/** A point and an interval for each label. */
export function intervals({ labels, mean, lower, upper, title, valueTitle = "mean", ...options }) {
  const names = labels.map(String);
  const [m, a, b] = [mean, lower, upper].map((values) => listed(names, values));
  const domain = rangeOf([0, ...m, ...a, ...b]);
  const has = (i) => a[i] !== null && b[i] !== null;
  const layout = rows({
    labels: names, values: m.map((value) => number(value, 3)), domain, axisTitle: valueTitle, at: m, shown: number,
    ticks: (room) => roundNumbers(...domain, Math.min(room, 6)),
    drawn: (i, scale, y) => [
      has(i) ? line("range", scale(a[i]), y, scale(b[i]), y) : null,
      m[i] === null ? null : makeSvg("circle", { class: "dot", cx: rounded(scale(m[i])), cy: y, r: 4.5 }),
    ],
    lines: (i) => [[valueTitle, number(m[i])], ...(has(i) ? [["interval", `${number(a[i])} to ${number(b[i])}`]] : [])],
  });
  const body = names.map((name, i) => [name, number(m[i]), number(a[i]), number(b[i])]);
  return chart({ kind: "intervals", title, head: ["label", valueTitle, "from", "to"], body, ...options }, layout);
}

// --- curves ------------------------------------------------------------------------------------------------------------

/**
 * Lines with bands over the numbers x, or points with whiskers over names x; `at` marks the present value. Of many
 * series those that reach highest have colours, the others are grey. `xText` makes text of a value of x.
 */
export function curve({ x, series, title, xTitle = "", yTitle = "probability", at = null, xText = null, ...options }) {
  const named = x.some((value) => typeof value !== "number");
  const places = x.map((value, i) => (named ? i : value));
  const shownX = xText ?? (named ? String : (value) => number(value));
  const now = at === null || at === undefined ? null : named ? x.indexOf(at) : at; // -1: a name that is not among x
  const nearNow = now === null ? -1 : places.findIndex((place) => place >= now);
  const reach = series.map(({ y }) => Math.max(...y.filter(isNumber), -Infinity) + (isNumber(y[nearNow]) ? y[nearNow] : 0));
  const ranked = [...series.keys()].sort((i, j) => reach[j] - reach[i]);
  const coloured = new Set(ranked.slice(0, MOST_COLOURS));
  const order = [...coloured].sort((i, j) => i - j);
  const colour = (i) => (coloured.has(i) ? `s${order.indexOf(i)}` : "other");
  const grey = series.length - order.length;
  const unit = series.every(({ y }) => y.every((value) => !isNumber(value) || (value >= 0 && value <= 1)));
  const shownY = unit ? probability : number;
  const [low, high] = unit ? [0, 1] : rangeOf(series.flatMap(({ y, lower, upper }) => [...y, ...(lower ?? []), ...(upper ?? [])]));
  const domain = named ? [-0.5, x.length - 0.5] : rangeOf(places);

  function layout(width) {
    const names = order.map((i) => String(series[i].name)), beside = width >= 460 && !named;
    const nameRoom = beside ? Math.ceil(Math.min(widest(names), 0.3 * width)) + 24 : 0;
    const keys = beside || series.length < 2 ? { shapes: [], height: 0 } : legend(names, order.map(colour), width);
    const yTicks = unit ? [0, 0.25, 0.5, 0.75, 1] : roundNumbers(low, high, 4);
    const yText = (value) => (unit ? String(value) : number(value));
    const left = widest(yTicks.map((value) => yText(value)), SMALL) + 8, right = width - nameRoom - (beside ? 0 : 8);
    const top = keys.height + 26, bottom = top + Math.min(260, Math.max(170, 0.5 * width));
    const toX = (value) => left + ((value - domain[0]) / (domain[1] - domain[0])) * (right - left);
    const toY = (value) => bottom - ((value - low) / (high - low)) * (bottom - top);
    const shapes = [keys.shapes, text("axis-title", 0, keys.height + 12, grey ? `${yTitle}; grey: ${grey} more` : yTitle)];
    for (const value of yTicks) {
      shapes.push(line(value === 0 ? "zero" : "grid", left, half(toY(value)), right, half(toY(value))));
      shapes.push(text("tick", left - 8, toY(value) + 4, yText(value), "end"));
    }
    shapes.push(below(toX, left, right, bottom));
    if (xTitle) shapes.push(text("axis-title", right, bottom + 36, xTitle, "end"));
    if (now !== null && now >= domain[0] && now <= domain[1]) {
      shapes.push(line("now", half(toX(now)), top - 4, half(toX(now)), bottom));
    }
    const drawn = [...series.keys()].sort((i, j) => coloured.has(i) - coloured.has(j)); // grey ones below
    for (const i of drawn) shapes.push(named ? dodged(i, toX, toY) : lineAndBand(i, toX, toY));
    if (beside) shapes.push(besideLines(names, toY, right, nameRoom));
    return { height: bottom + (xTitle ? 44 : 26), shapes, marks: places.map((_, j) => markOf(j, toX, toY, top, bottom)) };
  }
  function below(toX, left, right, bottom) {
    if (!named) {
      const wanted = Math.max(2, Math.floor((right - left) / 90));
      return (xText ? evenly(domain, wanted) : roundNumbers(...domain, Math.min(wanted, 7))).map((value) =>
        text("tick", Math.max(left, Math.min(toX(value), right - 8)), bottom + 17, shownX(value), "middle"));
    }
    const each = (right - left) / x.length, every = Math.ceil(34 / each);
    return x.map((value, j) => (j % every ? null : text("tick", toX(j), bottom + 17, fitted(shownX(value), each * every - 6, SMALL), "middle")));
  }
  function lineAndBand(i, toX, toY) {
    const { y, lower, upper } = series[i], shapes = [];
    if (coloured.has(i) && lower && upper) {
      const inside = places.map((_, j) => j).filter((j) => isNumber(lower[j]) && isNumber(upper[j]));
      const path = [...inside.map((j) => [places[j], upper[j]]), ...inside.reverse().map((j) => [places[j], lower[j]])];
      if (path.length > 2) shapes.push(makeSvg("path", { class: `band ${colour(i)}`, d: `${pathOf(path, toX, toY)}Z` }));
    }
    const known = places.map((value, j) => [value, y[j]]).filter(([, value]) => isNumber(value));
    shapes.push(makeSvg("path", { class: `line ${colour(i)}`, d: pathOf(known, toX, toY) }));
    const value = now === null ? null : between(known, now);
    if (coloured.has(i) && value !== null) {
      shapes.push(makeSvg("circle", { class: `dot ${colour(i)}`, cx: rounded(toX(now)), cy: rounded(toY(value)), r: 4 }));
    }
    return shapes;
  }
  function dodged(i, toX, toY) {
    const { y, lower, upper } = series[i], place = order.indexOf(i);
    const each = Math.min(14, (0.7 * (toX(1) - toX(0))) / Math.max(1, order.length));
    const aside = place < 0 ? 0 : (place - (order.length - 1) / 2) * each;
    return y.map((value, j) => {
      if (!isNumber(value)) return null;
      const cx = rounded(toX(j) + aside);
      const range = coloured.has(i) && isNumber(lower?.[j]) && isNumber(upper?.[j]);
      return [
        range ? line(`range ${colour(i)}`, cx, toY(lower[j]), cx, toY(upper[j])) : null,
        makeSvg("circle", { class: `dot ${colour(i)}`, cx, cy: rounded(toY(value)), r: place < 0 ? 2 : 4 }),
      ];
    });
  }
  /** Names at the right ends of their lines, pushed apart where they would touch. */
  function besideLines(names, toY, right, room) {
    const ends = order.map((i, place) => {
      const last = series[i].y.filter(isNumber).at(-1);
      return { i, place, y: last === undefined ? toY(low) : toY(last) };
    }).sort((one, other) => one.y - other.y);
    for (let j = 1; j < ends.length; j++) ends[j].y = Math.max(ends[j].y, ends[j - 1].y + 16);
    const over = Math.max(0, (ends.at(-1)?.y ?? 0) - toY(low) - 4);
    for (let j = ends.length - 1, limit = Infinity; j >= 0; j--) {
      ends[j].y = Math.min(ends[j].y, (j === ends.length - 1 ? ends[j].y - over : limit));
      limit = ends[j].y - 16;
    }
    return ends.map(({ i, place, y }) => [
      makeSvg("circle", { class: `dot ${colour(i)}`, cx: right + 10, cy: rounded(y), r: 4 }),
      text("label", right + 19, y + 4.5, fitted(names[place], room - 22)),
    ]);
  }
  function markOf(j, toX, toY, top, bottom) {
    const ordered = [...series.keys()].filter((i) => isNumber(series[i].y[j])).sort((i, k) => series[k].y[j] - series[i].y[j]);
    const lines = ordered.slice(0, 8).map((i) => [String(series[i].name), shownY(series[i].y[j])]);
    const before = j > 0 ? (toX(places[j]) - toX(places[j - 1])) / 2 : 6;
    const after = j + 1 < places.length ? (toX(places[j + 1]) - toX(places[j])) / 2 : 6;
    const name = xTitle ? `${xTitle} ${shownX(x[j])}` : String(shownX(x[j]));
    const peak = ordered.length ? toY(series[ordered[0]].y[j]) : bottom;
    return {
      x: toX(places[j]) - Math.min(before, 24), y: top, w: Math.min(before, 24) + Math.min(after, 24), h: bottom - top,
      point: [toX(places[j]), Math.max(top + 8, peak)], name, lines,
    };
  }
  const head = [xTitle || "value", ...series.map(({ name }) => String(name))];
  const body = x.map((value, j) => [shownX(value), ...series.map(({ y }) => shownY(y[j]))]);
  return chart({ kind: "curve", title, head, body, ...options }, layout);
}

const pathOf = (points, toX, toY) => points.map(([x, y], j) => `${j ? "L" : "M"}${rounded(toX(x))} ${rounded(toY(y))}`).join("");
const evenly = ([low, high], n) => Array.from({ length: n }, (_, i) => low + ((high - low) * (i + 0.5)) / n);

/** The height of a line at x, or null outside of it. */
function between(points, x) {
  const next = points.findIndex(([place]) => place >= x);
  if (next < 0) return null;
  const [b, there] = points[next];
  if (b === x) return there;
  if (next === 0) return null;
  const [a, before] = points[next - 1];
  return before + ((there - before) * (x - a)) / (b - a);
}

/** Names with their colours, in as many lines as they need. */
function legend(names, colours, width) {
  const shapes = [];
  let x = 0, y = 12;
  names.forEach((name, i) => {
    const label = fitted(name, width - 24), room = widthOf(label) + 34;
    if (x > 0 && x + room > width) [x, y] = [0, y + 20];
    shapes.push(makeSvg("circle", { class: `dot ${colours[i]}`, cx: x + 5, cy: y - 4, r: 4.5 }), text("label", x + 15, y, label));
    x += room;
  });
  return { shapes, height: names.length ? y + 16 : 0 };
}

// --- how good probabilities are ------------------------------------------------------------------------------------------

/** Frequency against probability with intervals; bars along the bottom say how many rows a bin has. */
export function reliability({ probability: p, frequency, lower, upper, rows: n, title = "Reliability diagram", ...options }) {
  const known = p.map((value, b) => b).filter((b) => isNumber(p[b]) && isNumber(frequency[b]));
  const has = (b) => isNumber(lower?.[b]) && isNumber(upper?.[b]);
  const most = known.reduce((m, b) => Math.max(m, n?.[b] ?? 0), 0);
  function layout(width) {
    const left = 34, top = 28, side = width - left - 10, bottom = top + side;
    const toX = (value) => left + value * side, toY = (value) => bottom - value * side;
    const ticks = side > 260 ? [0, 0.2, 0.4, 0.6, 0.8, 1] : [0, 0.5, 1];
    const shapes = [text("axis-title", 0, 12, "how often it was the true class")];
    for (const value of ticks) {
      shapes.push(line(value ? "grid" : "zero", left, half(toY(value)), left + side, half(toY(value))));
      shapes.push(line(value ? "grid" : "zero", half(toX(value)), top, half(toX(value)), bottom));
      shapes.push(text("tick", left - 8, toY(value) + 4, String(value), "end"), text("tick", toX(value), bottom + 17, String(value), "middle"));
    }
    shapes.push(text("axis-title", left + side, bottom + 36, "probability of the most probable class", "end"));
    shapes.push(line("diagonal", toX(0), toY(0), toX(1), toY(1)));
    for (const b of known) if (most) shapes.push(line("share", toX(p[b]), bottom, toX(p[b]), bottom - (0.12 * side * n[b]) / most));
    for (const b of known) if (has(b)) shapes.push(line("range", toX(p[b]), toY(lower[b]), toX(p[b]), toY(upper[b])));
    const marks = known.map((b) => {
      const x = toX(p[b]), y = toY(frequency[b]);
      shapes.push(makeSvg("circle", { class: "dot", cx: rounded(x), cy: rounded(y), r: 5 }));
      const lines = [["mean probability", probability(p[b])], ["how often true", probability(frequency[b])]];
      if (has(b)) lines.push(["interval", `${probability(lower[b])} to ${probability(upper[b])}`]);
      if (n) lines.push(["rows", count(n[b])]);
      return { x: x - 9, y: y - 9, w: 18, h: 18, point: [x, y - 8], name: `Bin ${known.indexOf(b) + 1} of ${known.length}`, lines };
    });
    return { height: bottom + 44, shapes, marks };
  }
  const head = ["bin", "mean probability", "how often true", "from", "to", "rows"];
  const body = known.map((b, i) => [String(i + 1), probability(p[b]), probability(frequency[b]), probability(lower?.[b]), probability(upper?.[b]), count(n?.[b])]);
  return chart({ kind: "reliability", title, head, body, most: 440, ...options }, layout);
}

/** True classes by the class held most probable: the darker a cell, the larger its share of the true class. */
export function confusion({ labels, counts, title = "Confusion matrix", ...options }) {
  const names = labels.map(String), K = names.length;
  const totals = counts.map((row) => row.reduce((sum, value) => sum + value, 0));
  const share = (k, j) => (totals[k] > 0 ? counts[k][j] / totals[k] : 0);
  const shown = (value) => (Number.isInteger(value) ? count(value) : number(value));
  const largest = widthOf(counts.flat().map((value) => shown(value)).reduce((one, other) => (other.length > one.length ? other : one), ""));
  function layout(width) {
    const longest = widest(names), room = Math.min(longest, 0.28 * width, 190);
    const left = Math.ceil(Math.max(room, widthOf("true class", SMALL))) + 12;
    const level = (cell) => longest + 8 <= cell;
    const flat = Math.min(Math.max(48, longest + 14), (width - left) / K);
    const turned = Math.min(longest, 120, 0.2 * width) * 0.72;
    const cell = Math.max(1, level(flat) ? flat : Math.min(48, (width - left - turned) / K));
    const top = level(cell) ? 46 : Math.ceil(turned) + 40, height = Math.min(cell, 44);
    const every = Math.ceil(13 / height), gap = cell > 14 ? 2 : cell > 6 ? 1 : 0.25;
    const side = K * cell, bottom = top + K * height;
    const shapes = [
      text("axis-title", left, 12, "most probable class"),
      text("axis-title", left - 10, top - 10, "true class", "end"),
      makeSvg("rect", { class: "ground", x: left, y: top, width: rounded(side), height: rounded(bottom - top), rx: 3 }),
    ];
    names.forEach((name, k) => {
      if (k % every) return;
      const x = left + (k + 0.5) * cell, y = top + (k + 0.5) * height;
      shapes.push(text("label", left - 10, y + 4.5, fitted(name, left - 12), "end"));
      if (level(cell)) shapes.push(text("label", x, top - 10, name, "middle"));
      else {
        const turn = `translate(${rounded(x + 3)} ${top - 6}) rotate(-45)`;
        shapes.push(makeSvg("text", { class: "label", transform: turn }, fitted(name, turned / 0.72)));
      }
    });
    const numbered = largest + 6 <= cell && height >= 18, marks = [];
    for (let k = 0; k < K; k++) for (let j = 0; j < K; j++) {
      const value = counts[k][j];
      if (!value) continue;
      const part = share(k, j), x = left + j * cell, y = top + k * height;
      shapes.push(makeSvg("rect", {
        class: k === j ? "cell right" : "cell wrong", "fill-opacity": shade(part), rx: cell > 14 ? 3 : 0,
        x: rounded(x + gap / 2), y: rounded(y + gap / 2), width: rounded(cell - gap), height: rounded(height - gap),
      }));
      if (numbered) {
        shapes.push(text(part > 0.5 ? "in-cell on-dark" : "in-cell", rounded(x + cell / 2), rounded(y + height / 2 + 4.5), shown(value), "middle"));
      }
      marks.push({
        x, y, w: cell, h: height, row: k, column: j, point: [x + cell / 2, y], name: k === j ? names[k] : `${names[k]}, held for ${names[j]}`,
        lines: [["rows", shown(value)], ["of the true class", percent(part)]],
      });
    }
    return { height: Math.ceil(bottom) + 6, shapes, marks };
  }
  const head = ["true class", ...names], body = names.map((name, k) => [name, ...counts[k].map((value) => shown(value))]);
  return chart({ kind: "confusion", title, head, body, ...options }, layout);
}

/** The opacity of a cell: none at which neither dark nor light numbers are legible. */
const shade = (part) => rounded(part <= 0.5 ? 0.18 + 0.6 * part : 0.85 + 0.15 * part);
