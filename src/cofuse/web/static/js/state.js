// What the page knows, and a bell that rings when it changes. Views read `state`; only the functions
// here write it, so that every change is heard by everyone.

const bell = new EventTarget();

export const state = {
  info: null, // GET /api/info
  stack: null, // the stack on the table
  stacks: new Map(), // id -> Stack, those known
  jobs: new Map(), // id -> Job, newest first
  jobId: null, // the job that is looked at, or null
  uploading: new Set(), // ids of stacks that frames are on their way to
};

/** Call `listener` on every change of "stack", "uploading", "jobs", "job" (the one looked at) or "route", and when the server is there again, "online". */
export function on(name, listener) {
  bell.addEventListener(name, (event) => listener(event.detail));
}

const ring = (name, detail) => bell.dispatchEvent(new CustomEvent(name, { detail }));

export const currentJob = () => state.jobs.get(state.jobId) ?? null;

export function setStack(stack) {
  state.stack = stack;
  if (stack) state.stacks.set(stack.id, stack);
  ring("stack", stack);
  ring("jobs");
}

/** News of a stack, which may be the one on the table. */
export function updateStack(stack) {
  if (state.stack?.id === stack.id) setStack(stack);
  else {
    state.stacks.set(stack.id, stack);
    ring("jobs");
  }
}

export function dropStack(id) {
  state.stacks.delete(id);
  ring("jobs");
}

export function setUploading(ids) {
  state.uploading = new Set(ids);
  ring("uploading");
}

export function setJobs(list) {
  state.jobs = new Map(list.map((job) => [job.id, job]));
  ring("jobs");
  ring("job", currentJob());
}

export function setJob(job) {
  if (state.jobs.has(job.id)) state.jobs.set(job.id, job);
  else state.jobs = new Map([[job.id, job], ...state.jobs]);
  ring("jobs");
  if (job.id === state.jobId) ring("job", job);
}

export function setStacks(list) {
  state.stacks = new Map(list.map((stack) => [stack.id, stack]));
  ring("jobs");
}

export function dropJob(id) {
  state.jobs.delete(id);
  ring("jobs");
}

export const sayOnline = () => ring("online");

/** Look at a job, or, with null, at the stack. */
export function lookAt(jobId) {
  state.jobId = jobId;
  ring("route");
  ring("jobs");
  ring("job", currentJob());
}

/** Where the page is lies in the address, so that a reload comes back to it. */
export function route() {
  const [kind, id] = window.location.hash.slice(1).split("=");
  return { kind: id || kind === "new" ? kind : "", id: id ?? null };
}

export function goTo(kind, id) {
  window.location.hash = id ? `${kind}=${id}` : kind;
}

// Preferences survive the visit. A browser may forbid storage: then they just do not.
export function remember(name, value) {
  try {
    window.localStorage.setItem(`cofuse.${name}`, JSON.stringify(value));
  } catch {
    /* forbidden */
  }
}

export function recall(name, otherwise) {
  try {
    return JSON.parse(window.localStorage.getItem(`cofuse.${name}`)) ?? otherwise;
  } catch {
    return otherwise;
  }
}
