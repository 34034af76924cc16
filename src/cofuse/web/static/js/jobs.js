// The strip of results, kept up to date by the server's events.

import * as api from "./api.js";
import { announce, attempt, byId, make, toast } from "./dom.js";
import { currentJob, dropJob, goTo, on, sayOnline, setJob, setJobs, setStacks, state } from "./state.js";
import { frameCount, isActive, moment, plural, sentence, STATES } from "./words.js";

const THUMBNAIL_LEVEL = 8; // one tile of at most 256 pixels

function thumbnail(job) {
  if (job.state === "done") {
    const top = Math.ceil(Math.log2(Math.max(job.result.width, job.result.height)));
    return api.tileUrl(job.id, "result", Math.min(THUMBNAIL_LEVEL, top), 0, 0, job.retouched);
  }
  if (isActive(job) && job.preview) return api.previewUrl(job.id, job.preview);
  const frame = state.stacks.get(job.stack)?.frames[0];
  return frame ? api.thumbnailUrl(job.stack, frame.id) : null;
}

/** One link for each job; made once, then changed in place, so that the focus stays where it is. */
const links = new Map();

function link(job) {
  let item = links.get(job.id);
  if (!item) {
    item = make(
      "li",
      { class: "strip-item" },
      make(
        "a",
        { class: "strip-link", href: `#job=${job.id}` },
        make("span", { class: "strip-thumb" }, make("img", { alt: "", hidden: true }), make("progress", { max: 1, "aria-label": "Progress", hidden: true })),
        make("span", { class: "strip-name" }),
        make("span", { class: "strip-state" }),
      ),
    );
    links.set(job.id, item);
  }
  const anchor = item.firstChild;
  const image = anchor.querySelector("img");
  const bar = anchor.querySelector("progress");
  const source = thumbnail(job);
  image.hidden = !source;
  image.classList.toggle("stands-in", job.state !== "done");
  if (source && image.getAttribute("src") !== source) image.src = source;
  bar.hidden = !isActive(job);
  bar.value = job.progress;
  bar.setAttribute("aria-label", `Progress of ${job.name}`);
  anchor.querySelector(".strip-name").textContent = job.name;
  const words = anchor.querySelector(".strip-state");
  const states = { running: `${Math.round(job.progress * 100)} %`, done: `${job.options.preset}, ${moment(job.ended ?? job.created)}` };
  words.textContent = states[job.state] ?? STATES[job.state];
  words.classList.toggle("failed", job.state === "failed");
  markCurrent(anchor, job.id === state.jobId);
  return item;
}

/** A stack that was never fused would otherwise be lost from sight. */
function stackLink(stack) {
  let item = links.get(stack.id);
  if (!item) {
    item = make(
      "li",
      { class: "strip-item" },
      make(
        "a",
        { class: "strip-link", href: `#stack=${stack.id}` },
        make("span", { class: "strip-thumb" }, make("img", { alt: "" })),
        make("span", { class: "strip-name" }),
        make("span", { class: "strip-state" }),
      ),
    );
    links.set(stack.id, item);
  }
  const anchor = item.firstChild;
  const source = api.thumbnailUrl(stack.id, stack.frames[0].id);
  if (anchor.querySelector("img").getAttribute("src") !== source) anchor.querySelector("img").src = source;
  anchor.querySelector(".strip-name").textContent = stack.name;
  anchor.querySelector(".strip-state").textContent = plural(frameCount(stack), "frame");
  markCurrent(anchor, !state.jobId && state.stack?.id === stack.id);
  return item;
}

function markCurrent(anchor, current) {
  if (current) anchor.setAttribute("aria-current", "page");
  else anchor.removeAttribute("aria-current");
}

function show() {
  const strip = byId("strip");
  const jobs = [...state.jobs.values()];
  const fused = new Set(jobs.map(({ stack }) => stack));
  const stacks = [...state.stacks.values()].filter(({ id, frames }) => frames.length && !fused.has(id));
  const wanted = [...stacks.map(stackLink), ...jobs.map(link)];
  for (const [id, item] of links) {
    if (wanted.includes(item)) continue;
    item.remove();
    links.delete(id);
  }
  // Only what stands in the wrong place is moved: moving an element takes its focus away.
  wanted.forEach((item, index) => {
    const here = strip.children[index + 1];
    if (here !== item) strip.insertBefore(item, here ?? null);
  });
  markCurrent(byId("new-stack"), !state.jobId && !state.stack?.frames.length);
}

function hear(job) {
  const before = state.jobs.get(job.id);
  setJob(job);
  if (before?.state === job.state) return;
  if (job.state === "done") announce(`${job.name} is fused`);
  else if (!isActive(job)) announce(`${job.name}: ${STATES[job.state]}`);
}

/** A job was deleted, perhaps on another page. */
function hearGone(id) {
  if (state.jobId === id) {
    toast("This result was deleted");
    goTo("new");
  }
  dropJob(id);
}

async function refresh() {
  const lists = await attempt(() => Promise.all([api.stacks(), api.jobs()]));
  if (!lists) return;
  const [stacks, jobs] = lists;
  setStacks(stacks);
  setJobs(jobs);
  if (state.jobId && !currentJob()) hearGone(state.jobId);
}

export async function startJobs() {
  on("jobs", show);
  await refresh();
  // What changed while the line was down is asked for again when it is up.
  const opened = () => {
    byId("offline").hidden = true;
    sayOnline();
    return refresh();
  };
  api.listen(hear, hearGone, opened, (words) => {
    byId("offline").textContent = sentence(words);
    byId("offline").hidden = false;
  });
}
