// The server's side of the conversation: every request of the page is made here.

// A server that was started anew has a new token, and knows this page no longer.
export const LOCKED_OUT = "the server was started anew; open the address that cofuse serve printed last";

/** What the server refused, in its own words. */
class Refusal extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

function refusalOf(status, answer) {
  const words = status === 401 ? LOCKED_OUT : (answer?.error ?? `the server answered ${status}`);
  return new Refusal(words, status);
}

async function request(method, path, body) {
  const options = { method, headers: { Accept: "application/json" }, credentials: "same-origin" };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(`/api${path}`, options);
  } catch {
    throw new Refusal("the server does not answer; is cofuse serve still running?", 0);
  }
  const answer = await response.json().catch(() => null);
  if (!response.ok) throw refusalOf(response.status, answer);
  return response.status === 202 && answer?.pending ? null : answer;
}

const get = (path) => request("GET", path);
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Ask again until the server knows the answer; `null` when `wanted()` has become false. */
async function patiently(path, wanted) {
  for (let wait = 300; wanted(); wait = Math.min(2000, wait * 1.5)) {
    const answer = await get(path);
    if (!wanted()) return null;
    if (answer !== null) return answer;
    await pause(wait);
  }
  return null;
}

export const info = () => get("/info");

export const stacks = () => get("/stacks");
export const stack = (id) => get(`/stacks/${id}`);
export const createStack = (name) => request("POST", "/stacks", { name });
export const sampleStack = () => request("POST", "/stacks/sample");
export const changeStack = (id, change) => request("PATCH", `/stacks/${id}`, change);
export const deleteStack = (id) => request("DELETE", `/stacks/${id}`);
export const removeFrame = (id, frame) => request("DELETE", `/stacks/${id}/frames/${frame}`);
export const noise = (id, wanted) => patiently(`/stacks/${id}/noise`, wanted);
export const thumbnailUrl = (id, frame) => `/api/stacks/${id}/frames/${frame}/thumbnail`;

export const command = (id, options) =>
  get(`/command?${new URLSearchParams({ stack: id, options: JSON.stringify(options) })}`);

export const jobs = () => get("/jobs");
export const job = (id) => get(`/jobs/${id}`);
export const startJob = (stackId, options) => request("POST", "/jobs", { stack: stackId, options });
export const cancelJob = (id) => request("POST", `/jobs/${id}/cancel`);
export const deleteJob = (id) => request("DELETE", `/jobs/${id}`);
export const pictures = (id) => get(`/jobs/${id}/pictures`);
export const pixel = (id, x, y) => get(`/jobs/${id}/pixel?x=${x}&y=${y}`);
export const histogram = (id) => get(`/jobs/${id}/histogram`);
export const metrics = (id, wanted) => patiently(`/jobs/${id}/metrics`, wanted);
export const relief = (id) => get(`/jobs/${id}/relief`);
export const strokes = (id) => get(`/jobs/${id}/strokes`);
export const sendStrokes = (id, strokes) => request("PUT", `/jobs/${id}/strokes`, strokes);

export const previewUrl = (id, version) => `/api/jobs/${id}/preview?v=${version}`;
export const reportUrl = (id, format) => `/api/jobs/${id}/report?format=${format}`;
export const tileUrl = (id, picture, level, column, row, version) =>
  `/api/jobs/${id}/pictures/${picture}/tiles/${level}/${column}_${row}?v=${version}`;

export function downloadUrl(id, format, depth) {
  const query = new URLSearchParams({ format });
  if (depth) query.set("depth", depth);
  return `/api/jobs/${id}/download?${query}`;
}

/**
 * Send files to a stack. XMLHttpRequest, because fetch does not tell how much has been sent.
 * `told(bytes)` is called with the bytes sent so far; `signal` stops the upload.
 */
export function upload(id, files, told, signal) {
  return new Promise((resolve, reject) => {
    const form = new FormData();
    for (const file of files) form.append("file", file, file.name);
    const call = new XMLHttpRequest();
    call.open("POST", `/api/stacks/${id}/frames`);
    call.responseType = "json";
    call.upload.onprogress = (event) => told(event.loaded);
    call.onerror = () => reject(new Refusal("the upload broke off; is cofuse serve still running?", 0));
    call.onabort = () => reject(new Refusal("upload stopped", 0));
    call.onload = () => {
      if (call.status < 300) resolve(call.response);
      else reject(refusalOf(call.status, call.response));
    };
    signal.addEventListener("abort", () => call.abort());
    call.send(form);
  });
}

/**
 * Hear of every change of every job, and of those that are deleted, `gone(id)`. The browser reconnects by itself; `opened` is called each time,
 * and `lost(words)` with what to do when it has had no success for a while.
 */
export function listen(heard, gone, opened, lost) {
  let source = null;
  let down = null; // since when
  const connect = () => {
    source = new EventSource("/api/events");
    source.addEventListener("job", (event) => heard(JSON.parse(event.data)));
    source.addEventListener("gone", (event) => gone(event.data));
    source.addEventListener("open", () => {
      down = null;
      opened();
    });
    source.addEventListener("error", () => {
      down ??= Date.now();
      if (Date.now() - down > 2000) info().then(() => lost("no news from the server"), (refusal) => lost(refusal.message));
      // An answer that is no stream of events, as from a server just starting, ends the browser's patience.
      if (source.readyState === EventSource.CLOSED) setTimeout(connect, 3000);
    });
  };
  connect();
  // A browser keeps six connections to a server, for all its pages together: one that nobody sees
  // gives its own back.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) source.close();
    else if (source.readyState === EventSource.CLOSED) connect();
  });
  // Without this the browser reports a broken connection when the page is left.
  window.addEventListener("pagehide", () => source.close());
}
