// The table of utilities, to type in: what each action is worth when the truth is each class.

import { announce, make, shortened } from "./elements.js";

const MARKS = [",", ";", "\t", "|"]; // between the values of a CSV file, as Utility.from_csv knows them
const MOST_UNDONE = 200;
let tables = 0; // so that each has an id of its own

/** The number a text stands for, or null. */
export function parsed(text) {
  const plain = text.trim().replace(/[\u2212\u2013]/, "-");
  if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(plain)) return null;
  const value = Number(plain);
  return Number.isFinite(value) ? value : null;
}

/** Utilities as the text of a CSV file, for Utility.from_csv and posteriori decide --utility. */
export function utilityCsv({ states, actions, matrix }) {
  const lines = [["state", ...actions], ...matrix.map((row, k) => [states[k], ...row.map(String)])];
  const written = (mark) => {
    const plain = (text) => !/["\r\n,;\t|]/.test(text) && text === text.trim();
    const quoted = (text) => (plain(text) ? text : `"${text.replaceAll('"', '""')}"`);
    return lines.map((line) => line.map((value) => quoted(String(value))).join(mark)).join("\n") + "\n";
  };
  const times = (text, mark) => text.split(mark).length;
  const read = (text) => { // the mark that the first line has most of, in whatever names
    const first = text.split(/[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/)[0];
    return MARKS.reduce((best, mark) => (times(first, mark) > times(first, best) ? mark : best));
  };
  return written(MARKS.find((mark) => read(written(mark)) === mark) ?? ",");
}

/** Text from a spreadsheet or a CSV file as lists of cells. */
export function cellsOf(text) {
  const first = text.split("\n", 1)[0];
  const mark = MARKS.reduce((best, one) => (first.split(one).length > first.split(best).length ? one : best), "\t");
  const rows = [[]];
  const pattern = new RegExp(`(?:"((?:[^"]|"")*)"|([^${mark}\\r\\n]*))([${mark}]|\\r?\\n|\\r|$)`, "y");
  for (let end = 0; end < text.length;) {
    pattern.lastIndex = end;
    const found = pattern.exec(text);
    if (!found) return [[text]]; // a quote that is not closed
    rows.at(-1).push(found[1] === undefined ? found[2].trim() : found[1].replaceAll('""', '"'));
    end = pattern.lastIndex;
    if (found[3] === mark && end === text.length) rows.at(-1).push("");
    else if (found[3] !== mark && end < text.length) rows.push([]);
  }
  return rows;
}

/** A pasted number: 1,5 is 1.5, but 1,000 may be a thousand, and is left to be marked. */
export function plainNumber(text) {
  const comma = /^[+-\u2212\u2013]?\d*,\d+(e[+-]?\d+)?$/i.test(text) && !/^\D?[1-9]\d{0,2},\d{3}$/.test(text);
  return comma ? text.replace(",", ".") : text;
}

/**
 * Build the table in `root`. `given` has states (names), actions (names), matrix (a row for each state) and perhaps
 * labels (how states are shown).
 *
 * onChange({ states, actions, matrix }) is called at first and after every change that leaves all cells numbers;
 * onTrouble(sentence), if there is one, whenever cells begin or cease to be none ("" if all is well).
 *
 * Returns { value(), set({ actions, matrix }), csv(), undo(), redo() }; value() is null while a cell is no number.
 */
export function utilityTable(root, given, onChange, onTrouble = () => {}) {
  const { states } = given, labels = given.labels ?? states.map((name) => shortened(name));
  let actions = [], cells = [], names = [], removers = [], inputs = [], places = new Map();
  let past = [], future = [], edited = null, before = null; // edited: the input whose changes are one step so far
  let trouble = null;

  const head = make("thead"), body = make("tbody");
  const caption = make("caption", {}, "Rows are true classes, columns are actions");
  const table = make("table", { className: "utilities" }, caption, head, body);
  const message = make("p", { className: "trouble", role: "alert", id: `utility-trouble-${++tables}` });
  const button = (label, onclick, more = {}) => make("button", { type: "button", onclick, ...more }, label);
  const undoButton = button("Undo", () => undo()), redoButton = button("Redo", () => redo());
  const newName = make("input", { type: "text", value: "reject", autocomplete: "off", spellcheck: false });
  const newValue = make("input", { type: "text", inputMode: "decimal", value: "0", autocomplete: "off" });
  const form = make("form", { className: "adding", onsubmit: add },
    make("label", {}, "New action ", newName), make("label", {}, "worth, whatever the truth ", newValue),
    make("button", { type: "submit" }, "Add action"),
    make("span", { className: "steps" }, undoButton, redoButton, button("Start again", () => set(given))));
  root.classList.add("utility");
  const scrolled = make("div", { className: "wide tall", role: "group", "aria-label": "Utilities" }, table);
  root.replaceChildren(scrolled, message, form);
  table.addEventListener("keydown", press);
  table.addEventListener("paste", paste);
  table.addEventListener("focusin", (event) => { if (event.target !== edited) edited = null; });
  table.addEventListener("change", renamed);

  // --- what is shown ------------------------------------------------------------------------------------------------

  /** Build the table for as many actions as there are; the only place where inputs are made. */
  function build() {
    places = new Map();
    const plain = { type: "text", size: 1, autocomplete: "off", spellcheck: false }; // the style sheet has the width
    names = actions.map(() => make("input", { ...plain, className: "name" }));
    removers = actions.map((_, a) => button("Remove", () => remove(a), { hidden: actions.length === 1 }));
    inputs = states.map((_, k) => actions.map((_, a) => make("input", {
      ...plain, inputMode: "decimal", dataset: { state: k, action: a }, oninput: () => typed(k, a),
    })));
    names.forEach((input, a) => places.set(input, [-1, a]));
    inputs.forEach((row, k) => row.forEach((input, a) => places.set(input, [k, a])));
    const top = names.map((input, a) => make("th", { scope: "col" }, input, removers[a]));
    head.replaceChildren(make("tr", {}, make("th", { scope: "col" }, "truth"), top));
    body.replaceChildren(...labels.map((label, k) =>
      make("tr", {}, make("th", { scope: "row" }, label), inputs[k].map((input) => make("td", {}, input)))));
  }
  /** Show names and cells as they are; the inputs stay if their number is the same, and so does the focus. */
  function refresh() {
    if (names.length !== actions.length) build();
    actions.forEach((name, a) => {
      const short = shortened(name);
      Object.assign(names[a], { value: name, title: name, ariaLabel: `Name of action ${short}` });
      names[a].style.setProperty("--letters", name.length + 4);
      removers[a].ariaLabel = `Remove action ${short}`;
      inputs.forEach((row, k) => {
        if (row[a].value !== cells[k][a]) row[a].value = cells[k][a];
        row[a].ariaLabel = `Utility of ${short} when the truth is ${labels[k]}`;
      });
    });
    update();
  }
  /** Mark what is no number; if there is nothing, tell the new utilities. */
  function update() {
    let wrong = 0;
    cells.forEach((row, k) => row.forEach((text, a) => { wrong += mark(inputs[k][a], parsed(text) === null); }));
    names.forEach((input) => mark(input, false));
    const which = wrong === 1 ? "One cell is not a number" : `${wrong} cells are not numbers`;
    say(wrong ? `${which}: write 1.5 or -20. Until then results are those of the numbers before.` : "");
    undoButton.disabled = past.length === 0;
    redoButton.disabled = future.length === 0;
    const sentence = message.textContent;
    if ((trouble ?? "") !== sentence) onTrouble(sentence);
    trouble = sentence;
    if (!wrong) onChange(value());
  }
  function mark(input, wrong) {
    if (wrong) {
      input.setAttribute("aria-invalid", "true");
      input.setAttribute("aria-describedby", message.id);
    } else if (input.hasAttribute("aria-invalid")) {
      input.removeAttribute("aria-invalid");
      input.removeAttribute("aria-describedby");
    }
    return wrong ? 1 : 0;
  }
  function say(sentence) {
    if (message.textContent !== sentence) message.textContent = sentence;
  }

  // --- changes, one step each ---------------------------------------------------------------------------------------

  const state = () => ({ actions: [...actions], cells: cells.map((row) => [...row]) });
  function remember(was = state()) {
    past.push(was);
    if (past.length > MOST_UNDONE) past.shift();
    future = [];
    edited = null;
  }
  /** Typing in one cell is one step, however many keys it takes. */
  function typed(k, a) {
    const input = inputs[k][a];
    if (edited !== input) {
      remember();
      [edited, before] = [input, cells[k][a]];
    }
    cells[k][a] = input.value;
    update();
  }
  function go(from, to, words) {
    if (!from.length) return;
    const [k, a] = places.get(document.activeElement) ?? [0, 0];
    const inside = root.contains(document.activeElement) && document.activeElement.closest("table");
    to.push(state());
    ({ actions, cells } = from.pop());
    edited = null;
    refresh();
    if (inside) focusAt(k, Math.min(a, actions.length - 1));
    announce(words);
  }
  function undo() {
    go(past, future, "Undone");
  }
  function redo() {
    go(future, past, "Done again");
  }
  function set(utility) {
    if (actions.length) remember();
    actions = utility.actions.map(String);
    cells = utility.matrix.map((row) => row.map(String));
    refresh();
  }
  function add(event) {
    event.preventDefault();
    const name = newName.value.trim(), text = newValue.value;
    const unnamed = complaint(name, actions), nothing = parsed(text) === null;
    mark(newName, unnamed !== "");
    mark(newValue, nothing);
    if (unnamed || nothing) {
      say(unnamed || "The worth of the new action is not a number.");
      (unnamed ? newName : newValue).focus();
      return;
    }
    remember();
    actions.push(name);
    cells.forEach((row) => row.push(text.trim()));
    refresh();
    focusAt(0, actions.length - 1);
  }
  function remove(a) {
    remember();
    const [name] = actions.splice(a, 1);
    cells.forEach((row) => row.splice(a, 1));
    refresh();
    focusAt(0, Math.min(a, actions.length - 1));
    announce(`Action ${shortened(name)} removed`);
  }
  function renamed(event) {
    const [k, a] = places.get(event.target) ?? [0, 0];
    if (k >= 0) return;
    const name = event.target.value.trim(), wrong = complaint(name, actions.filter((_, b) => b !== a));
    if (name === actions[a] && !wrong) {
      event.target.value = name;
      return update();
    }
    if (wrong) {
      say(wrong);
      return mark(event.target, true);
    }
    remember();
    actions[a] = name;
    refresh();
  }
  function complaint(name, others) {
    if (name === "") return "The action needs a name.";
    return others.includes(name) ? `There is an action ${shortened(name)} already.` : "";
  }

  // --- keys and the clipboard, as in a spreadsheet ------------------------------------------------------------------

  const inputAt = (k, a) => (k < 0 ? names[a] : inputs[k]?.[a]);
  function focusAt(k, a) {
    const input = inputAt(k, a);
    input?.focus();
    input?.select();
    return Boolean(input);
  }
  function press(event) {
    const place = places.get(event.target);
    if (event.altKey || event.isComposing) return;
    if (event.ctrlKey || event.metaKey) {
      const key = event.key.toLowerCase();
      if (key !== "z" && key !== "y") return;
      event.preventDefault(); // the browser's own undo knows nothing of rows that are built anew
      if (place?.[0] === -1 && event.target.value !== actions[place[1]]) event.target.value = actions[place[1]];
      else if (key === "y" || event.shiftKey) redo();
      else undo();
      return;
    }
    if (!place) return;
    const [k, a] = place;
    if (event.key === "Escape") {
      if (k < 0) event.target.value = actions[a];
      else if (event.target === edited) {
        past.pop();
        cells[k][a] = before;
        edited = null;
        refresh();
      } else return;
      event.target.select();
    } else {
      const next = target(event, k, a);
      if (!next || !inputAt(...next)) return;
      focusAt(...next);
    }
    event.preventDefault();
  }
  /** Where a key leads: up and down always, left and right from the ends of a text. */
  function target({ key, shiftKey, target: input }, k, a) {
    const all = input.selectionStart === 0 && input.selectionEnd === input.value.length;
    const none = input.selectionStart === input.selectionEnd;
    if (key === "ArrowUp" || (key === "Enter" && shiftKey)) return k > -1 ? [k - 1, a] : null;
    if (key === "ArrowDown" || key === "Enter") return k + 1 < states.length ? [k + 1, a] : null;
    if (shiftKey) return null;
    if (key === "ArrowLeft" && (all || (none && input.selectionStart === 0))) return a > 0 ? [k, a - 1] : null;
    if (key === "ArrowRight" && (all || (none && input.selectionEnd === input.value.length))) {
      return a + 1 < actions.length ? [k, a + 1] : null;
    }
    return null;
  }
  function paste(event) {
    const place = places.get(event.target), text = event.clipboardData?.getData("text/plain") ?? "";
    if (!place || !/[\t\n\r]/.test(text.trimEnd())) return; // the browser pastes one value
    event.preventDefault();
    const block = cellsOf(text.replace(/[\r\n]+$/, ""));
    const whole = wholeTable(block);
    remember();
    if (whole) ({ actions, cells } = whole);
    else if (!into(block, ...place)) past.pop();
    refresh();
    focusAt(...place);
  }
  /** A block that names states and actions, as the CSV text does, or null. */
  function wholeTable([first, ...others]) {
    const rows = new Map(others.map(([name, ...values]) => [name, values]));
    const found = states.map((name, k) => rows.get(String(name).trim()) ?? rows.get(labels[k]));
    const named = first.slice(1);
    if (others.length !== states.length || !named.length) return null;
    if (found.some((row) => row?.length !== named.length)) return null;
    if (new Set(named).size < named.length || named.includes("")) return null;
    announce("The table was pasted");
    return { actions: named, cells: found.map((row) => row.map(plainNumber)) };
  }
  /** Put a block into the cells, from one to the right and below; what has no place is left out, and that is said. */
  function into(block, k, a) {
    let put = 0, left = 0;
    block.forEach((row, i) => row.forEach((text, j) => {
      const [to, at] = [k + i, a + j];
      const there = to < states.length && at < actions.length;
      const name = there && to < 0;
      if (!there || (name && complaint(text, actions.filter((_, b) => b !== at)))) left++;
      else {
        if (name) actions[at] = text;
        else cells[to][at] = plainNumber(text);
        put++;
      }
    }));
    announce(`${put} cells were pasted${left ? `, ${left} had no place` : ""}`);
    return put > 0;
  }

  function value() {
    const matrix = cells.map((row) => row.map(parsed));
    return matrix.flat().includes(null) ? null : { states: [...states], actions: [...actions], matrix };
  }
  set(given);
  return { value, set, undo, redo, csv: () => (value() === null ? null : utilityCsv(value())) };
}
