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

/** Say what was refused, with a button for what would help; the sentence gets the focus unless `focus` is false. */
export function complain(place, refused, help = null, { focus = true } = {}) {
  const remedy = Object.entries(refused.remedy ?? {}).filter(([name]) => help && name in REMEDIES);
  const sentence = make("p", { className: "trouble", tabIndex: -1, role: "alert" }, refused.message);
  const buttons = remedy.map(([name, value]) => button(REMEDIES[name], () => help({ [name]: value })));
  const again = refused.status === 0 && help ? [button("Try again", () => help({}))] : [];
  place.replaceChildren(sentence, ...buttons, ...again);
  if (focus) sentence.focus();
}

/** Save a file under a name. */
export function save(name, content, type = "text/csv") {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  make("a", { href: address, download: name }).click();
  URL.revokeObjectURL(address);
}
