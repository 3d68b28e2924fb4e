// One penguin under sliders: onnxruntime evaluates the graph in the page, the rest is the report's own components.

import * as ort from "./ort.mjs";
import { probabilityBars } from "./charts.js";
import { decide } from "./decide.js";
import { byId, make, number, probability } from "./elements.js";
import { utilityTable } from "./utility_table.js";

ort.env.wasm.numThreads = 1; // more need headers that not every server sends
ort.env.wasm.wasmPaths = { wasm: new URL("ort-wasm-simd-threaded.wasm", import.meta.url).href };

const [model, session] = await start();
const row = { ...model.start };
let answer = null, utility = null, asked = 0;

async function start() {
  try {
    return await Promise.all([
      fetch("model.json").then((reply) => reply.json()),
      ort.InferenceSession.create("penguins.onnx", { executionProviders: ["wasm"] }),
    ]);
  } catch (error) {
    byId("state").textContent = location.protocol === "file:"
      ? "A browser loads no models from files: build the site and serve it, for example with python -m http.server."
      : `The model could not be loaded: ${error.message}`;
    throw error;
  }
}

/** Probabilities and the ends of their intervals, lists of K numbers. */
async function predict(values) {
  const feeds = {};
  for (const { name, levels } of model.inputs) {
    feeds[name] = levels
      ? new ort.Tensor("string", [values[name]], [1, 1])
      : new ort.Tensor("float64", Float64Array.of(values[name]), [1, 1]);
  }
  const found = await session.run(feeds);
  return Object.fromEntries(["probabilities", "lower", "upper"].map((name) => [name, [...found[name].data]]));
}

async function renew() {
  const mine = ++asked, found = await predict(row);
  if (mine !== asked) return; // the slider has moved on
  answer = found;
  show();
}

function show() {
  if (!answer || !utility) return;
  const { probabilities: proba, lower, upper } = answer;
  byId("bars").replaceChildren(probabilityBars({ classes: model.classes, proba, lower, upper }));
  const widest = proba.map((_, k) => upper[k] - lower[k]).reduce((most, width) => Math.max(most, width), 0);
  byId("note").textContent =
    `Lines are ${100 * model.level} % intervals; the widest has a width of ${probability(widest)}.`;
  const { best, margin, valueOfInformation } = decide(Float64Array.from(proba), utility.matrix);
  const ahead = Number.isFinite(margin[0]) ? ` It is worth ${number(margin[0], 3)} more than the second best.` : "";
  byId("action").replaceChildren("Best action: ", make("strong", { id: "best" }, utility.actions[best[0]]), `.${ahead} `,
    `To know the species would be worth ${number(valueOfInformation[0], 3)}.`);
  window.shown = { row: { ...row }, ...answer, action: utility.actions[best[0]] }; // what a test reads
}

function control({ name, label, low, high, step, levels }) {
  if (levels) {
    const options = levels.map((level) => make("option", { value: level, selected: level === row[name] }, level));
    const select = make("select", { id: name, onchange: () => { row[name] = select.value; renew(); } }, options);
    return make("label", {}, make("span", {}, label), select);
  }
  const shown = make("output", {}, String(row[name]));
  const slider = make("input", {
    type: "range", id: name, min: low, max: high, step, oninput: () => {
      row[name] = slider.valueAsNumber;
      shown.textContent = slider.value;
      renew();
    },
  });
  slider.value = row[name];
  return make("label", {}, make("span", {}, label), shown, slider);
}

/** The site's switch of colours, where this page is within the site. */
function followTheme() {
  if (parent === window) return;
  const outer = parent.document.documentElement;
  const copy = () => { document.documentElement.dataset.theme = outer.dataset.theme ?? ""; };
  new MutationObserver(copy).observe(outer, { attributeFilter: ["data-theme"] });
  copy();
}

/** The frame is as high as what is in it. */
function fitFrame() {
  if (!window.frameElement) return;
  new ResizeObserver(() => { window.frameElement.style.height = `${document.body.scrollHeight + 8}px`; }).observe(document.body);
}

followTheme();
byId("inputs").append(...model.inputs.map(control));
byId("inputs").addEventListener("submit", (event) => event.preventDefault());
utilityTable(byId("utilities"), model.utility, (given) => { utility = given; show(); });
byId("state").hidden = true;
byId("live").hidden = false;
fitFrame();
await renew();
