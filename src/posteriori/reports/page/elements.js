// Elements of HTML and SVG, numbers as text, and announcements for screen readers.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element with properties (or attributes) and children; text is never taken for HTML. */
export function make(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** An SVG element with attributes and children. */
export function makeSvg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, properties, children) {
  const plain = element.namespaceURI !== SVG;
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined) continue;
    if (name === "style") { // property by property: a policy without unsafe-inline forbids the attribute
      for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    } else if (name === "dataset") Object.assign(element.dataset, value);
    else if (name.startsWith("on") || (plain && name in element)) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const byId = (id) => document.getElementById(id);

/** A table with a caption; the first cell of each row heads it. Cells are text or elements. */
export function makeTable(caption, head, body) {
  const top = head.map((cell) => make("th", { scope: "col" }, cell));
  const rows = body.map(([first, ...cells]) =>
    make("tr", {}, make("th", { scope: "row" }, first), ...cells.map((cell) => make("td", {}, cell))));
  const parts = [make("caption", {}, caption), make("thead", {}, make("tr", {}, top)), make("tbody", {}, rows)];
  return make("table", {}, parts);
}

// --- numbers as text ------------------------------------------------------------------------------------------------

const RAISED = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

/** Whether a value is a number that can be drawn. */
export const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** A number with some significant digits: 1,234.5, −0.25, 3.1×10⁻⁷; a dash for what is no number. */
export function number(value, digits = 4) {
  if (value === Infinity || value === -Infinity) return value > 0 ? "∞" : "−∞";
  if (!isNumber(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) return powerOfTen(value, Math.min(digits, 3));
  return value.toLocaleString("en", { maximumSignificantDigits: digits }).replace("-", "−");
}

function powerOfTen(value, digits) {
  const [factor, exponent] = value.toExponential(digits - 1).split("e");
  const raised = [...String(Number(exponent))].map((sign) => RAISED[sign]).join("");
  const shown = String(Number(factor)).replace("-", "−");
  return `${shown}×10${raised}`;
}

/** A whole number with marks at thousands. */
export const count = (value) => (isNumber(value) ? value.toLocaleString("en", { maximumFractionDigits: 2 }) : "–");

/** A share in percent: 12.5 %. */
export const percent = (share, digits = 1) => (isNumber(share) ? `${(100 * share).toFixed(digits)}\u00a0%` : "–");

/** A probability with three decimals, and with a power of ten where these would be zeros. */
export function probability(p) {
  if (!isNumber(p)) return "–";
  if (p > 0 && p < 0.0005) return powerOfTen(p, 2);
  if (p < 1 && p > 0.9995) return ">0.999";
  return p.toFixed(3);
}

/** Text on one line, without its middle if it is long. */
export function shortened(text, longest = 36) {
  const line = String(text).split(/\s+/).join(" ").trim();
  return line.length <= longest ? line : `${line.slice(0, longest - 3)}…${line.slice(-2)}`;
}

// --- screen readers -------------------------------------------------------------------------------------------------

let region = null;

/** Have screen readers say something; nothing is seen. */
export function announce(text) {
  region ??= document.body.appendChild(make("div", { className: "unseen", role: "status" }));
  region.textContent = text;
}
