// Puts the page together, and shows what the address names: a stack or a job.

import * as api from "./api.js";
import { startControls } from "./controls.js";
import { attempt, byId, make, toast } from "./dom.js";
import { startFrames } from "./frames.js";
import { startJobs } from "./jobs.js";
import { showProgress, startProgress } from "./progress.js";
import { leaveResult, showResult, startResult } from "./result.js";
import { currentJob, goTo, lookAt, on, route, setJobs, setStack, setStacks, state } from "./state.js";
import { startTheme } from "./theme.js";
import { startUpload } from "./upload.js";

function showJob(job) {
  byId("stack-view").hidden = Boolean(job);
  byId("job-view").hidden = !job;
  const words = job ? job.name : (state.stack?.name ?? "");
  byId("crumb").classList.toggle("slogan", !words);
  byId("crumb").textContent = words || "Many focus distances, one sharp picture";
  document.title = words ? `${words} · cofuse` : "cofuse";
  if (!job) return;
  const done = job.state === "done";
  byId("running-panel").hidden = done;
  byId("progress-area").hidden = done;
  byId("toolbar").hidden = !done;
  byId("canvas-area").hidden = !done;
  byId("tabs").hidden = !done;
  if (done) {
    showResult(job);
    return;
  }
  leaveResult();
  for (const panel of document.querySelectorAll("[role=tabpanel]")) panel.hidden = true;
  showProgress(job);
}

/** Another view begins at its top, and with the focus on it if what had the focus is gone. */
async function arrive() {
  const focused = document.activeElement;
  await follow();
  window.scrollTo(0, 0);
  if (!focused.checkVisibility()) byId("main").focus({ preventScroll: true });
}

function sayGone(what) {
  toast(`That ${what} is no longer there`);
  goTo("new");
}

/** Show what the address names. Lists are asked for what is not known: it may be new, or gone. */
async function follow() {
  const { kind, id } = route();
  if (kind === "job") {
    if (!state.jobs.has(id)) setJobs((await attempt(() => api.jobs())) ?? []);
    if (state.jobs.has(id)) lookAt(id);
    else sayGone("result");
    return;
  }
  if (kind === "stack" && state.stack?.id !== id) {
    if (!state.stacks.has(id)) setStacks((await attempt(() => api.stacks())) ?? []);
    const stack = state.stacks.has(id) ? await attempt(() => api.stack(id)) : null;
    if (!stack) {
      sayGone("stack");
      return;
    }
    setStack(stack);
  }
  if (kind !== "stack" && state.stack) setStack(null);
  lookAt(null);
}

/** Browsers show the focus that a script sets, as the viewer's does on a click; only keys shall. */
function startFocusHint() {
  const told = (how) => () => {
    document.documentElement.dataset.input = how;
  };
  window.addEventListener("pointerdown", told("pointer"), { capture: true });
  window.addEventListener("keydown", told("keys"), { capture: true });
}

function startHelp() {
  // What a screen reader says is also shown under the pointer.
  for (const button of document.querySelectorAll(".icon-button[aria-label]")) button.title = button.getAttribute("aria-label");
  byId("help-button").addEventListener("click", () => byId("help").showModal());
  window.addEventListener("keydown", (event) => {
    if (event.key !== "?" || event.target.closest?.("input, select, dialog")) return;
    event.preventDefault();
    byId("help").showModal();
  });
}

async function start() {
  startTheme();
  startHelp();
  startFocusHint();
  try {
    state.info = await api.info();
  } catch (error) {
    document.querySelector("main").replaceChildren(make("p", { class: "notice bad", role: "alert", text: `The page cannot start: ${error.message}` }));
    return;
  }
  startFrames();
  startControls();
  startUpload();
  startProgress();
  startResult();
  on("job", showJob);
  on("stack", () => state.jobId || showJob(null));
  await startJobs();
  window.addEventListener("hashchange", arrive);
  await follow();
  if (!currentJob() && !state.stack) setStack(null);
  document.documentElement.dataset.ready = "";
}

start();
