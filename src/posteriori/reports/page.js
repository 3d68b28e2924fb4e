"use strict";

const read = (id) => JSON.parse(document.getElementById(id).textContent);
const byId = (id) => document.getElementById(id);

/** An element with properties and children; text is never taken for HTML. */
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// --- charts ---------------------------------------------------------------------------------------------------------

for (const [id, spec] of Object.entries(read("charts-data"))) {
  // ast: expressions are interpreted, so that the page needs no right to make code of text
  const options = { mode: "vega-lite", renderer: "svg", actions: false, ast: true };
  vegaEmbed(byId(id), spec, options).catch((error) => {
    byId(id).replaceChildren(make("p", { className: "failed" }, `This chart could not be drawn: ${error.message}`));
  });
}

// --- decisions: the same as posteriori.decide and posteriori.decision.scores.realised_utility ------------------------

/** Base64 of little-endian 64-bit floats. */
function floats(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float64Array.from({ length: bytes.length / 8 }, (_, i) => view.getFloat64(8 * i, true));
}

/** The number a text stands for, or null. */
function number(text) {
  const plain = text.trim().replace("\u2212", "-");
  if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(plain)) return null;
  const value = Number(plain);
  return Number.isFinite(value) ? value : null;
}

/** The action with the highest expected utility for each row, of equally good ones the first. */
function decide(P, U) {
  const K = U.length, A = U[0].length, n = P.length / K;
  const slack = 8 * Number.EPSILON * Math.max(...U.flat().map(Math.abs));
  const actions = new Int32Array(n), expected = new Float64Array(n), values = new Float64Array(A);
  for (let i = 0; i < n; i++) {
    values.fill(0);
    for (let k = 0; k < K; k++) {
      const p = P[i * K + k], row = U[k];
      for (let a = 0; a < A; a++) values[a] += p * row[a];
    }
    let best = -Infinity;
    for (let a = 0; a < A; a++) if (values[a] > best) best = values[a];
    let action = 0;
    while (values[action] < best - slack) action++;
    actions[i] = action;
    expected[i] = best;
  }
  return { actions, expected };
}

/** What decisions were worth: mean with an interval, what was expected, and what else could have been had. */
function judge(truth, { actions, expected }, U) {
  const K = U.length, A = U[0].length, n = truth.length;
  const counts = U.map((row) => row.map(() => 0));
  const frequency = new Array(K).fill(0);
  let total = 0, squares = 0, believed = 0, known = 0;
  for (let i = 0; i < n; i++) {
    const value = U[truth[i]][actions[i]];
    counts[truth[i]][actions[i]]++;
    frequency[truth[i]]++;
    total += value;
    believed += expected[i];
    known += U[truth[i]].reduce((x, y) => Math.max(x, y));
  }
  const realised = total / n;
  for (let i = 0; i < n; i++) squares += (U[truth[i]][actions[i]] - realised) ** 2;
  const error = n > 1 ? Math.sqrt(squares / (n - 1) / n) : NaN;
  const fixed = U[0].map((_, a) => frequency.reduce((sum, m, k) => sum + m * U[k][a], 0) / n);
  let single = 0;
  for (let a = 1; a < A; a++) if (fixed[a] > fixed[single]) single = a;
  return { counts, realised, error, expected: believed / n, known: known / n, single, fixed: fixed[single] };
}

const shown = (value) => {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) return value.toExponential(3);
  return value.toLocaleString("en", { maximumSignificantDigits: 5 });
};

const data = read("decisions-data");
const P = floats(data.probabilities);
const state = { actions: [], cells: [], inputs: [] };

/** Names as they can be shown; the CSV file has them in full. */
const short = (name) => (name.length > 36 ? `${name.slice(0, 33)}…${name.slice(-2)}` : name);

function start() {
  state.actions = [...data.actions];
  state.cells = data.utilities.map((row) => row.map(String));
  build();
  update();
}

/** The table of inputs, from the state. */
function build() {
  const head = make("tr", {}, make("th", { scope: "col" }, "truth"));
  state.actions.forEach((name, a) => {
    const cell = make("th", { scope: "col" }, short(name));
    if (state.actions.length > 1) {
      const remove = make("button", { type: "button", "aria-label": `Remove action ${short(name)}` }, "Remove");
      remove.addEventListener("click", () => removeAction(a));
      cell.append(remove);
    }
    head.append(cell);
  });
  state.inputs = data.labels.map(() => []);
  const body = data.labels.map((label, k) => {
    const row = make("tr", {}, make("th", { scope: "row" }, label));
    state.actions.forEach((name, a) => {
      const input = make("input", {
        type: "text", inputMode: "decimal", autocomplete: "off", value: state.cells[k][a],
        "aria-label": `Utility of ${short(name)} when the truth is ${label}`, "data-state": k, "data-action": a,
      });
      input.addEventListener("input", () => { state.cells[k][a] = input.value; update(); });
      state.inputs[k].push(input);
      row.append(make("td", {}, input));
    });
    return row;
  });
  const table = byId("utilities");
  table.tHead.replaceChildren(head);
  table.tBodies[0].replaceChildren(...body);
}

const inputAt = (k, a) => state.inputs[k]?.[a];

/** Mark what is no number; if there is nothing, decide anew. */
function update() {
  const U = state.cells.map((row) => row.map(number));
  let wrong = 0;
  U.forEach((row, k) => row.forEach((value, a) => {
    const input = inputAt(k, a);
    if (value === null) {
      wrong++;
      input.setAttribute("aria-invalid", "true");
      input.setAttribute("aria-describedby", "trouble");
    } else if (input.hasAttribute("aria-invalid")) {
      input.removeAttribute("aria-invalid");
      input.removeAttribute("aria-describedby");
    }
  }));
  const cells = wrong === 1 ? "One cell is not a number" : `${wrong} cells are not numbers`;
  say(wrong ? `${cells}: write 1.5 or -20. Until then the results below are those of the numbers before.` : "");
  for (const id of ["worth", "taken"]) byId(id).classList.toggle("stale", wrong > 0);
  if (wrong) return;
  show(U);
}

function say(trouble) {
  if (byId("trouble").textContent !== trouble) byId("trouble").textContent = trouble;
}

function show(U) {
  const judged = judge(data.truth, decide(P, U), U);
  const n = data.truth.length;
  const value = (id, x) => make("data", { id, value: String(x) }, shown(x));
  const half = 1.959964 * judged.error;
  const range = Number.isFinite(half)
    ? ` (95 % interval: ${shown(judged.realised - half)} to ${shown(judged.realised + half)})` : "";
  byId("worth").replaceChildren(
    make("p", { className: "lead" }, "Realised utility per row: ", make("strong", {}, value("realised", judged.realised)), range),
    make("p", {}, "The model expected ", value("expected", judged.expected),
      ". The best single action for all rows, ", make("q", {}, short(state.actions[judged.single])),
      ", would have given ", value("fixed", judged.fixed), "; knowing the truth, ", value("known", judged.known), "."),
  );
  const totals = state.actions.map((_, a) => judged.counts.reduce((sum, row) => sum + row[a], 0));
  const table = byId("taken");
  const header = (text) => make("th", { scope: "col" }, text);
  table.tHead.replaceChildren(make("tr", {}, header("truth"), ...state.actions.map((name) => header(short(name)))));
  table.tBodies[0].replaceChildren(...data.labels.map((label, k) => {
    const best = Math.max(...U[k]);
    const cells = judged.counts[k].map((count, a) =>
      make("td", { className: U[k][a] === best ? "best" : "" }, count.toLocaleString("en")));
    return make("tr", {}, make("th", { scope: "row" }, label), ...cells);
  }));
  table.tFoot.replaceChildren(
    make("tr", {}, make("th", { scope: "row" }, "all"), ...totals.map((m) => make("td", {}, m.toLocaleString("en")))),
    make("tr", {}, make("th", { scope: "row" }, "share"),
      ...totals.map((m) => make("td", {}, `${(100 * m / n).toFixed(1)} %`))),
  );
  byId("csv").value = csv(U);
}

function csv(U) {
  const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const lines = [["state", ...state.actions], ...U.map((row, k) => [data.states[k], ...row.map(String)])];
  return lines.map((line) => line.map(quoted).join(",")).join("\n") + "\n";
}

function addAction(event) {
  event.preventDefault();
  const name = byId("action-name").value.trim(), text = byId("action-value").value;
  const invalid = (id, is) => (is ? byId(id).setAttribute("aria-invalid", "true") : byId(id).removeAttribute("aria-invalid"));
  const unnamed = name === "", twice = state.actions.includes(name), nothing = number(text) === null;
  invalid("action-name", unnamed || twice);
  invalid("action-value", nothing);
  if (unnamed || twice || nothing) {
    say(unnamed ? "The new action needs a name." : twice ? `There is an action ${short(name)} already.`
      : "The worth of the new action is not a number.");
    byId(unnamed || twice ? "action-name" : "action-value").focus();
    return;
  }
  state.actions.push(name);
  state.cells.forEach((row) => row.push(text.trim()));
  build();
  update();
  inputAt(0, state.actions.length - 1).focus();
}

function removeAction(a) {
  state.actions.splice(a, 1);
  state.cells.forEach((row) => row.splice(a, 1));
  build();
  update();
  inputAt(0, Math.min(a, state.actions.length - 1)).focus();
}

/** Up, down and Enter go from row to row, as in a spreadsheet. */
function move(event) {
  const by = { ArrowUp: -1, ArrowDown: 1, Enter: event.shiftKey ? -1 : 1 }[event.key];
  const { state: k, action: a } = event.target.dataset;
  const next = by && k !== undefined && inputAt(Number(k) + by, a);
  if (!next) return;
  event.preventDefault();
  next.focus();
  next.select();
}

byId("decider").hidden = false;
byId("adding").addEventListener("submit", addAction);
byId("reset").addEventListener("click", start);
byId("utilities").addEventListener("keydown", move);
start();
