// What is done by the utilities that are shown: with one row, and with a table of rows.

import { bars } from "./charts.js";
import { decide } from "./decide.js";
import { count, make, makeTable, number, percent, shortened } from "./elements.js";
import { histogram } from "./histogram.js";
import { renew } from "./parts.js";

const MOST_FLIPS = 12;

const fact = (name, value, title = null) => make("div", { title }, make("dt", {}, name), make("dd", {}, value));
const strong = (text) => make("strong", {}, shortened(text));
const data = (id, value, digits = 4) => make("data", { id, value: String(value) }, number(value, digits));

/** Show the action for one row, by how much it wins, and what another action would have been before. */
export function showDecision(root, proba, utility, against) {
  const { actions, matrix } = utility, P = Float64Array.from(proba);
  const { best, expected, margin, valueOfInformation } = decide(P, matrix), [action] = best;
  const others = actions.map((_, a) => a).filter((a) => a !== action);
  const second = others.reduce((one, a) => (one < 0 || expected[a] > expected[one] ? a : one), -1);
  const lead = make("p", { className: "lead" }, "Recommended: ", strong(actions[action]));
  if (second < 0) lead.append(". There is no other action.");
  else if (margin[0] === 0) lead.append("; ", strong(actions[second]), " is as good.");
  else lead.append(", worth ", data("margin", margin[0]), " more than ", shortened(actions[second]), ".");
  const before = against?.actions[decide(P, against.matrix).best[0]]; // none where nothing is compared
  const flip = before === undefined || before === actions[action] ? null
    : make("p", { className: "flip" }, "By the utilities before it was ", strong(before), ".");
  const facts = make("dl", { className: "facts" },
    fact("expected utility", data("expected", expected[action])),
    fact("value of knowing the class", data("information", valueOfInformation[0])));
  const title = "Expected utility of each action";
  const chart = bars({ labels: actions, values: [...expected], title, valueTitle: "expected utility", best: action });
  renew(root, lead, flip, facts, make("h3", {}, title), chart);
  return actions[action];
}

/** Show what is done with the rows of a table. */
export function showDecisions(root, { rows, decisions }, onFlips) {
  const { actions, counts, margin, flips = [], flipped } = decisions;
  const facts = make("dl", { className: "facts" },
    fact("expected utility per row", data("expected", decisions.expected_utility)),
    fact("value of knowing the class", data("information", decisions.value_of_information)),
    fact("median margin", data("margin", margin.quantiles[2])),
    flipped === null || flipped === undefined ? null : fact("rows that flip",
      make("data", { id: "flipped", value: String(flipped) }, `${count(flipped)} (${percent(flipped / rows)})`)));
  const taken = bars({ labels: actions, values: counts, title: "Rows by action", valueTitle: "rows" });
  renew(root, facts, make("h3", {}, "Rows by action"), taken, margins(margin), flipTable(flips, flipped, onFlips));
}

function margins({ bins, counts }) {
  if (counts.length < 2) return [];
  const title = "Margins: how surely the best action wins", valueTitle = "margin over the second best action";
  return [make("h3", {}, title), histogram({ edges: bins, counts, title, valueTitle })];
}

function flipTable(flips, flipped, onFlips) {
  if (!flipped) return [];
  const body = flips.slice(0, MOST_FLIPS).map(({ from, to, rows }) => [shortened(from), shortened(to), count(rows)]);
  const table = makeTable("Most frequent first", ["before", "now", "rows"], body);
  for (const row of table.rows) row.cells[1].className = "words";
  return [
    make("h3", {}, "Rows that flip"),
    make("div", { className: "wide" }, table),
    make("button", { type: "button", onclick: onFlips }, "Show the rows that flip"),
  ];
}
