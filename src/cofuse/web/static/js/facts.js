// What is known of a result in numbers: histogram, quality, and how the run went.

import * as api from "./api.js";
import { attempt, byId, factRow, make } from "./dom.js";
import { showHistogram } from "./overlays.js";
import { state } from "./state.js";
import { duration, megapixels, sentence } from "./words.js";

/** A measure as the literature writes it: Q with an index. */
function measureName(name) {
  if (name === "q_abf") return make("span", {}, "Q", make("sup", { text: "AB/F" }));
  if (!name.startsWith("q_")) return name;
  const words = make("span", {}, "Q", make("sub", { text: name.slice(2).toUpperCase() }));
  return words;
}

const number = (value) => (typeof value === "number" ? value.toFixed(Math.abs(value) < 10 ? 4 : 2) : String(value));

async function showMetrics(job) {
  const body = byId("metrics").tBodies[0];
  const say = (words) => body.replaceChildren(make("tr", {}, make("th", { scope: "row", text: words }), make("td")));
  say("Measuring …");
  const wanted = () => state.jobId === job.id;
  try {
    const metrics = await api.metrics(job.id, wanted);
    if (metrics === null) return;
    const rows = Object.entries(metrics.values).filter(([, value]) => typeof value === "number");
    if (rows.length === 0) say("Nothing could be measured");
    else body.replaceChildren(...rows.map(([name, value]) => factRow(measureName(name), number(value))));
  } catch (error) {
    if (wanted()) say(sentence(error.message));
  }
}

function showRun({ result, options }) {
  const counts = result.depth > 8 && result.sigma_counts ? ` (${result.sigma_counts.toPrecision(3)} counts)` : "";
  const rows = [
    factRow("Size", `${result.width} × ${result.height}`),
    factRow("Pixels", megapixels(result.width, result.height)),
    factRow("Depth", `${result.depth} bit, ${result.colour ? "colour" : "grey"}`),
    factRow("Frames", result.frames),
    factRow("Noise σ", `${result.sigma === null ? "–" : result.sigma.toFixed(1)}${counts}${result.sigma_estimated ? ", estimated" : ""}`),
    factRow("Method", `${options.preset}, on ${result.device}`),
  ];
  if (result.character?.length) rows.push(factRow("Noise", result.character.join(", ")));
  if (typeof result.moved === "number") rows.push(factRow("Frames moved", `by ${result.moved.toFixed(1)} px at most`));
  if (result.hot_pixels) rows.push(factRow("Hot pixels mended", result.hot_pixels));
  rows.push(factRow("Time", duration(result.seconds)));
  for (const [stage, seconds] of Object.entries(result.stages ?? {})) rows.push(factRow(`– ${stage}`, duration(seconds)));
  for (const note of result.notes ?? []) rows.push(factRow("Note", note));
  byId("facts").tBodies[0].replaceChildren(...rows);
}

async function refreshHistogram(job) {
  const histogram = await attempt(() => api.histogram(job.id));
  if (histogram && state.jobId === job.id) showHistogram(histogram);
}

/** `whole` for another result; without it only what retouching changes. */
export function showFacts(job, whole) {
  refreshHistogram(job);
  if (!whole) return;
  showRun(job);
  showMetrics(job);
}
