// A job that waits, runs, or ended without a picture: stages, time left, live preview, cancel.

import * as api from "./api.js";
import { announce, attempt, byId, make } from "./dom.js";
import { dropJob, goTo, setJob } from "./state.js";
import { isActive, seconds, sentence, stageWords } from "./words.js";

const HEADINGS = {
  waiting: "Waiting for its turn",
  running: "Fusing",
  failed: "This did not work",
  cancelled: "Cancelled",
  interrupted: "Interrupted",
};
const ENDINGS = {
  cancelled: "The work was stopped. The frames are still there.",
  interrupted: "The server was stopped before this was done. The frames are still there.",
};

let shown = null; // the job on the screen
let stages = []; // stages met so far, in their order

function showStages(job) {
  if (job.stage && stages.at(-1) !== job.stage && !stages.includes(job.stage)) {
    stages.push(job.stage);
    announce(stageWords(job.stage));
  }
  byId("running-stages").replaceChildren(
    ...stages.map((stage) => make("li", { text: stageWords(stage), class: stage === job.stage && isActive(job) ? "now" : "" })),
  );
}

function showPreview(job) {
  const image = byId("preview");
  image.hidden = !job.preview;
  byId("preview-blank").hidden = Boolean(job.preview) || !isActive(job);
  const source = api.previewUrl(job.id, job.preview);
  if (!job.preview || image.dataset.source === source) return;
  image.dataset.source = source;
  // Load beside the screen first: the old preview stays until the new one is whole.
  const next = new Image();
  next.onload = () => {
    if (image.dataset.source === source) image.src = source;
  };
  next.src = source;
}

export function showProgress(job) {
  if (shown?.id !== job.id) {
    stages = [];
    byId("preview").removeAttribute("src");
    delete byId("preview").dataset.source;
  }
  shown = job;
  const active = isActive(job);
  byId("running-title").textContent = HEADINGS[job.state];
  const counted = job.total > 1 ? `, ${job.done} of ${job.total}` : "";
  byId("running-words").textContent =
    job.state === "running" && job.stage ? `${stageWords(job.stage)}${counted}` : (ENDINGS[job.state] ?? "");
  byId("running-bar").hidden = !active;
  byId("running-bar").value = job.progress;
  byId("running-left").textContent =
    job.state === "running" && job.seconds_left !== null && job.stage !== "stopping" ? `About ${seconds(job.seconds_left)} left` : "";
  byId("running-error").hidden = !job.error;
  byId("running-error").textContent = job.error ? sentence(job.error) : "";
  byId("cancel").hidden = !active;
  byId("cancel").disabled = job.stage === "stopping";
  byId("again").hidden = active;
  byId("forget").hidden = active;
  showStages(job);
  showPreview(job);
}

export async function removeJob(job) {
  goTo("new"); // first: what is deleted while it is shown was deleted by somebody else
  await attempt(() => api.deleteJob(job.id).then(() => dropJob(job.id)));
}

export function startProgress() {
  byId("cancel").addEventListener("click", async (event) => {
    event.target.disabled = true;
    const job = await attempt(() => api.cancelJob(shown.id));
    if (job) setJob(job);
    else event.target.disabled = false;
  });
  byId("again").addEventListener("click", () => goTo("stack", shown.stack));
  byId("forget").addEventListener("click", () => removeJob(shown));
}
