// What to do with the frames: the settings, the matching command line, and the button that starts it.

import * as api from "./api.js";
import { attempt, byId, copyText, eventually, fillSelect } from "./dom.js";
import { goTo, on, recall, remember, setJob, state } from "./state.js";
import { capital, frameCount, plural, sentence } from "./words.js";

const form = byId("settings");
const FORMATS = { tiff: ["TIFF, lossless", "tif"], png: ["PNG, lossless", "png"], jpeg: ["JPEG, small", "jpg"] };
const DEVICES = { auto: "Automatic", cpu: "Processor", gpu: "Graphics card", cuda: "Graphics card" };

/** The options of a job, as the server wants them. */
export function options() {
  const chosen = {
    sigma: form.noise.value === "auto" ? "auto" : Number(byId("sigma").value),
    denoise: Number(byId("denoise").value) / 100,
    align: byId("align").checked,
    preset: byId("preset").value,
    device: byId("device").value,
    hot_pixels: byId("hot-pixels").checked ? "auto" : "off",
    depth: byId("depth").checked,
  };
  const memory = byId("max-memory").value.trim();
  if (memory) chosen.max_memory = memory;
  if (Number(byId("z-step").value) > 0) chosen.z_step = Number(byId("z-step").value);
  return chosen;
}

/** How the picture is to be written: [format, depth or ""]. */
export const output = () => [byId("format").value, byId("bit-depth").value];

/** The server's command writes result.tif; put the chosen format and depth in its place. */
export function withOutput(command) {
  const [format, depth] = output();
  const bits = depth || (format === "jpeg" ? "8" : "");
  const asked = bits ? ` --bit-depth ${bits}` : "";
  return command.replace(/-o result\.tif\b/, `-o result.${FORMATS[format][1]}${asked}`);
}

function showChoices() {
  byId("noise-row").hidden = form.noise.value === "auto";
  byId("sigma-value").textContent = byId("sigma").value;
  byId("denoise-value").textContent = `${byId("denoise").value} %`;
  byId("preset-words").textContent = capital(state.info.presets.find(({ name }) => name === byId("preset").value)?.words ?? "");
  const jpeg = byId("format").value === "jpeg";
  fillSelect(byId("bit-depth"), jpeg ? [["8", "8"]] : [["", "as the frames"], ["8", "8"], ["16", "16"]]);
}

let asked = 0;
const askCommand = eventually(async () => {
  const stack = state.stack;
  const turn = ++asked;
  if (!stack?.frames.length) {
    byId("command").textContent = "Add frames first.";
    return;
  }
  try {
    const { command } = await api.command(stack.id, options());
    if (turn === asked) byId("command").textContent = withOutput(command);
  } catch (error) {
    if (turn === asked) byId("command").textContent = sentence(error.message);
  }
}, 150);

/** Estimate the noise as soon as the frames are there; it costs little and says much. */
let estimated = "";
async function askNoise() {
  const stack = state.stack;
  const words = byId("noise-estimate");
  const key = stack ? [stack.id, stack.problem, ...stack.frames.map(({ id }) => id).sort()].join() : "";
  if (key === estimated) return;
  estimated = key;
  if (!stack?.frames.length || stack.problem) {
    words.textContent = "Estimated from the frames.";
    return;
  }
  words.textContent = "Estimating from the frames …";
  try {
    const answer = await api.noise(stack.id, () => estimated === key);
    if (answer === null) return;
    const { sigma, character } = answer;
    const remarks = [...(sigma < 1.5 ? ["counts as none"] : []), ...character].map((remark) => `, ${remark}`).join("");
    words.textContent = sigma === null ? "Estimated when you fuse." : `Estimated: σ ${sigma.toFixed(1)} of 255${remarks}`;
    if (form.noise.value === "auto" && sigma !== null) byId("sigma").value = Math.round(sigma * 2) / 2;
    showChoices();
  } catch (error) {
    if (estimated === key) words.textContent = sentence(error.message);
  }
}

/** Why the stack cannot be fused yet; "" if it can. */
function obstacle(stack) {
  const count = frameCount(stack);
  if (state.uploading.has(stack?.id)) return "Frames are still being uploaded.";
  if (count === 0) return "Add at least two frames.";
  if (count === 1) return "One more frame, please.";
  return stack.problem ? "These frames do not go together." : "";
}

function showButton() {
  const count = frameCount(state.stack);
  const words = obstacle(state.stack);
  byId("fuse").disabled = words !== "";
  byId("fuse").textContent = count ? `Fuse ${plural(count, "frame")}` : "Fuse";
  byId("fuse-words").textContent = words;
}

function showStack() {
  showButton();
  askCommand();
  askNoise();
}

function keepChoices() {
  const { max_memory: _memory, z_step: _step, sigma: _sigma, ...kept } = options();
  remember("options", { ...kept, output: output() });
}

function restoreChoices() {
  const kept = recall("options", {});
  if (kept.align !== undefined) byId("align").checked = kept.align;
  if (kept.depth !== undefined) byId("depth").checked = kept.depth;
  if (kept.hot_pixels) byId("hot-pixels").checked = kept.hot_pixels === "auto";
  if (kept.denoise !== undefined) byId("denoise").value = kept.denoise * 100;
  if (kept.preset) byId("preset").value = kept.preset;
  if (kept.device) byId("device").value = kept.device;
  if (kept.output) byId("format").value = kept.output[0];
  // A choice that no longer exists leaves a select empty.
  for (const id of ["preset", "device", "format"]) if (!byId(id).value) byId(id).selectedIndex = 0;
  showChoices();
  if (kept.output) byId("bit-depth").value = kept.output[1];
  if (byId("bit-depth").selectedIndex < 0) byId("bit-depth").selectedIndex = 0;
}

async function fuse(event) {
  event.preventDefault();
  const button = byId("fuse");
  button.disabled = true;
  const job = await attempt(() => api.startJob(state.stack.id, options()));
  showButton();
  if (!job) return;
  setJob(job);
  goTo("job", job.id);
}

export function startControls() {
  const { presets, devices, formats } = state.info;
  fillSelect(byId("preset"), presets.map(({ name }) => [name, name]));
  fillSelect(byId("device"), devices.filter(({ available }) => available).map(({ name, words }) => [name, DEVICES[name] ?? capital(words)]));
  fillSelect(byId("format"), formats.map((name) => [name, FORMATS[name]?.[0] ?? name]));
  restoreChoices();
  form.addEventListener("input", () => {
    showChoices();
    keepChoices();
    askCommand();
  });
  form.addEventListener("submit", fuse);
  window.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || state.jobId) return;
    event.preventDefault();
    if (!byId("fuse").disabled) form.requestSubmit();
  });
  byId("command-copy").addEventListener("click", () => copyText(byId("command").textContent));
  on("stack", showStack);
  on("uploading", showButton);
  showStack();
}
