// What the parts of the page share: names of classes, refusals in words, charts that take the place of others.

import { make } from "./elements.js";

/** The name of a class or level, as Python and the command line write it. */
export const nameOf = (label) => (label === true ? "True" : label === false ? "False" : String(label));

/** Numbers by the names of the classes, in the order of the classes. */
export function inOrder(labels, given) {
  if (!given) return null;
  return Array.isArray(given) ? given : labels.map((label) => given[nameOf(label)] ?? given[`${label}.0`] ?? null);
}

/** Put new charts in the place of old ones, which may have the focus. */
export function renew(place, ...parts) {
  const old = place.contains(document.activeElement) ? document.activeElement.closest(".chart") : null;
  place.replaceChildren(...parts.flat().filter(Boolean));
  if (old) place.querySelector(`.chart.${old.classList[1]}`)?.focus({ preventScroll: true });
}

export const button = (label, onclick, more = {}) => make("button", { type: "button", onclick, ...more }, label);

const REMEDIES = {
  new_columns: "Leave unknown columns out",
  new_levels: "Accept new levels",
};

/** What was refused, in words for people: without what programs should send. */
export function wordsOf({ message, remedy }) {
  const words = remedy ? message.replace(/ Send "[^"]*": "[^"]*"[^.]*\.$/, "") : message;
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** Buttons for what would help; `help` hears the options to ask with. */
export function remedies({ remedy, status }, help) {
  const known = Object.entries(remedy ?? {}).filter(([name]) => name in REMEDIES);
  const buttons = known.map(([name, value]) => button(REMEDIES[name], () => help({ [name]: value })));
  return status === 0 ? [...buttons, button("Try again", () => help({}))] : buttons;
}

/** Say what was refused, with buttons for what would help; the sentence gets the focus unless `focus` is false. */
export function complain(place, refused, help = null, { focus = true } = {}) {
  const sentence = make("p", { className: "trouble", tabIndex: -1, role: "alert" }, wordsOf(refused));
  place.replaceChildren(sentence, ...(help ? remedies(refused, help) : []));
  if (focus) sentence.focus();
}

/** Save a file under a name. */
export function save(name, content, type = "text/csv") {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  make("a", { href: address, download: name }).click();
  URL.revokeObjectURL(address);
}
