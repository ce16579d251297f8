// All that is asked of the service. What goes wrong comes back as a `ServiceError` in words.

const TOKEN = "funcattn-token";

/** `kind`: "gone" (no answer), "token", "busy", "refused" (the input) or "broken" (the service). */
export class ServiceError extends Error {
  constructor(kind, message, retryAfter = 0) {
    super(message);
    this.kind = kind;
    this.retryAfter = retryAfter;
  }
}

export const setToken = (token) => sessionStorage.setItem(TOKEN, token);

const JSON_TYPE = "application/json";

async function ask(method, path, { body, type = JSON_TYPE, accept = JSON_TYPE, signal, settings = [] } = {}) {
  const headers = { Accept: accept };
  const query = new URLSearchParams([["arrays", "base64"], ...settings]);
  if (body !== undefined) headers["Content-Type"] = type;
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = `Bearer ${token}`;
  let response;
  try {
    response = await fetch(`${path}?${query}`, { method, headers, body, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServiceError("gone", "The service does not answer.");
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

async function refusal(response) {
  const detail = await response.json().then((reply) => words(reply.detail), () => "");
  const after = Number(response.headers.get("Retry-After")) || 1;
  if (response.status === 401) return new ServiceError("token", "This service asks for a token.");
  if (response.status === 503) return new ServiceError("busy", "The service is busy.", after);
  if (response.status === 413) return new ServiceError("refused", detail || "This is larger than the service accepts.");
  if (response.status < 500) return new ServiceError("refused", detail || `The service refused this (${response.status}).`);
  return new ServiceError("broken", detail || `The service failed (${response.status}).`);
}

/** FastAPI says what is wrong as text, or as a list with a place and a text. */
function words(detail) {
  if (Array.isArray(detail)) return detail.map((each) => each.msg ?? String(each)).join("; ");
  return typeof detail === "string" ? detail : "";
}

const json = async (...request) => {
  const response = await ask(...request);
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServiceError("gone", "The service stopped in the middle of an answer.");
  }
};

const of = (name, what = "") => `models/${encodeURIComponent(name)}${what}`;

export const health = () => json("GET", "health");
export const models = async () => (await json("GET", "models")).models;
export const model = (name) => json("GET", of(name));

const post = (what) => (name, request, signal) => json("POST", of(name, what), { body: JSON.stringify(request), signal });
export const predict = post("/predict");
export const inspect = post("/inspect");
/** A drawing by chance, from the law of the training data. */
export const random = async (name) => (await post("/random")(name, { seed: Math.floor(Math.random() * 2 ** 31) })).parameters;

const FILE_TYPES = {
  npz: "application/x-npz",
  h5: "application/x-hdf5",
  hdf5: "application/x-hdf5",
  vtu: "application/vnd.vtk",
};

function typeOf(file) {
  const type = FILE_TYPES[file.name.split(".").pop().toLowerCase()];
  if (!type) throw new ServiceError("refused", `expected a file that ends in .vtu, .npz or .h5, got ${file.name}`);
  return type;
}

/** Numbers that belong to a file, as the service takes them: `set` wins over those in the file, and they over `defaults`. */
const settingsOf = ({ set, defaults }) => [["set", set], ["default", defaults]]
  .flatMap(([kind, given]) => Object.entries(given ?? {}).map(([name, value]) => [kind, `${name}=${value}`]));

/** The fields for a file of people's own, with numbers that belong to it. */
export async function predictFile(name, { file, ...numbers }, signal) {
  const request = { body: await file.arrayBuffer(), type: typeOf(file), settings: settingsOf(numbers), signal };
  return json("POST", of(name, "/predict"), request);
}

/**
 * The result as a file, {blob, ending}, for a file of people's own or for what was drawn: VTU, or for a series, of which
 * VTU holds one time only, the kind of the file that was sent.
 */
export async function download(name, { file, ...request }, series) {
  const sent = file
    ? { body: await file.arrayBuffer(), type: typeOf(file), settings: settingsOf(request) }
    : { body: JSON.stringify(request) };
  const response = await ask("POST", of(name, "/predict"), { ...sent, accept: series ? "*/*" : FILE_TYPES.vtu });
  const ending = Object.keys(FILE_TYPES).find((each) => FILE_TYPES[each] === response.headers.get("Content-Type"));
  return { blob: await response.blob(), ending };
}

/** Solve as a job: `progress(done, text)` until the result; aborting the signal cancels the job. */
export async function solve(name, request, { progress, signal }) {
  // Not aborted: a job that has begun can only be cancelled by its name.
  const { job } = await json("POST", of(name, "/solve"), { body: JSON.stringify(request) });
  const cancel = () => ask("DELETE", `jobs/${job}`).catch(() => {});
  signal.addEventListener("abort", cancel);
  if (signal.aborted) cancel();
  try {
    const response = await ask("GET", `jobs/${job}/events`, { accept: "text/event-stream", signal });
    for await (const { event, data } of events(response)) {
      if (event === "progress") progress(data.done, data.text);
      else if (event === "result") return data;
      else if (event === "error") throw new ServiceError("refused", words(data.detail) || "The solver failed.");
    }
    throw new ServiceError("gone", "The service stopped before the solver had ended.");
  } catch (error) {
    if (signal.aborted) throw new DOMException("cancelled", "AbortError");
    if (error instanceof TypeError) throw new ServiceError("gone", "The service stopped before the solver had ended.");
    throw error;
  } finally {
    signal.removeEventListener("abort", cancel);
  }
}

/** Server-sent events of a response; EventSource could not send the token. */
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      let event = "message";
      const data = [];
      for (const line of block.split("\n")) {
        if (line.startsWith("event:")) event = line.slice(6).trim();
        else if (line.startsWith("data:")) data.push(line.slice(5).trim());
      }
      if (data.length) yield { event, data: JSON.parse(data.join("\n")) };
    }
  }
}

