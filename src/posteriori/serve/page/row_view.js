// One row: its probabilities, how uncertain they are, and how they change along one column.

import { bars, curve, probabilityBars } from "./charts.js";
import { make, number, percent, probability } from "./elements.js";
import { inOrder, nameOf, renew } from "./parts.js";

const LEVEL = 0.95;
const MOST_DAYS = 10; // that are told apart by the hour, too

/** Show the probabilities of a row and how uncertain they are. */
export function showProbabilities(root, model, answer) {
  const classes = model.classes.map(nameOf);
  const [proba, lower, upper] = [answer.proba, answer.lower, answer.upper].map((p) => inOrder(model.classes, p));
  const best = classes.indexOf(nameOf(answer.class)), has = lower && upper;
  const range = has ? `, ${percent(LEVEL, 0)} interval ${probability(lower[best])} to ${probability(upper[best])}` : "";
  const likely = make("p", { className: "lead" }, "Most probable: ", make("strong", {}, classes[best]),
    ` with ${probability(proba[best])}${range}.`);
  const chart = probabilityBars({ classes, proba, lower, upper, title: "Probabilities of the classes" });
  renew(root, likely, chart, setOf(answer), ...uncertainty(answer, classes.length));
}

/** The prediction set, if the model has one. */
function setOf({ set }) {
  if (!set) return null;
  const names = set.map(nameOf).join(", ");
  return make("p", {}, set.length ? `Prediction set: ${names}.` : "Prediction set: empty, as no class fits this row.");
}

function uncertainty({ total, aleatoric, epistemic }, K) {
  if (total === undefined || total === null) return [];
  const chart = bars({
    labels: ["aleatoric", "epistemic"], values: [aleatoric, epistemic], within: [Math.log(K)], title: "Uncertainty",
    valueTitle: "entropy in nats",
  });
  const share = total > 0 ? ` (${percent(epistemic / total, 0)} of it epistemic)` : "";
  return [
    make("h3", {}, "How uncertain"),
    make("p", { className: "quiet" }, `In all ${number(total, 3)} of at most ${number(Math.log(K), 3)} nats${share}. `,
      "Aleatoric uncertainty stays, however much data there is; epistemic uncertainty would go with more data."),
    chart,
  ];
}

/** Show the probabilities along one column; `pick(value)` hears which value is chosen on the curve. */
export function showCurve(root, model, column, row, found, pick) {
  const isDate = column.kind.startsWith("date"), seconds = (value) => Date.parse(value) / 1000;
  const days = isDate ? (seconds(found.x.at(-1)) - seconds(found.x[0])) / 86400 : 0;
  const moment = (value) => new Date(value * 1000).toISOString().slice(0, days > MOST_DAYS ? 10 : 16).replace("T", " ");
  const isNumber = column.kind === "number" || column.kind === "duration";
  const place = (value) => (value === null ? null : isDate ? seconds(value) : isNumber ? value : String(value));
  const x = found.x.map((value) => place(value) ?? "missing");
  const shownX = isDate ? { xText: moment } : {};
  const series = model.classes.map((label, k) => ({
    name: nameOf(label),
    y: found.proba.map((p) => p[k]),
    ...(found.lower ? { lower: found.lower.map((p) => p[k]), upper: found.upper.map((p) => p[k]) } : {}),
  }));
  renew(root, curve({
    x, series, title: `Probabilities along ${column.name}`, xTitle: column.name, at: place(row[column.name]), ...shownX,
    pick: (value) => pick(found.x[x.indexOf(value)]),
  }));
}
