// How good probabilities and decisions were, for rows whose class is known.

import { confusion, intervals, reliability } from "./charts.js";
import { count, make, number, percent, shortened } from "./elements.js";
import { nameOf, renew } from "./parts.js";

const MOST_ALWAYS = 8; // actions that are each shown as a rule of their own
const WORDS = {
  log_loss: ["log-loss", "Minus the logarithm of the probability of the true class, in the mean; 0 is perfect."],
  accuracy: ["accuracy", "Share of rows whose most probable class is the true one."],
  brier: ["Brier score", "Squared distance of the probabilities from the truth; 0 is perfect."],
};

const range = ({ lower, upper }, shown) =>
  (lower === null || lower === undefined ? "" : `${shown(lower)} to ${shown(upper)}`);

/** Show scores with their intervals, calibration, confusions and the utility that was realised. */
export function showScores(root, scores) {
  const shown = { accuracy: (value) => percent(value) };
  const facts = Object.entries(WORDS).filter(([key]) => scores[key]).map(([key, [name, meaning]]) => {
    const write = shown[key] ?? ((value) => number(value, 3)), { value } = scores[key];
    return make("div", {},
      make("dt", {}, name),
      make("dd", {}, make("data", { className: "score", id: key, value: String(value) }, write(value)),
        make("span", { className: "interval" }, range(scores[key], write)),
        make("p", { className: "quiet" }, meaning)));
  });
  const { confusion: counted, reliability: binned } = scores;
  renew(root,
    make("p", { className: "quiet" },
      `${count(scores.rows)} rows whose class is known. Ranges are 95\u00a0% intervals.`),
    make("dl", { className: "scores" }, facts),
    scores.utility ? worth(scores.utility) : [],
    make("div", { className: "pair" },
      make("div", {}, make("h3", {}, "Calibration"),
        make("p", { className: "quiet" }, "Points on the diagonal: what is said to happen so often does."),
        reliability(binned)),
      make("div", {}, make("h3", {}, "Confusions"),
        make("p", { className: "quiet" }, "The darker a cell, the larger its share of the true class."),
        confusion({ labels: counted.labels.map(nameOf), counts: counted.counts }))));
}

/** What the utilities that are shown were worth, against simpler rules. */
function worth({ realised, expected, always, most_probable: probable, known }) {
  const single = always.reduce((most, one) => (one.value > most.value ? one : most), always[0]);
  const shown = always.length <= MOST_ALWAYS ? always : [single];
  const rules = [
    ["these utilities", realised],
    ["most probable class", probable],
    ...shown.map(({ action, value }) => [`always ${action}`, { value }]),
    ["if the class were known", { value: known }],
  ];
  const [labels, given] = [rules.map(([name]) => name), rules.map(([, one]) => one)];
  const chart = intervals({
    labels, mean: given.map(({ value }) => value), lower: given.map(({ lower }) => lower ?? null),
    upper: given.map(({ upper }) => upper ?? null), title: "Realised utility per row", valueTitle: "utility per row",
  });
  const value = make("data", { id: "realised", value: String(realised.value) }, number(realised.value));
  const more = realised.value - single.value;
  const best = make("q", {}, shortened(single.action));
  return [
    make("h3", {}, "Realised utility"),
    make("p", {}, "These decisions were worth ", make("strong", {}, value), " per row; the model expected ",
      make("data", { id: "believed", value: String(expected) }, number(expected)), ". Always ", best,
      ` would have given ${number(single.value)}: ${number(Math.abs(more))} ${more < 0 ? "more" : "less"}.`),
    chart,
  ];
}
