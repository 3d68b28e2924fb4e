// A table that the server keeps: what it holds, its classes, and its rows, a page at a time.

import { bars } from "./charts.js";
import { announce, count, isNumber, make, makeSvg, number, probability, shortened } from "./elements.js";
import { button, inOrder, nameOf, renew } from "./parts.js";

export const ROWS = 50; // on one page
const MOST_CLASSES = 6; // that have a column each
const MINI = 64;

/** What was read, in a sentence. */
export function described({ rows, columns, left_out: out = [], truth, labelled, warnings = [] }) {
  const names = (all) => all.slice(0, 5).map((name) => shortened(name)).join(", ") + (all.length > 5 ? ", …" : "");
  const lines = [`${count(rows)} ${rows === 1 ? "row" : "rows"} with ${columns.length} columns.`];
  if (truth) lines.push(`The column ${shortened(truth)} says the class of ${count(labelled)} of them.`);
  if (out.length) lines.push(`Left out, as the model does not know them: ${names(out)}.`);
  return [lines.join(" "), ...warnings].map((line) => make("p", {}, line));
}

/** How often each class is the most probable one. */
export function showClasses(root, { classes, uncertainty }) {
  const parts = uncertainty
    ? `In the mean ${number(uncertainty.aleatoric, 3)} nats of uncertainty are aleatoric, which stay, and `
      + `${number(uncertainty.epistemic, 3)} epistemic, which more data would remove.` : null;
  renew(root, bars({
    labels: classes.map((one) => nameOf(one.class)), values: classes.map((one) => one.predicted),
    title: "Rows by their most probable class", valueTitle: "rows",
  }), parts ? make("p", { className: "quiet" }, parts) : null);
}

/** A probability as a thin bar with its interval. */
function mini(p, lower, upper, isBest) {
  const x = (value) => Math.round(value * MINI * 10) / 10, has = isNumber(lower) && isNumber(upper);
  const range = has ? makeSvg("line", { class: "whisker", x1: x(lower), x2: x(upper), y1: 4, y2: 4 }) : null;
  return makeSvg("svg", { class: "mini", width: MINI, height: 8, "aria-hidden": "true" },
    makeSvg("rect", { class: "ground", width: MINI, height: 8 }),
    makeSvg("rect", { class: isBest ? "bar best" : "bar", width: x(p), height: 8 }), ...[range].filter(Boolean));
}

/** A number in so many digits as matter beside others of a size. */
function beside(value, size) {
  const digits = Math.max(0, Math.min(9, 3 - Math.floor(Math.log10(size || 1)))), least = 10 ** -digits;
  if (value !== 0 && Math.abs(value) < least / 2) return `<${least.toFixed(digits)}`;
  return Math.abs(value) < 1e7 ? value.toFixed(digits).replace("-", "−") : number(value);
}

const cell = (text, className = null) => ({ text, className });

/** The columns of the table: what heads them, how they are sorted, and their cells. */
function columnsOf(model, columns, found, has) {
  const names = model.classes.map(nameOf), own = columns.filter((name) => name !== has.truth);
  const byNumber = (key, title, size) =>
    ({ title, sort: { by: key }, cell: (row) => cell(isNumber(row[key]) ? beside(row[key], size) : "–") });
  const word = (key, title) =>
    ({ title, isText: true, cell: (row) => cell(shortened(nameOf(row[key] ?? "–"), 28), "words") });
  const each = names.length <= MOST_CLASSES ? model.classes.map((label, k) => ({
    title: `p(${shortened(names[k], 20)})`, sort: { by: "p", class: label }, cell: (row) => ofClass(row, k),
  })) : [{ title: "its probability", cell: (row) => ofClass(row, names.indexOf(nameOf(row.class))) }];
  const ofClass = (row, k) => {
    const [p, lower, upper] = [row.proba, row.lower, row.upper].map((given) => inOrder(model.classes, given)?.[k]);
    const text = make("span", {}, p > 0 && p < 0.0005 ? "<0.001" : probability(p));
    return cell([text, mini(p, lower, upper, names[k] === nameOf(row.class))], "p");
  };
  const decided = has.decisions ? [
    word("action", "action"), ...(has.before ? [word("was", "before")] : []),
    byNumber("margin", "margin", has.size), byNumber("value_of_information", "value of knowing", has.size),
  ] : [];
  return [
    ...(has.truth ? [{ ...word("truth", "truth"), sort: { by: "surprise" } }] : []),
    word("class", "most probable"), ...each, ...decided,
    ...(has.uncertainty ? [byNumber("epistemic", "epistemic", 1), byNumber("total", "uncertainty", 1)] : []),
    ...own.map((name) => ({
      title: name, isText: found.rows.some(({ values }) => typeof values[name] === "string"),
      cell: (row) => value(row.values[name]),
    })),
  ];
}

function value(given) {
  if (typeof given === "number") return cell(number(given, 6));
  return cell(given === null || given === undefined ? "" : shortened(nameOf(given), 28), "words");
}

/**
 * Show one page of rows. `state` has sort, only and start; onOpen(row) hears which row is to be looked at, onChange
 * what of the state is to change.
 */
export function showRows(root, model, table, found, state, has, { onOpen, onChange }) {
  const columns = columnsOf(model, table.columns, found, has), sort = state.sort ?? { by: "row", descending: false };
  const same = (one) => one && one.by === sort.by && one.class === sort.class;
  const head = ({ title, sort: by, isText }) => {
    const className = isText ? "words" : "";
    if (!by) return make("th", { scope: "col", className }, shortened(title, 24));
    const isNow = same(by), to = isNow ? !sort.descending : by.by !== "row" && by.by !== "margin";
    const arrow = make("span", { "aria-hidden": "true" }, isNow ? (sort.descending ? " ↓" : " ↑") : "");
    const sorted = isNow ? (sort.descending ? "descending" : "ascending") : null;
    const press = () => onChange({ sort: { ...by, descending: to }, start: 0 }, "Sorted");
    return make("th", { scope: "col", className, "aria-sort": sorted }, button(title, press, {
      className: "sort", title: by.by === "surprise" ? "Sort by how improbable the true class was held" : "Sort",
      dataset: { sort: JSON.stringify(by) },
    }), arrow);
  };
  const top = make("tr", {}, [{ title: "row", sort: { by: "row" } }, ...columns].map(head));
  const body = found.rows.map((row) => make("tr", { className: row.was && row.was !== row.action ? "flipped" : null },
    make("th", { scope: "row" }, button(count(row.row), () => onOpen(row), {
      className: "open", "aria-label": `Row ${row.row}: look at it`,
    })),
    columns.map((column) => {
      const { text, className } = column.cell(row);
      return make("td", { className: className ?? "" }, text);
    })));
  const caption = make("caption", {}, "A row's number opens it, to change its values");
  const whole = make("table", {}, caption, make("thead", {}, top), make("tbody", {}, body));
  const scrolled = make("div", { className: "wide tall", tabIndex: 0, role: "group", "aria-label": "Rows" }, whole);
  const last = Math.min(found.start + ROWS, found.total);
  const range = `Rows ${count(found.start + 1)} to ${count(last)} of ${count(found.total)}`;
  const where = found.total ? range : "No row fits.";
  const go = (start) => onChange({ start: Math.max(0, start) }, null);
  const pages = make("p", { className: "pages", tabIndex: -1 },
    button("Previous", () => go(found.start - ROWS), { disabled: found.start === 0 }),
    button("Next", () => go(found.start + ROWS), { disabled: last >= found.total }),
    make("span", { id: "where" }, where));
  const focus = root.contains(document.activeElement) ? document.activeElement : null;
  const key = focus?.dataset.sort, label = focus?.textContent;
  root.replaceChildren(found.total ? scrolled : "", pages);
  const again = [...root.querySelectorAll("button")].find((one) => (key ? one.dataset.sort === key
    : one.textContent === label));
  if (!focus) return;
  (again && !again.disabled ? again : scrolled.isConnected ? scrolled : pages).focus({ preventScroll: true });
  announce(where);
}

/** Build the filters; they tell what rows are wanted. */
export function filters(root, model, actions, only, has, onChange) {
  const given = only ?? {};
  const choice = (key, label, names) => {
    const any = make("option", { value: "" }, "any");
    const chosen = () => set(key, select.value === "" ? null : names[Number(select.value)]);
    const select = make("select", { onchange: chosen }, any,
      names.map((name, i) => make("option", { value: String(i) }, shortened(nameOf(name)))));
    const at = names.indexOf(given[key]);
    select.value = at < 0 ? "" : String(at);
    return make("label", {}, `${label} `, select);
  };
  const set = (key, value) => {
    const next = { ...given, [key]: value };
    const left = Object.fromEntries(Object.entries(next).filter(([, one]) => one !== null && one !== false));
    onChange({ only: Object.keys(left).length ? left : null, start: 0 });
  };
  const box = make("input", { type: "checkbox", checked: given.flipped === true });
  box.onchange = () => set("flipped", box.checked);
  const focused = root.contains(document.activeElement)
    ? [...root.querySelectorAll("select, input")].indexOf(document.activeElement) : -1;
  root.replaceChildren(
    choice("class", "Most probable", model.classes),
    ...(actions ? [choice("action", "Action", actions)] : []),
    ...(has.truth ? [choice("truth", "Truth", model.classes)] : []),
    ...(has.compared ? [make("label", { className: "check" }, box, "only rows that flip")] : []));
  if (focused >= 0) root.querySelectorAll("select, input")[focused]?.focus({ preventScroll: true });
}
