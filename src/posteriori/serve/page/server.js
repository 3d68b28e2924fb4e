// Questions to the server: one token for all of them, and refusals as errors with their row and column.

const KEY = "posteriori-token"; // of this tab alone, and never in an address

/** A request that was refused: a sentence, and where the trouble is. */
export class Refused extends Error {
  constructor(status, { error, row = null, column = null, remedy = null }) {
    super(error);
    Object.assign(this, { status, row, column, remedy });
  }
}

let askForToken = () => Promise.reject(new Error("nobody asks for a token"));
let opening = null; // the question for a token, while it is open

/** Have `ask(wasWrong)` ask the user for the token; it resolves to what was typed. */
export function tokenBy(ask) {
  askForToken = ask;
}

/** The answer of the server, read as JSON; `body` is sent as JSON unless it has a `type`. */
export async function ask(path, options = {}) {
  const response = await reached(path, options);
  return response.status === 204 ? null : response.json();
}

/** The answer of the server as a file. */
export async function askForFile(path, options = {}) {
  return (await reached(path, options)).blob();
}

async function reached(path, { method, body, type = "application/json" }) {
  const headers = {}, token = sessionStorage.getItem(KEY);
  if (token) headers.authorization = `Bearer ${token}`;
  if (body !== undefined) headers["content-type"] = type;
  const sent = type === "application/json" && body !== undefined ? JSON.stringify(body) : body;
  const how = { method: method ?? (body === undefined ? "GET" : "POST"), headers, body: sent };
  let response;
  try {
    response = await fetch(path, how);
  } catch {
    throw new Refused(0, { error: "The server does not answer. Is it still running?" });
  }
  if (response.status === 401) {
    if (token === sessionStorage.getItem(KEY)) { // nobody has given another one since
      opening ??= askForToken(Boolean(token)).finally(() => { opening = null; });
      sessionStorage.setItem(KEY, await opening);
    }
    return reached(path, { method, body, type });
  }
  if (response.ok) return response;
  throw new Refused(response.status, await told(response));
}

/** What a refusal says, whoever it is from. */
async function told(response) {
  try {
    const given = await response.json();
    if (typeof given.error === "string") return given;
  } catch {
    // a proxy in between writes HTML
  }
  return { error: `The server answered with status ${response.status}.` };
}

/** A task that runs once at a time: of calls that come meanwhile the last one runs next, the others never. */
export function inTurn(task) {
  let isRunning = false, next = null;
  return async (...given) => {
    next = given;
    if (isRunning) return;
    isRunning = true;
    try {
      while (next) {
        const now = next;
        next = null;
        await task(...now);
      }
    } finally {
      isRunning = false;
    }
  };
}
