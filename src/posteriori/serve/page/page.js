// The page: what is shown is one state, kept in the address; every change of it is asked of the server and drawn.

import { dropAddress, flushAddress, readAddress, writeAddress } from "./address.js";
import { showDecision, showDecisions } from "./decisions.js";
import { announce, byId, count, isNumber, make, number, shortened } from "./elements.js";
import { button, complain, inOrder, nameOf, remedies, renew, save, wordsOf } from "./parts.js";
import { exampleRows, rowForm, rowOf, typicalRow } from "./row_form.js";
import { showCurve, showProbabilities } from "./row_view.js";
import { showScores } from "./scores.js";
import { ask, askForFile, inTurn, tokenBy } from "./server.js";
import { described, filters, showClasses, showRows, ROWS } from "./table_view.js";
import { cellsOf, utilityCsv, utilityTable } from "./utility_table.js";

const PARTS = ["class", "proba", "lower", "upper", "total", "aleatoric", "epistemic", "set"];
const MOST_BESIDE = 5; // actions whose utilities leave room beside them,
const MOST_LETTERS = 44; // if their columns, as wide as their names, have no more letters
const MOST_CELLS = 10_000; // of utilities to be typed in
const PAUSE = 120; // milliseconds without typing, before a table is asked for
const PAUSE_OF_SPEECH = 700; // before what has come of a change is said
const LONGEST_SHOWN = 200_000; // letters of pasted rows that a text field bears
const TYPES = { parquet: "application/vnd.apache.parquet", arrow: "application/vnd.apache.arrow.stream" };

let models = [], model = null, state = {};
let form = null, utilities = null, start = null, isFilling = false;
let answer = null; // of the row that is shown: { model, row, values }
let waiting = null, telling = null, told = null; // what is asked and said a little later, and what was said last
let table = null, summary = null; // the table that is shown, and what was said of it

const shownModel = () => models.find(({ name }) => name === state.model) ?? models[0];
const isRow = () => state.view !== "rows";
const utility = () => fitting(state.utility) ?? start;
const against = () => fitting(state.against) ?? start;

/** The utilities to compare with: none, if no action has the name of one of theirs. */
function compared() {
  const before = against(), names = new Set(utility().actions);
  return before.actions.some((name) => names.has(name)) ? before : null;
}
const asked = ({ actions, matrix }) => ({ states: model.classes, actions, matrix });

/** Utilities of an address, if they are some for the classes of the model. */
function fitting(given) {
  const { actions, matrix } = given ?? {};
  const isTable = Array.isArray(actions) && actions.length > 0 && new Set(actions).size === actions.length
    && Array.isArray(matrix) && matrix.length === model.classes.length
    && matrix.every((row) => Array.isArray(row) && row.length === actions.length && row.every(isNumber));
  return isTable ? { actions: actions.map(String), matrix } : null;
}

/** What is shown changes: a step that Back takes back, or a part of the last one. */
function change(part, isStep = true) {
  Object.assign(state, part);
  writeAddress(state, isStep);
  return show();
}

// --- the model ------------------------------------------------------------------------------------------------------

function openModel() {
  model = shownModel();
  const classes = model.classes.map(nameOf);
  const own = model.utility;
  start = own ? { actions: own.actions.map(nameOf), matrix: own.matrix }
    : { actions: classes, matrix: classes.map((_, k) => classes.map((_, a) => (k === a ? 1 : 0))) };
  answer = table = summary = null;
  byId("title").textContent = model.target ? `Which ${shortened(model.target, 40)}?` : "Which class?";
  byId("about").textContent = `${model.name}: ${model.class} with ${classes.length} classes and `
    + `${model.columns.length} columns, version ${model.version}`;
  document.title = `${model.name}: posteriori`;
  byId("models").value = model.name;
  form = rowForm(byId("row-form"), model.columns, (row) => change({ row }, false), doubt);
  const numeric = model.columns.filter(({ kind }) => kind === "number");
  byId("curve-column").replaceChildren(...model.columns.map(({ name }) =>
    make("option", { value: name }, shortened(name, 40))));
  byId("curve-column").dataset.first = (numeric[0] ?? model.columns[0])?.name ?? "";
  buildUtilities(classes);
}

/** The table to type utilities into, or a sentence where it would have more cells than a browser bears. */
function buildUtilities(classes) {
  const cells = classes.length * start.actions.length;
  if (cells > MOST_CELLS) {
    utilities = null;
    byId("utilities").replaceChildren(make("p", {},
      `There are ${count(cells)} utilities: too many to be typed in here. Decide on the command line.`));
    return;
  }
  isFilling = true;
  utilities = utilityTable(byId("utilities"), { states: classes, ...start }, utilitiesChanged, doubtDecisions);
  isFilling = false;
}

/** Mark what does not belong to the form as it is. */
function doubt(isWrong) {
  for (const id of ["probabilities", "curve"]) byId(id).classList.toggle("stale", isWrong);
  if (isRow()) doubtDecisions(isWrong ? "wrong" : "");
}
function doubtDecisions(trouble) {
  byId("decisions").classList.toggle("stale", trouble !== "");
}

function utilitiesChanged(value) {
  if (isFilling) return;
  const { actions, matrix } = value, isStart = JSON.stringify({ actions, matrix }) === JSON.stringify(start);
  change({ utility: isStart ? null : { actions, matrix } }, false);
}

// --- everything that is shown ---------------------------------------------------------------------------------------

/** Whether the columns of these actions leave room beside them; page.css says how wide one is. */
function fitBeside(actions) {
  const letters = actions.map((name) => Math.min(Math.max(name.length + 4, 7), 20));
  return actions.length <= MOST_BESIDE && letters.reduce((sum, width) => sum + width, 0) <= MOST_LETTERS;
}

/** Show the state; `isOther` if it is not one that has come of the present one. */
function show({ isOther = false } = {}) {
  if (model !== shownModel()) openModel();
  const view = isRow() ? "row" : "rows";
  for (const [id, name] of [["to-row", "row"], ["to-rows", "rows"]]) {
    if (view === name) byId(id).setAttribute("aria-current", "page");
    else byId(id).removeAttribute("aria-current");
  }
  byId("row-view").hidden = view !== "row";
  byId("table-view").hidden = view !== "rows";
  showUtilities(isOther);
  if (view === "row") {
    for (const id of ["scores-view", "page-view"]) byId(id).hidden = true;
    form.write(state.row ?? null);
    return showRow();
  }
  if (!state.table) byId("verdict").hidden = true;
  return showTable();
}

function showUtilities(isOther) {
  const now = utility(), value = utilities?.value() ?? null; // none while a cell is no number
  const is = value && JSON.stringify([value.actions, value.matrix]) === JSON.stringify([now.actions, now.matrix]);
  if (utilities && !is && (isOther || (value && !byId("utilities").contains(document.activeElement)))) {
    isFilling = true;
    utilities.set(now);
    isFilling = false;
  }
  const which = fitting(state.against) ? "utilities that were set aside" : "the first utilities";
  byId("compared").textContent = compared() ? `Decisions are compared with those by ${which}.`
    : `Decisions are not compared with those by ${which}: no action has the same name.`;
  byId("costs").classList.toggle("stacked", !fitBeside(now.actions));
  const csv = utilityCsv({ states: model.classes.map(nameOf), ...now });
  if (byId("csv").value !== csv) byId("csv").value = csv;
  byId("command").value = `posteriori decide ${model.name}.model rows.csv --utility utility.csv`;
}

// --- one row --------------------------------------------------------------------------------------------------------

const query = (more = {}) => {
  const given = { model: model.name, ...more };
  return new URLSearchParams(Object.entries(given).filter(([, value]) => value)).toString();
};
const key = (row) => JSON.stringify([model.name, model.version, row, state.levels]);

const predict = inTurn(async (row) => {
  const now = key(row), wanted = PARTS.filter((name) => model.answers.includes(name));
  const path = query({ new_levels: state.levels });
  try {
    const found = await ask(`predict?${path}`, { body: { rows: [row], answers: wanted } });
    if (now !== key(state.row) || !isRow()) return;
    answer = { key: now, values: found.rows[0], warnings: found.warnings };
    byId("row-trouble").replaceChildren(...found.warnings.map((line) => make("p", { className: "quiet" }, line)));
    drawRow();
  } catch (refused) {
    if (now !== key(state.row)) return;
    answer = null;
    refuseRow(refused);
  }
});

function refuseRow(refused) {
  if (refused.status === undefined) throw refused;
  const help = ({ new_levels: levels = state.levels }) => {
    byId("row-trouble").replaceChildren();
    change({ levels });
  };
  const words = wordsOf(refused).replace(/^Row 1: ./, (start) => start.at(-1).toUpperCase());
  const isTyping = byId("row-form").contains(document.activeElement);
  byId("row-trouble").replaceChildren();
  const isTold = refused.column !== null && form.complain(words, refused.column, remedies(refused, help));
  if (!isTold) complain(byId("row-trouble"), refused, help, { focus: !isTyping });
  const sentence = make("p", { className: "quiet" }, "There is no answer for this row: see what is said at the form.");
  for (const id of ["probabilities", "decisions"]) byId(id).replaceChildren(sentence.cloneNode(true));
  byId("what-if").hidden = true;
  byId("verdict").hidden = true;
}

const alongColumn = inTurn(async (row, column) => {
  const now = key(row);
  try {
    const body = { row, column: column.name, ...(state.levels ? { new_levels: state.levels } : {}) };
    const found = await ask(`page/curve?${query()}`, { body });
    if (now !== key(state.row) || column !== curveColumn()) return;
    const pick = (value) => {
      change({ row: { ...state.row, [column.name]: value } }, false);
      announce(`${column.name} is ${value}`);
    };
    showCurve(byId("curve"), model, column, row, found, pick);
  } catch (refused) {
    if (now === key(state.row)) byId("curve").replaceChildren(make("p", { className: "trouble" }, refused.message));
  }
});

const curveColumn = () => {
  const wanted = state.curve ?? byId("curve-column").dataset.first;
  return model.columns.find(({ name }) => name === wanted) ?? model.columns[0];
};

function showRow() {
  if (!state.row) {
    const begin = button("Begin with a typical row", () => byId("typical").click());
    byId("probabilities").replaceChildren(
      make("p", {}, "There is no row yet. Fill in the form, paste one, or begin with one from the middle of the fit."),
      begin);
    byId("decisions").replaceChildren(
      make("p", { className: "quiet" }, "What is recommended is shown here when there is a row."));
    byId("row-trouble").replaceChildren();
    byId("what-if").hidden = true;
    byId("verdict").hidden = true;
    return;
  }
  if (answer?.key === key(state.row)) drawRow();
  else predict(state.row);
  const column = curveColumn();
  byId("curve-column").value = column.name;
  alongColumn(state.row, column);
}

function drawRow() {
  const { values } = answer, [now, before] = [utility(), compared()];
  byId("what-if").hidden = false;
  showProbabilities(byId("probabilities"), model, values);
  const action = showDecision(byId("decisions"), inOrder(model.classes, values.proba), now, before);
  const likely = `Most probable: ${shortened(nameOf(values.class), 28)}. `;
  verdict(likely, "Recommended: ", make("strong", {}, shortened(action, 28)), ".");
}

/** What has come of it, in a line that stays in sight and is read out. */
function verdict(...parts) {
  byId("verdict").replaceChildren(...parts);
  byId("verdict").hidden = false;
  tell(byId("verdict").textContent);
}

/** Have screen readers say what has come of a change, when no other follows at once. */
function tell(sentence) {
  clearTimeout(telling);
  if (sentence !== told) telling = setTimeout(() => announce(told = sentence), PAUSE_OF_SPEECH);
}

// --- many rows ------------------------------------------------------------------------------------------------------

/** Read rows: text, or a file; `allowed` are options that a click has added. */
async function send(body, type, allowed = {}) {
  const place = byId("intake-trouble");
  place.replaceChildren(make("p", { className: "quiet", role: "status" }, "The rows are read and predicted…"));
  byId("intake").setAttribute("aria-busy", "true");
  try {
    const path = query({ new_columns: allowed.new_columns, new_levels: allowed.new_levels });
    table = await ask(`page/tables?${path}`, { body, type });
    place.replaceChildren();
    summary = null;
    await change({ view: "rows", table: table.id, start: 0, only: null, sort: null });
    announce(`${table.rows} rows were read`);
    byId("h-rows").focus();
  } catch (refused) {
    if (refused.status === undefined) throw refused;
    if (isRow() || state.table) await change({ view: "rows", table: null, only: null, sort: null, start: 0 });
    complain(place, refused, (remedy) => send(body, type, { ...allowed, ...remedy }));
    if (refused.row !== null && typeof body === "string" && !refused.remedy) selectLine(byId("pasted"), refused.row);
  } finally {
    byId("intake").removeAttribute("aria-busy");
  }
}

/** Put the focus on a line of a text; 0 is the header. */
function selectLine(area, line) {
  const lines = area.value.split("\n");
  if (line >= lines.length) return;
  const begin = lines.slice(0, line).reduce((letters, one) => letters + one.length + 1, 0);
  area.focus();
  area.setSelectionRange(begin, begin + lines[line].length);
  area.scrollTop = Math.max(0, (line - 1.5) * (area.scrollHeight / lines.length)); // a selection alone scrolls nothing
}

function sendFile(file) {
  const ending = file.name.split(".").at(-1).toLowerCase();
  return send(file, TYPES[ending] ?? (ending.startsWith("arrow") ? TYPES.arrow : "text/csv"));
}

async function showTable() {
  const has = Boolean(state.table);
  byId("intake").hidden = has;
  byId("table").hidden = !has;
  if (!has) {
    table = summary = null;
    for (const id of ["scores-view", "page-view"]) byId(id).hidden = true;
    byId("decisions").replaceChildren(
      make("p", { className: "quiet" }, "What is decided is shown here when there are rows."));
    return;
  }
  clearTimeout(waiting);
  waiting = setTimeout(() => askForTable(state), summary ? PAUSE : 0);
}

const askForTable = inTurn(async () => {
  const id = state.table, name = model.name;
  const isSame = () => id === state.table && name === model.name && !isRow();
  if (!id || isRow()) return;
  const before = compared(), both = { utility: asked(utility()), against: before && asked(before) };
  const { flipped, ...others } = state.only ?? {}, only = before && flipped ? { ...others, flipped } : others;
  const page = { ...both, start: state.start ?? 0, count: ROWS, sort: state.sort ?? { by: "row", descending: false },
    only };
  try {
    const path = `page/tables/${encodeURIComponent(id)}`;
    const known = table?.id === id ? table : await ask(path);
    const [said, rows] = await Promise.all(
      [ask(`${path}/summary`, { body: both }), ask(`${path}/rows`, { body: page })]);
    if (!isSame()) return;
    [table, summary] = [known, said];
    byId("table-trouble").replaceChildren();
    drawTable(rows);
  } catch (refused) {
    if (refused.status === undefined) throw refused;
    if (!isSame()) return;
    summary = null;
    const words = refused.status === 404 ? { ...refused, message:
      "These rows are no longer on the server, which keeps them for some hours: read them again." } : refused;
    complain(byId("table-trouble"), words, () => show());
    byId("classes").replaceChildren();
    byId("table-about").replaceChildren();
    byId("decisions").replaceChildren();
    byId("verdict").hidden = true;
    for (const one of ["scores-view", "page-view"]) byId(one).hidden = true;
  }
});

function drawTable(rows) {
  const has = {
    truth: table.truth, decisions: true, compared: Boolean(compared()), uncertainty: Boolean(summary.uncertainty),
    before: summary.decisions.flipped > 0, size: Math.max(...utility().matrix.flat().map(Math.abs)),
  };
  renew(byId("table-about"), described(table));
  const { flipped, expected_utility: expected } = summary.decisions;
  const flips = isNumber(flipped) ? ` ${count(flipped)} of ${count(summary.rows)} rows flip.` : "";
  verdict(`Expected utility per row: ${number(expected)}.`, flips);
  showClasses(byId("classes"), summary);
  showDecisions(byId("decisions"), summary, () => {
    change({ only: { flipped: true }, start: 0 });
    byId("h-page").scrollIntoView();
    byId("h-page").focus({ preventScroll: true });
  });
  byId("scores-view").hidden = !summary.scores;
  if (summary.scores) showScores(byId("scores"), summary.scores);
  byId("page-view").hidden = false;
  filters(byId("filters"), model, summary.decisions.actions, state.only, has, (part) => change(part));
  showRows(byId("rows"), model, table, rows, state, has, {
    onOpen: (row) => open(row), onChange: (part) => change(part),
  });
}

/** Look at one row of the table: its values go into the form. */
function open(row) {
  change({ view: "row", row: Object.fromEntries(model.columns.map(({ name }) => [name, row.values[name] ?? null])) });
  byId("h-row").focus();
  scrollTo(0, 0);
}

// --- what is done on the page ---------------------------------------------------------------------------------------

function listen() {
  const press = (id, done) => byId(id).addEventListener("click", done);
  byId("models").addEventListener("change", () => change(
    { model: byId("models").value, row: null, utility: null, against: null, table: null, curve: null, only: null,
      sort: null, start: 0 }));
  for (const [id, view] of [["to-row", "row"], ["to-rows", "rows"]]) {
    byId(id).href = "#";
    press(id, (event) => {
      event.preventDefault();
      change({ view: view === "row" ? null : view });
    });
  }
  press("link", () => {
    flushAddress();
    copy(location.href, "The link is copied");
  });
  press("copy-command", () => copy(byId("command").value, "The command is copied", byId("command")));
  press("typical", () => change({ row: typicalRow(model.columns) }));
  press("empty", () => change({ row: null }));
  byId("row-form").addEventListener("submit", (event) => event.preventDefault());
  byId("curve-column").addEventListener("change", () => change({ curve: byId("curve-column").value }, false));
  press("compare", () => {
    change({ against: state.utility ?? null });
    announce("Decisions are compared with these utilities from now on");
  });
  press("save-utility", () => save("utility.csv", byId("csv").value));
  press("read", () => {
    if (byId("pasted").value.trim()) return send(byId("pasted").value, "text/csv");
    const nothing = { message: "There are no rows yet: paste some, with their header.", status: 400 };
    return complain(byId("intake-trouble"), nothing);
  });
  press("example", () => {
    byId("pasted").value = exampleRows(model.columns);
    byId("pasted").focus();
  });
  byId("file").addEventListener("change", () => {
    const [file] = byId("file").files;
    byId("file").value = "";
    if (file) sendFile(file);
  });
  press("other-rows", () => {
    change({ table: null, only: null, sort: null, start: 0 });
    byId("pasted").focus();
  });
  press("download", download);
  document.addEventListener("paste", paste);
  for (const kind of ["dragenter", "dragover", "dragleave", "drop"]) document.addEventListener(kind, drag);
  window.addEventListener("popstate", () => {
    dropAddress();
    state = readAddress();
    show({ isOther: true });
  });
  window.addEventListener("pagehide", flushAddress);
}

async function copy(text, words, field = null) {
  try {
    await navigator.clipboard.writeText(text);
    announce(words);
  } catch { // not allowed: it is selected, to be copied by hand
    if (field) field.select();
    else announce("Copy the address of this page");
  }
}

async function download() {
  try {
    const path = `page/tables/${encodeURIComponent(state.table)}/download`;
    save(`${model.name}-decisions.csv`, await askForFile(path, { body: { utility: asked(utility()) } }));
  } catch (refused) {
    if (refused.status === undefined) throw refused;
    complain(byId("table-trouble"), refused);
  }
}

/** Rows that are pasted anywhere but into a field of one line: one row goes into the form, many are a table. */
function paste(event) {
  if (!model || byId("main").hidden) return;
  const text = event.clipboardData?.getData("text/plain") ?? "";
  if (event.target.closest?.("#utilities") || !/[\n\r]/.test(text.trim())) return;
  const area = byId("pasted");
  event.preventDefault();
  const cells = text.length < LONGEST_SHOWN ? cellsOf(text.replace(/[\r\n]+$/, "")) : [];
  const row = isRow() ? rowOf(cells, model.columns) : null;
  if (row) {
    change({ row });
    announce("The row was pasted");
    return;
  }
  area.value = text.length < LONGEST_SHOWN ? text : "";
  send(text, "text/csv");
}

function drag(event) {
  const types = [...(event.dataTransfer?.types ?? [])], isFile = types.includes("Files");
  if (!model || !(isFile || types.includes("text/plain"))) return;
  if (!isFile && event.target.closest?.("input, textarea")) return; // which take text themselves
  event.preventDefault();
  const isLeaving = event.type === "dragleave" && event.relatedTarget === null;
  byId("dropping").hidden = event.type === "drop" || isLeaving;
  if (event.type !== "drop") return;
  const [file] = event.dataTransfer.files, text = event.dataTransfer.getData("text/plain");
  if (file) sendFile(file);
  else if (text.trim()) {
    byId("pasted").value = text.length < LONGEST_SHOWN ? text : "";
    send(text, "text/csv");
  }
}

function askForToken(wasWrong) {
  const box = byId("token"), main = byId("main"), wasHidden = main.hidden;
  [box.hidden, main.hidden] = [false, true];
  if (!model) byId("about").textContent = "";
  byId("token-trouble").textContent = wasWrong ? "This token is not the one: try again." : "";
  byId("token-value").value = "";
  byId("token-value").focus();
  return new Promise((resolve) => {
    box.onsubmit = (event) => {
      event.preventDefault();
      [box.hidden, main.hidden] = [true, wasHidden];
      resolve(byId("token-value").value.trim());
    };
  });
}

async function begin() {
  tokenBy(askForToken);
  try {
    ({ models } = await ask("models"));
  } catch (refused) {
    byId("about").textContent = "";
    complain(byId("fault"), refused, begin);
    return;
  }
  byId("fault").replaceChildren();
  byId("models").replaceChildren(...models.map(({ name }) => make("option", { value: name }, name)));
  byId("chooser").hidden = models.length < 2;
  state = readAddress();
  for (const id of ["h-rows", "h-row", "h-page"]) byId(id).tabIndex = -1;
  listen();
  byId("views").hidden = byId("main").hidden = false;
  await show({ isOther: true });
  document.documentElement.dataset.ready = "";
}

begin();
