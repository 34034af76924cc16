// Painting from a frame into the result: strokes, undo and redo, and sending them.

import * as api from "./api.js";
import { drawRing, paintStrokes } from "./brush.js";
import { announce, attempt, byId, fillSelect, toast } from "./dom.js";
import { clearGhosts, followWithGhosts, ghostCanvas } from "./ghosts.js";
import { setJob } from "./state.js";
import { plural } from "./words.js";

const LARGEST_RADIUS = 500; // the server takes no more
const canvas = byId("retouch-canvas");
const area = byId("canvas-area");
let viewer = null;
let job = null;
let pictures = [];
let active = false; // the tab is open and the picture alone is shown
let held = false; // the space bar: the picture is moved meanwhile
let strokes = []; // all, in their order
let undone = [];
let applied = []; // those the server has
let lingering = []; // sent, but their tiles are not on the screen yet
let current = null; // under the hand
let pointer = null; // where the ring is
let sending = false;
let asked = false; // a frame of animation is under way

const painting = () => active && byId("retouch-paint").checked && !held;
const brush = () => ({ radius: Number(byId("brush-size").value), softness: Number(byId("brush-soft").value) / 100 });
const isPrefix = (part, whole) => part.every((stroke, index) => stroke === whole[index]);

function paint() {
  asked = false;
  if (!viewer.base()) return;
  const pending = isPrefix(applied, strokes) ? strokes.slice(applied.length) : [];
  const shown = active ? [...lingering, ...pending, ...(current ? [current] : [])] : [];
  const accent = getComputedStyle(document.documentElement).getPropertyValue("--accent");
  const context = paintStrokes(canvas, shown, {
    place: (x, y) => viewer.toElement(x, y),
    scale: viewer.scale(),
    frameCanvas: (frame) => ghostCanvas(job, pictures, frame, viewer, redraw),
    tint: byId("retouch-tint").checked ? `color-mix(in srgb, ${accent} 60%, transparent)` : null,
  });
  if (painting() && pointer) drawRing(context, pointer, brush().radius * viewer.scale(), brush().softness);
}

function redraw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(paint);
}

function showState() {
  const waiting = strokes.length - applied.length;
  byId("undo").disabled = strokes.length === 0 || sending;
  byId("redo").disabled = undone.length === 0 || sending;
  byId("retouch-apply").disabled = waiting <= 0 || sending;
  byId("retouch-clear").disabled = strokes.length === 0 || sending;
  byId("retouch-words").textContent = sending
    ? "Applying …"
    : waiting > 0
      ? `${plural(waiting, "stroke")} not applied yet`
      : applied.length
        ? `${plural(applied.length, "stroke")} applied`
        : "";
  byId("brush-size-value").textContent = byId("brush-size").value;
  byId("brush-soft-value").textContent = `${byId("brush-soft").value} %`;
  area.classList.toggle("painting", painting());
  redraw();
}

async function send() {
  const sent = [...strokes];
  const mine = job.id;
  lingering = isPrefix(applied, sent) ? sent.slice(applied.length) : [];
  sending = true;
  applied = sent; // drawn from `lingering` until the tiles have come
  showState();
  const answer = await attempt(() => api.sendStrokes(mine, sent));
  sending = false;
  if (job.id !== mine) return;
  if (!answer) {
    lingering = [];
    applied = await api.strokes(mine).then((list) => sent.slice(0, list.strokes.length), () => []);
  } else setJob(answer);
  showState();
}

/** The new tiles are on the screen: what stood in for them can go. */
export function retouchSettled() {
  if (sending) return;
  lingering = [];
  redraw();
}

function undo() {
  if (strokes.length === 0 || sending) return;
  undone.push(strokes.at(-1));
  strokes = strokes.slice(0, -1);
  announce(`${plural(strokes.length, "stroke")} left`);
  // An applied stroke is in the picture already: only the server can take it out.
  if (strokes.length < applied.length) send();
  else showState();
}

function redo() {
  if (undone.length === 0 || sending) return;
  strokes = [...strokes, undone.pop()];
  showState();
}

function clearAll() {
  undone = [];
  const had = applied.length > 0;
  strokes = [];
  if (had) send();
  else showState();
}

function addPoint(position) {
  const { x, y } = viewer.toPicture(position);
  const [lastX, lastY] = current.points.at(-1) ?? [Infinity, Infinity];
  // Points closer than that change nothing that could be seen.
  if (Math.hypot(x - lastX, y - lastY) < Math.max(0.5, current.radius * 0.12)) return;
  current.points.push([Math.round(x * 10) / 10, Math.round(y * 10) / 10]);
  redraw();
}

function begin(position) {
  current = { frame: Number(byId("retouch-frame").value), ...brush(), points: [] };
  addPoint(position);
}

function finish() {
  const { width, height } = job.result;
  const reaches = ([x, y]) => x > -current.radius && y > -current.radius && x < width + current.radius && y < height + current.radius;
  if (current.points.some(reaches)) {
    strokes = [...strokes, current];
    undone = [];
  }
  current = null;
  showState();
}

function startPainting() {
  viewer.on("canvas-press", (event) => painting() && begin(event.position));
  viewer.on("canvas-drag", (event) => {
    if (!painting()) return;
    event.preventDefaultAction = true;
    if (current) addPoint(event.position);
  });
  viewer.on("canvas-drag-end", (event) => {
    if (painting()) event.preventDefaultAction = true; // no gliding on
  });
  viewer.on("canvas-release", () => current && finish());
  viewer.on("canvas-pinch", () => {
    // Two fingers move the picture: what the first began was no stroke.
    current = null;
    redraw();
  });
  viewer.on("choose-middle", (event) => {
    if (!painting()) return;
    begin(event.position);
    finish();
    announce("A dab in the middle of the view");
  });
  area.addEventListener("pointermove", (event) => {
    const box = area.getBoundingClientRect();
    pointer = event.pointerType === "touch" ? null : { x: event.clientX - box.left, y: event.clientY - box.top };
    if (active) redraw();
  });
  area.addEventListener("pointerleave", () => {
    pointer = null;
    redraw();
  });
}

function keys(event) {
  if (!active || event.target.closest?.("dialog, input[type=text], input[type=number]")) return;
  const control = event.ctrlKey || event.metaKey;
  const size = byId("brush-size");
  if (control && event.key.toLowerCase() === "z") {
    event.preventDefault();
    if (event.shiftKey) redo();
    else undo();
  } else if (control && event.key.toLowerCase() === "y") {
    event.preventDefault();
    redo();
  } else if (event.key === "[" || event.key === "]") {
    size.value = Number(size.value) * (event.key === "[" ? 0.85 : 1.18) + (event.key === "[" ? -0.5 : 0.5);
    showState();
  } else if (event.key === " " && event.target.closest?.(".openseadragon-canvas")) {
    event.preventDefault();
    held = true;
    showState();
  }
}

/** Is the brush out? Then a click is a dab, and not a question about the pixel. */
export const brushIsOut = () => painting();

export function setRetouching(isActive) {
  if (active && !isActive && strokes.length > applied.length) toast("Your strokes are kept, but not applied yet");
  active = isActive;
  showState();
}

export async function openRetouch(newJob, newPictures) {
  const same = job?.id === newJob.id;
  job = newJob;
  pictures = newPictures;
  if (same) return;
  strokes = [];
  undone = [];
  applied = [];
  lingering = [];
  current = null;
  clearGhosts();
  fillSelect(byId("retouch-frame"), job.result.names.map((name, index) => [index, `${index + 1} · ${name}`]), 0);
  byId("retouch-noise").hidden = !(job.result.sigma >= 1.5);
  const long = Math.max(job.result.width, job.result.height);
  byId("brush-size").max = Math.min(LARGEST_RADIUS, Math.max(20, Math.round(long / 6)));
  byId("brush-size").value = Math.max(4, Math.round(long / 40));
  showState();
  const known = await attempt(() => api.strokes(job.id));
  if (!known || job.id !== newJob.id || strokes.length) return;
  strokes = known.strokes;
  applied = [...strokes];
  showState();
}

export function startRetouch(mainViewer) {
  viewer = mainViewer;
  startPainting();
  viewer.on("viewport-change", () => {
    followWithGhosts(viewer);
    redraw();
  });
  viewer.on("resize", redraw);
  for (const id of ["brush-size", "brush-soft", "retouch-paint", "retouch-tint"]) byId(id).addEventListener("input", showState);
  byId("undo").addEventListener("click", undo);
  byId("redo").addEventListener("click", redo);
  byId("retouch-apply").addEventListener("click", send);
  byId("retouch-clear").addEventListener("click", clearAll);
  window.addEventListener("beforeunload", (event) => strokes.length > applied.length && event.preventDefault());
  window.addEventListener("keydown", keys, { capture: true });
  window.addEventListener("keyup", (event) => {
    if (event.key !== " " || !held) return;
    held = false;
    showState();
  });
}
