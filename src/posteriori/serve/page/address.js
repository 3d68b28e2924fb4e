// What is shown, as the fragment of the address: no server sees it, and a link shows a colleague the same.

const TEXTS = ["model", "view", "curve", "table", "levels"];
const VALUES = ["row", "utility", "against", "sort", "only", "start"];

/** What an address says; what cannot be read of it is left out. */
export function readAddress(fragment = location.hash) {
  const given = new URLSearchParams(fragment.replace(/^#/, "")), found = {};
  for (const name of TEXTS) if (given.get(name)) found[name] = given.get(name);
  for (const name of VALUES) {
    try {
      if (given.has(name)) found[name] = JSON.parse(given.get(name));
    } catch {
      // a link that was cut off shows what is left of it
    }
  }
  return found;
}

/** The fragment for what is shown; what is null or false is not in it. */
export function fragmentOf(state) {
  const given = new URLSearchParams();
  for (const name of TEXTS) if (state[name]) given.set(name, state[name]);
  for (const name of VALUES) if (state[name]) given.set(name, JSON.stringify(state[name]));
  const text = given.toString();
  return text ? `#${text}` : "";
}

const PAUSE = 150; // milliseconds: browsers refuse to have the address changed with every key and pointer move
let pending = null, timer = null;

/** Put what is shown into the address, as a new step for the browser's Back, or soon, in place of the present one. */
export function writeAddress(state, isStep) {
  if (isStep) {
    flushAddress();
    if (fragmentOf(state) !== location.hash) history.pushState(null, "", addressOf(fragmentOf(state)));
    return;
  }
  pending = fragmentOf(state);
  clearTimeout(timer);
  timer = setTimeout(flushAddress, PAUSE);
}

/** Write at once what waits to be written. */
export function flushAddress() {
  clearTimeout(timer);
  if (pending !== null && pending !== location.hash) history.replaceState(null, "", addressOf(pending));
  pending = null;
}

/** Forget what waits to be written: another address is shown. */
export function dropAddress() {
  clearTimeout(timer);
  pending = null;
}

const addressOf = (fragment) => location.pathname + location.search + fragment;
