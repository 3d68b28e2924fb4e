// A form for one row, made of what the model says of its columns; an empty field is a missing value.

import { count, make } from "./elements.js";
import { parsed, plainNumber } from "./utility_table.js";

const MOST_LISTED = 40; // levels that are a list to choose from; more are offered while typing
const STEPS = 100; // of the arrow keys, through the range of the fit
const MISSING = "missing";
const text = (more) => make("input", { type: "text", autocomplete: "off", spellcheck: false, ...more });
/** A bound of a range, in so many digits as tell thousandths of it apart, and as it would be typed: 2008, not 2,008. */
function bound(value, spread) {
  const digits = Math.max(0, Math.min(12, 3 - Math.ceil(Math.log10(spread || 1))));
  return String(Number(value.toFixed(digits))).replace("-", "−");
}
const time = (value) => String(value).replace(/Z$|[+-]\d\d:?\d\d$/, "").replace(" ", "T");

/** A field reads as a value of JSON, null where it is empty, and undefined where it holds no such value. */
const FIELDS = {
  number: numberField,
  duration: numberField,
  boolean: (column) => listField(column, ["true", "false"], (value) => value === "true"),
  category: (column) => (column.levels.length <= MOST_LISTED && !column.other ? listField(column, column.levels)
    : typedField(column)),
  date: (column) => dateField(column, (value) => value),
  "date with time zone": (column) => dateField(column, (value) => `${value}Z`),
};

function numberField({ low, high, integer, kind }) {
  const control = text({ inputMode: "decimal", placeholder: MISSING, className: "number" });
  const known = low !== null && high !== null, spread = high - low;
  const fine = integer ? Math.max(1, Math.round(spread / STEPS)) : 10 ** Math.round(Math.log10(spread / STEPS));
  const step = known && spread > 0 ? fine : 1;
  const read = () => (control.value.trim() === "" ? null : parsed(plainNumber(control.value.trim())) ?? undefined);
  control.addEventListener("keydown", (event) => {
    const by = { ArrowUp: 1, ArrowDown: -1, PageUp: 10, PageDown: -10 }[event.key], now = read();
    if (!by || event.altKey || event.ctrlKey || event.metaKey || now === undefined || !Number.isFinite(step)) return;
    event.preventDefault();
    const next = now === null ? low ?? 0 : Math.round((now + by * step) / step) * step;
    control.value = String(Number(next.toPrecision(10)));
    control.dispatchEvent(new Event("input", { bubbles: true }));
  });
  const hint = (value) => {
    if (!known) return kind === "duration" ? "seconds" : "a number";
    const range = `${bound(low, spread)} to ${bound(high, spread)}${kind === "duration" ? " seconds" : ""}`;
    return typeof value === "number" && (value < low || value > high) ? `beyond ${range}, the range of the fit` : range;
  };
  const trouble = "This is not a number: write 1.5 or -20, or nothing if it is missing.";
  return { control, read, hint, trouble, write: (value) => { control.value = value === null ? "" : String(value); } };
}

function listField({ levels = [] }, names, meant = (value) => value) {
  const option = (name) => make("option", { value: `=${name}` }, name === "" ? "(empty text)" : name);
  const control = make("select", {}, make("option", { value: "" }, MISSING), names.map(option));
  function write(value) {
    const name = value === null ? "" : `=${String(value)}`;
    if (![...control.options].some((one) => one.value === name)) control.append(option(String(value)));
    control.value = name;
  }
  const read = () => (control.value === "" ? null : meant(control.value.slice(1)));
  return { control, read, write, hint: () => (levels.length > 12 ? `${levels.length} levels` : ""), trouble: "" };
}

function typedField({ levels, other }) {
  const list = make("datalist", { id: `levels-${++lists}` }, levels.map((name) => make("option", { value: name })));
  const control = text({ placeholder: MISSING });
  control.setAttribute("list", list.id);
  return {
    control, list, read: () => (control.value === "" ? null : control.value), trouble: "",
    write: (value) => { control.value = value ?? ""; },
    hint: () => `${count(levels.length)} levels${other ? ", and rarer ones" : ""}`,
  };
}
let lists = 0;

function dateField({ low, high, kind }, meant) {
  const control = make("input", { type: "datetime-local" });
  const shown = (value) => time(value).replace(/T00:00:00$/, "").replace("T", " ");
  return {
    control, trouble: "This is not a date and time: choose one, or clear the field if it is missing.",
    read: () => (control.value !== "" ? meant(control.value) : control.validity.badInput ? undefined : null),
    write: (value) => {
      const moment = value === null ? "" : kind === "date" ? time(value) : utc(value);
      control.step = /:\d\d:\d\d\.\d*[1-9]/.test(moment) ? "any" : /:\d\d:(?!00)\d\d/.test(moment) ? "1" : "60";
      control.value = moment;
    },
    hint: () => (low === null ? "" : `${shown(low)} to ${shown(high)}${kind === "date" ? "" : " UTC"}`),
  };
}

/** A moment with a zone, as the same moment in UTC without it. */
function utc(value) {
  const moment = new Date(value);
  return Number.isNaN(moment.valueOf()) ? "" : moment.toISOString().slice(0, 19);
}

/**
 * Build a form for rows of these columns in `root`; onChange(row) is told after every change that leaves all fields
 * legible, onTrouble(isWrong) when fields begin or cease to be illegible.
 *
 * Returns { write(row), read(), complain(sentence, column), fields }.
 */
export function rowForm(root, columns, onChange, onTrouble = () => {}) {
  let isWrong = false;
  const fields = new Map(columns.map((column, d) => [column.name, built(column, d)]));
  root.replaceChildren(...[...fields.values()].map((field) => field.whole));

  function built(column, d) {
    const field = FIELDS[column.kind](column), id = `field-${d}`, { control } = field;
    const hint = make("span", { className: "quiet", id: `${id}-hint` });
    const message = make("span", { className: "trouble", id: `${id}-trouble`, role: "alert" });
    const help = make("span", { className: "help" });
    control.id = id;
    control.setAttribute("aria-describedby", `${hint.id} ${message.id}`);
    control.addEventListener("input", () => changed(column.name));
    const label = make("label", { htmlFor: id }, column.name);
    const whole = make("div", { className: "field" }, label, control, field.list, hint, message, help);
    return { ...field, whole, message, help, tell: () => { hint.textContent = field.hint(field.read()); } };
  }
  function changed(name) {
    const field = fields.get(name), value = field.read();
    mark(field, value === undefined ? field.trouble : "");
    field.tell();
    const wrong = [...fields.values()].some((one) => one.read() === undefined);
    if (wrong !== isWrong) onTrouble(wrong);
    isWrong = wrong;
    if (!wrong) onChange(read());
  }
  function mark({ control, message, help }, sentence, ...buttons) {
    help.replaceChildren(...buttons);
    if (message.textContent !== sentence) message.textContent = sentence;
    if (sentence) control.setAttribute("aria-invalid", "true");
    else control.removeAttribute("aria-invalid");
  }
  function read() {
    return Object.fromEntries([...fields].map(([name, field]) => [name, field.read() ?? null]));
  }
  function write(row) {
    for (const [name, field] of fields) {
      const value = row?.[name] ?? null, is = field.read();
      if (is !== undefined && JSON.stringify(is) === JSON.stringify(value)) { // what is typed stays as it is
        if (field.control !== document.activeElement) field.write(value);
      } else field.write(value);
      mark(field, "");
      field.tell();
    }
    if (isWrong) onTrouble(isWrong = false);
  }
  /** Say what is wrong with a column, and offer help; it gets the focus, unless somebody is typing in this form. */
  function complain(sentence, name, buttons) {
    for (const [other, field] of fields) mark(field, ...(other === name ? [sentence, ...buttons] : [""]));
    const field = fields.get(name);
    if (field && !root.contains(document.activeElement)) field.control.focus();
    return Boolean(field);
  }
  write(null);
  return { write, read, complain };
}

/** A row in the middle of those of the fit. */
export function typicalRow(columns) {
  const zero = (kind) => (kind === "number" || kind === "duration" ? 0 : null);
  const isDay = ({ low, high }) => [low, high].every((moment) => /T00:00:00Z?$/.test(moment));
  const whole = (column) => {
    const { kind, integer, typical } = column;
    if (typical !== null && kind.startsWith("date")) { // no more parts than the moments of the fit have
      return typical.replace(isDay(column) ? /T\d\d:\d\d:\d\d/ : /:\d\d(?=Z?$)/, isDay(column) ? "T00:00:00" : ":00");
    }
    return integer && typical !== null ? Math.round(typical) : typical;
  };
  return Object.fromEntries(columns.map((column) => [column.name, whole(column) ?? zero(column.kind)]));
}

const two = (value) => String(value).padStart(2, "0");
const clock = (seconds) =>
  [seconds / 3600, (seconds / 60) % 60, seconds % 60].map((part) => two(Math.floor(part))).join(":");

/** Some rows through the ranges of all columns, as CSV. */
export function exampleRows(columns, rows = 6) {
  const cell = (column, i) => {
    const { kind, low, high, levels, typical } = column, share = (i + 0.5) / rows;
    if (kind === "category") return levels.length ? levels[i % levels.length] : "";
    if (kind === "boolean") return i % 2 ? "true" : "false";
    if ((kind === "number" || kind === "duration") && low !== null && high !== null) {
      const value = low + share * (high - low);
      if (kind === "duration") return clock(Math.round(value));
      return column.integer ? Math.round(value) : Number(value.toPrecision(4));
    }
    return typical ?? i;
  };
  const quoted = (value) => (/[",;\t\r\n|]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : value);
  const lines = Array.from({ length: rows }, (_, i) => columns.map((column) => quoted(cell(column, i))).join(","));
  return [columns.map(({ name }) => quoted(name)).join(","), ...lines].join("\n") + "\n";
}

/** The row in a table of text with a header and one line, as far as the columns of the model go; null if it is none. */
export function rowOf([head = [], ...lines], columns) {
  if (lines.length !== 1 || lines[0].length !== head.length) return null;
  const given = Object.fromEntries(head.map((name, j) => [name, lines[0][j].trim()]));
  if (!columns.every(({ name }) => name in given)) return null;
  return Object.fromEntries(columns.map((column) => [column.name, valueOf(given[column.name], column)]));
}

const UNKNOWN = new Set(["", "NA", "N/A", "NaN", "nan", "null", "None"]);

/** What a text stands for in a column. */
function valueOf(given, { kind, levels }) {
  if (UNKNOWN.has(given) && !levels?.includes(given)) return null;
  const [, hours, minutes, seconds] = /^(\d+):(\d\d):(\d\d(?:\.\d+)?)$/.exec(given) ?? [];
  if (kind === "duration" && hours) return 3600 * hours + 60 * minutes + Number(seconds);
  if (kind === "number" || kind === "duration") return parsed(plainNumber(given)) ?? given;
  if (kind === "boolean") return { true: true, false: false, 1: true, 0: false }[given.toLowerCase()] ?? given;
  return given;
}
