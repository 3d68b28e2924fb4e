// The report: its charts, and its decisions by the utilities that are typed in.

import { bars, confusion, intervals, reliability } from "./charts.js";
import { decide, judge } from "./decide.js";
import { byId, count, make, makeTable, number, percent, shortened } from "./elements.js";
import { utilityCsv, utilityTable } from "./utility_table.js";

const CHARTS = { bars, confusion, intervals, reliability };
const DIGITS = 5, Z = 1.959964;

const read = (id) => JSON.parse(byId(id).textContent);

// the numbers of each chart are below it in the page: no table for screen readers alone is needed
for (const [id, { chart, ...given }] of Object.entries(read("charts-data"))) {
  byId(id).replaceChildren(CHARTS[chart]({ ...given, table: false }));
}

const data = read("decisions-data");
const P = floats(data.probabilities);

/** Base64 of little-endian 64-bit floats. */
function floats(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float64Array.from({ length: bytes.length / 8 }, (_, i) => view.getFloat64(8 * i, true));
}

/** What is decided by a utility, and what that was worth. */
function show(utility) {
  const { actions, matrix } = utility, judged = judge(data.truth, decide(P, matrix), matrix);
  const value = (id, x) => make("data", { id, value: String(x) }, number(x, DIGITS));
  const half = Z * judged.error;
  const range = Number.isFinite(half)
    ? ` (95 % interval: ${number(judged.realised - half, DIGITS)} to ${number(judged.realised + half, DIGITS)})` : "";
  const realised = make("strong", {}, value("realised", judged.realised));
  byId("worth").replaceChildren(
    make("p", { className: "lead" }, "Realised utility per row: ", realised, range),
    make("p", {}, "The model expected ", value("expected", judged.expected),
      ". The best single action for all rows, ", make("q", {}, shortened(actions[judged.single])),
      ", would have given ", value("fixed", judged.fixed), "; knowing the truth, ", value("known", judged.known), "."),
  );
  byId("taken").replaceChildren(taken(utility, judged.counts));
  byId("csv").value = utilityCsv(utility);
}

/** The table of actions taken, by the true class. */
function taken({ actions, matrix }, counts) {
  const head = ["truth", ...actions.map((name) => shortened(name))];
  const body = data.labels.map((label, k) => [label, ...counts[k].map((rows) => count(rows))]);
  const table = makeTable("Rows of each true class, by the action taken", head, body);
  matrix.forEach((row, k) => {
    const best = Math.max(...row);
    row.forEach((u, a) => table.tBodies[0].rows[k].cells[a + 1].classList.toggle("best", u === best));
  });
  const totals = actions.map((_, a) => counts.reduce((sum, row) => sum + row[a], 0));
  const row = (name, cells) =>
    make("tr", {}, make("th", { scope: "row" }, name), cells.map((cell) => make("td", {}, cell)));
  table.append(make("tfoot", {}, row("all", totals.map((rows) => count(rows))),
    row("share", totals.map((rows) => percent(rows / data.truth.length)))));
  return table;
}

/** Mark as out of date what does not belong to the cells as they are. */
function doubt(trouble) {
  for (const id of ["worth", "taken"]) byId(id).classList.toggle("stale", trouble !== "");
}

function save() {
  const file = URL.createObjectURL(new Blob([byId("csv").value], { type: "text/csv" }));
  make("a", { href: file, download: "utility.csv" }).click();
  URL.revokeObjectURL(file);
}

byId("decider").hidden = false;
byId("save").addEventListener("click", save);
utilityTable(byId("utilities"), { ...data, matrix: data.utilities }, show, doubt);
