// The charts of page and report, in SVG; colours are left to the style sheet.

import { SMALL, chart, fitted, half, line, rangeOf, roundNumbers, rounded, text, widest, widthOf } from "./drawing.js";
import { count, isNumber, makeSvg, number, percent, probability } from "./elements.js";

const STEP = 24, STACKED = 42; // from row to row, with the label beside the bar or above it
const MOST_COLOURS = 7; // series that have a colour of their own
const MOST_LINES = 8; // numbers shown at a mark

const dot = (name, x, y, r) => makeSvg("circle", { class: name, cx: rounded(x), cy: rounded(y), r });
const rect = (name, x, y, w, h, rx = 0) =>
  makeSvg("rect", { class: name, x: rounded(x), y: rounded(y), width: rounded(w), height: rounded(h), rx });

/** Hairlines at round numbers with the numbers below; those at the ends stay inside. */
function axis(numbers, scale, top, bottom, width, shown = number) {
  return numbers.map((value) => {
    const x = scale(value), label = shown(value), room = widthOf(label, SMALL) / 2;
    const at = Math.max(room, Math.min(x, width - room));
    const hairline = line(value === 0 ? "zero" : "grid", half(x), top, half(x), bottom);
    return [hairline, text("tick", at, bottom + 16, label, "middle")];
  });
}

/** Numbers of each class, in the order of the classes, whether given as a list or by name. */
function listed(names, given) {
  if (given === null || given === undefined) return names.map(() => null);
  const values = typeof given.length === "number" ? Array.from(given) : names.map((name) => given[name]);
  return names.map((_, i) => (isNumber(values[i]) ? values[i] : null));
}

// --- a row for each label -------------------------------------------------------------------------------------------

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
      if (stacked) shapes.push(text("label halo", 0, top + 15, name));
      else shapes.push(text("label", left - 10, middle + 4.5, name, "end"));
      shapes.push(drawn(i, scale, middle), text("value", width, middle + 4.5, values[i], "end"));
      const x = isNumber(at[i]) ? scale(at[i]) : left;
      return { x: 0, y: top, w: width, h: by, point: [x, middle - 6], name: label, lines: lines(i) };
    });
    return { height: bottom + (axisTitle ? 40 : 22), shapes, marks };
  };
}

function bar(name, from, to, middle, thickness) {
  const x = Math.min(from, to), w = Math.abs(to - from);
  return rect(name, x, middle - thickness / 2, Math.max(w, 1), thickness, Math.min(2, w / 2));
}

function whisker(from, to, y, cap) {
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

/** One bar for each label, from zero to its value; `best` is the place of the one that stands out, if not all do. */
export function bars({ labels, values, title, valueTitle = "value", best = null, within = [], ...options }) {
  const names = labels.map(String), known = listed(names, values), domain = rangeOf([0, ...within, ...known]);
  const kind = (i) => (best === null || best === i ? "bar best" : "bar");
  const shown = known.every((value) => value === null || Number.isInteger(value)) ? count : number;
  const layout = rows({
    labels: names, values: known.map((value) => shown(value)), domain, axisTitle: valueTitle, at: known, shown: number,
    ticks: (room) => roundNumbers(...domain, Math.min(room, 6)),
    drawn: (i, scale, y) => (known[i] === null ? null : bar(kind(i), scale(0), scale(known[i]), y, 13)),
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
  const range = (i) => `${number(a[i])} to ${number(b[i])}`;
  const layout = rows({
    labels: names, values: m.map((value) => number(value, 3)), domain, axisTitle: valueTitle, at: m, shown: number,
    ticks: (room) => roundNumbers(...domain, Math.min(room, 6)),
    drawn: (i, scale, y) => [
      has(i) ? line("range", scale(a[i]), y, scale(b[i]), y) : null,
      m[i] === null ? null : dot("dot", scale(m[i]), y, 4.5),
    ],
    lines: (i) => [[valueTitle, number(m[i])], ...(has(i) ? [["interval", range(i)]] : [])],
  });
  const body = names.map((name, i) => [name, number(m[i]), number(a[i]), number(b[i])]);
  return chart({ kind: "intervals", title, head: ["label", valueTitle, "from", "to"], body, ...options }, layout);
}

// --- curves ---------------------------------------------------------------------------------------------------------

/**
 * Lines with bands over the numbers x, or points with whiskers over names x; `at` marks the present value. Of many
 * series those that reach highest have colours, the others are grey. `xText` makes text of a value of x; `pick`, if
 * given, hears the value of x that is clicked, or chosen by Enter.
 */
export function curve({ x, series, title, xTitle = "", yTitle = "probability", at = null, xText = null, ...more }) {
  const named = x.some((value) => typeof value !== "number");
  const places = x.map((value, i) => (named ? i : value));
  const shownX = xText ?? (named ? String : (value) => number(value));
  const now = at === null || at === undefined ? null : named ? x.indexOf(at) : at; // -1: a name that is not among x
  const nearNow = now === null ? -1 : places.findIndex((place) => place >= now);
  const peak = ({ y }) => y.reduce((most, value) => (isNumber(value) ? Math.max(most, value) : most), -Infinity);
  const reach = series.map((one) => peak(one) + (isNumber(one.y[nearNow]) ? one.y[nearNow] : 0));
  const ranked = [...series.keys()].sort((i, j) => reach[j] - reach[i]);
  const coloured = new Set(ranked.slice(0, MOST_COLOURS));
  const order = [...coloured].sort((i, j) => i - j);
  const colour = (i) => (coloured.has(i) ? `s${order.indexOf(i)}` : "other");
  const grey = series.length - order.length;
  const unit = series.every(({ y }) => y.every((value) => !isNumber(value) || (value >= 0 && value <= 1)));
  const shownY = unit ? probability : number;
  const all = series.flatMap(({ y, lower, upper }) => [...y, ...(lower ?? []), ...(upper ?? [])]);
  const [low, high] = unit ? [0, 1] : rangeOf(all);
  const domain = named ? [-0.5, x.length - 0.5] : rangeOf(places);

  function layout(width) {
    const names = order.map((i) => String(series[i].name)), beside = width >= 460 && !named;
    const nameRoom = beside ? Math.ceil(Math.min(widest(names), 0.3 * width)) + 24 : 0;
    const keys = beside || series.length < 2 ? { shapes: [], height: 0 } : legend(names, order.map(colour), width);
    const yTicks = unit ? [0, 0.25, 0.5, 0.75, 1] : roundNumbers(low, high, 4);
    const yText = (value) => (unit ? String(value) : number(value));
    const left = widest(yTicks.map((value) => yText(value)), SMALL) + 8;
    const right = width - nameRoom - (beside ? 0 : 8);
    const top = keys.height + 26, bottom = top + Math.min(260, Math.max(170, 0.5 * width));
    const toX = (value) => left + ((value - domain[0]) / (domain[1] - domain[0])) * (right - left);
    const toY = (value) => bottom - ((value - low) / (high - low)) * (bottom - top);
    const above = grey ? `${yTitle}; grey: ${grey} more` : yTitle;
    const shapes = [keys.shapes, text("axis-title", 0, keys.height + 12, above)];
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
    const marks = places.map((_, j) => markOf(j, toX, toY, top, bottom));
    return { height: bottom + (xTitle ? 44 : 26), shapes, marks };
  }
  function below(toX, left, right, bottom) {
    if (!named) {
      const room = xText ? widest(domain.map(shownX), SMALL) + 20 : 90;
      const wanted = Math.max(xText ? 1 : 2, Math.floor((right - left) / room));
      return (xText ? evenly(domain, wanted) : roundNumbers(...domain, Math.min(wanted, 7))).map((value) =>
        text("tick", Math.max(left, Math.min(toX(value), right - 8)), bottom + 17, shownX(value), "middle"));
    }
    const each = (right - left) / x.length, every = Math.ceil(34 / each);
    const name = (value) => fitted(shownX(value), each * every - 6, SMALL);
    return x.map((value, j) => (j % every ? null : text("tick", toX(j), bottom + 17, name(value), "middle")));
  }
  function lineAndBand(i, toX, toY) {
    const { y, lower, upper } = series[i], shapes = [];
    if (coloured.has(i) && lower && upper) {
      const inside = places.map((_, j) => j).filter((j) => isNumber(lower[j]) && isNumber(upper[j]));
      const over = inside.map((j) => [places[j], upper[j]]), under = inside.map((j) => [places[j], lower[j]]);
      const d = `${pathOf([...over, ...under.reverse()], toX, toY)}Z`;
      if (inside.length > 1) shapes.push(makeSvg("path", { class: `band ${colour(i)}`, d }));
    }
    const known = places.map((value, j) => [value, y[j]]).filter(([, value]) => isNumber(value));
    shapes.push(makeSvg("path", { class: `line ${colour(i)}`, d: pathOf(known, toX, toY) }));
    const value = now === null ? null : between(known, now);
    if (coloured.has(i) && value !== null) shapes.push(dot(`dot ${colour(i)}`, toX(now), toY(value), 4));
    return shapes;
  }
  function dodged(i, toX, toY) {
    const { y, lower, upper } = series[i], place = order.indexOf(i);
    const each = Math.min(14, (0.7 * (toX(1) - toX(0))) / Math.max(1, order.length));
    const aside = place < 0 ? 0 : (place - (order.length - 1) / 2) * each;
    return y.map((value, j) => {
      if (!isNumber(value)) return null;
      const at = toX(j) + aside;
      const range = coloured.has(i) && isNumber(lower?.[j]) && isNumber(upper?.[j]);
      return [
        range ? line(`range ${colour(i)}`, at, toY(lower[j]), at, toY(upper[j])) : null,
        dot(`dot ${colour(i)}`, at, toY(value), place < 0 ? 2 : 4),
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
      dot(`dot ${colour(i)}`, right + 10, y, 4),
      text("label", right + 19, y + 4.5, fitted(names[place], room - 22)),
    ]);
  }
  function markOf(j, toX, toY, top, bottom) {
    const known = [...series.keys()].filter((i) => isNumber(series[i].y[j]));
    const ordered = known.sort((i, k) => series[k].y[j] - series[i].y[j]);
    const lines = ordered.slice(0, MOST_LINES).map((i) => [String(series[i].name), shownY(series[i].y[j])]);
    const before = j > 0 ? (toX(places[j]) - toX(places[j - 1])) / 2 : 6;
    const after = j + 1 < places.length ? (toX(places[j + 1]) - toX(places[j])) / 2 : 6;
    const name = xTitle ? `${xTitle} ${shownX(x[j])}` : String(shownX(x[j]));
    const first = ordered.length ? toY(series[ordered[0]].y[j]) : bottom;
    const at = toX(places[j]), left = Math.min(before, 24), right = Math.min(after, 24);
    const point = [at, Math.max(top + 8, first)];
    return { x: at - left, y: top, w: left + right, h: bottom - top, point, name, lines };
  }
  const head = [xTitle || "value", ...series.map(({ name }) => String(name))];
  const body = x.map((value, j) => [shownX(value), ...series.map(({ y }) => shownY(y[j]))]);
  const pick = more.pick ? (j) => more.pick(x[j]) : null;
  return chart({ kind: "curve", title, head, body, first: Math.max(nearNow, 0), ...more, pick }, layout);
}

const pathOf = (points, toX, toY) =>
  points.map(([x, y], j) => `${j ? "L" : "M"}${rounded(toX(x))} ${rounded(toY(y))}`).join("");
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
    shapes.push(dot(`dot ${colours[i]}`, x + 5, y - 4, 4.5), text("label", x + 15, y, label));
    x += room;
  });
  return { shapes, height: names.length ? y + 16 : 0 };
}

// --- how good probabilities are -------------------------------------------------------------------------------------

/** Frequency against probability with intervals; bars along the bottom say how many rows a bin has. */
export function reliability(given) {
  const { probability: p, frequency, lower, upper, rows: n, title = "Reliability diagram", ...options } = given;
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
      shapes.push(text("tick", left - 8, toY(value) + 4, String(value), "end"));
      shapes.push(text("tick", toX(value), bottom + 17, String(value), "middle"));
    }
    shapes.push(text("axis-title", left + side, bottom + 36, "probability of the most probable class", "end"));
    shapes.push(line("diagonal", toX(0), toY(0), toX(1), toY(1)));
    for (const b of known) {
      const x = toX(p[b]);
      if (most) shapes.push(line("share", x, bottom, x, bottom - (0.12 * side * n[b]) / most));
      if (has(b)) shapes.push(line("range", x, toY(lower[b]), x, toY(upper[b])));
    }
    const marks = known.map((b, i) => {
      const x = toX(p[b]), y = toY(frequency[b]), name = `Bin ${i + 1} of ${known.length}`;
      shapes.push(dot("dot", x, y, 5));
      const lines = [["mean probability", probability(p[b])], ["how often true", probability(frequency[b])]];
      if (has(b)) lines.push(["interval", `${probability(lower[b])} to ${probability(upper[b])}`]);
      if (n) lines.push(["rows", count(n[b])]);
      return { x: x - 9, y: y - 9, w: 18, h: 18, point: [x, y - 8], name, lines };
    });
    return { height: bottom + 44, shapes, marks };
  }
  const head = ["bin", "mean probability", "how often true", "from", "to", "rows"];
  const body = known.map((b, i) =>
    [String(i + 1), ...[p, frequency, lower, upper].map((values) => probability(values?.[b])), count(n?.[b])]);
  return chart({ kind: "reliability", title, head, body, most: 440, ...options }, layout);
}

/** True classes by the class held most probable: the darker a cell, the larger its share of the true class. */
export function confusion({ labels, counts, title = "Confusion matrix", unit = "rows", ...options }) {
  const names = labels.map(String), K = names.length;
  const totals = counts.map((row) => row.reduce((sum, value) => sum + value, 0));
  const share = (k, j) => (totals[k] > 0 ? counts[k][j] / totals[k] : 0);
  const shown = (value) => (Number.isInteger(value) ? count(value) : number(value));
  const texts = counts.flat().map((value) => shown(value));
  const largest = widthOf(texts.reduce((one, other) => (other.length > one.length ? other : one), ""));
  function layout(width) {
    const longest = widest(names), room = Math.min(longest, 0.28 * width, 190);
    const left = Math.ceil(Math.max(room, widthOf("true class", SMALL))) + 12;
    const level = (cell) => longest + 8 <= cell;
    const flat = Math.min(Math.max(48, longest + 14), (width - left) / K);
    const turned = Math.min(longest, 120, 0.25 * width) * 0.72;
    const cell = Math.max(1, level(flat) ? flat : Math.min(48, (width - left - turned) / K));
    const top = level(cell) ? 46 : Math.ceil(turned) + 40, height = Math.min(cell, 44);
    const every = Math.ceil(14 / height), everyTurned = Math.ceil(19 / cell); // labels that have room
    const gap = cell > 14 ? 2 : cell > 6 ? 1 : 0.25;
    const side = K * cell, bottom = top + K * height;
    const shapes = [
      text("axis-title", left, 12, "most probable class"),
      text("axis-title", left - 10, top - 10, "true class", "end"),
      rect("ground", left, top, side, bottom - top, 3),
    ];
    names.forEach((name, k) => {
      const x = left + (k + 0.5) * cell, y = top + (k + 0.5) * height;
      if (k % every === 0) shapes.push(text("label", left - 10, y + 4.5, fitted(name, left - 12), "end"));
      if (level(cell)) shapes.push(text("label", x, top - 10, name, "middle"));
      else if (k % everyTurned === 0) {
        const turn = `translate(${rounded(x + 3)} ${top - 6}) rotate(-45)`;
        shapes.push(makeSvg("text", { class: "label", transform: turn }, fitted(name, turned / 0.72)));
      }
    });
    const numbered = largest + 6 <= cell && height >= 18, marks = [];
    for (let k = 0; k < K; k++) for (let j = 0; j < K; j++) {
      const value = counts[k][j];
      if (!value) continue;
      const part = share(k, j), x = left + j * cell, y = top + k * height;
      const kind = k === j ? "cell right" : "cell wrong";
      const ink = rect(kind, x + gap / 2, y + gap / 2, cell - gap, height - gap, cell > 14 ? 3 : 0);
      ink.setAttribute("fill-opacity", shade(part));
      shapes.push(ink);
      if (numbered) {
        const name = part > 0.5 ? "in-cell on-dark" : "in-cell";
        shapes.push(text(name, rounded(x + cell / 2), rounded(y + height / 2 + 4.5), shown(value), "middle"));
      }
      const name = k === j ? names[k] : `${names[k]}, held for ${names[j]}`;
      const lines = [[unit, shown(value)], ["of the true class", percent(part)]];
      marks.push({ x, y, w: cell, h: height, row: k, column: j, point: [x + cell / 2, y], name, lines });
    }
    return { height: Math.ceil(bottom) + 6, shapes, marks };
  }
  const head = ["true class", ...names];
  const body = names.map((name, k) => [name, ...counts[k].map((value) => shown(value))]);
  return chart({ kind: "confusion", title, head, body, ...options }, layout);
}

/** The opacity of a cell, which is none at which neither dark nor light numbers are legible. */
const shade = (part) => rounded(part <= 0.5 ? 0.18 + 0.6 * part : 0.85 + 0.15 * part);
