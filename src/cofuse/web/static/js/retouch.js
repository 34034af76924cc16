// Painting from a frame into the result, with undo and redo.

import * as api from "./api.js";
import { drawRing, paintStrokes } from "./brush.js";
import { announce, byId, fillSelect, toast } from "./dom.js";
import { clearGhosts, followWithGhosts, ghostCanvas } from "./ghosts.js";
import { on, setJob, state } from "./state.js";
import { Strokes } from "./strokes.js";
import { plural, sentence } from "./words.js";

const LARGEST_RADIUS = 500; // the server takes no more
const canvas = byId("retouch-canvas");
const area = byId("canvas-area");
let viewer = null;
let job = null;
let pictures = [];
let active = false; // the tab is open and the picture alone is shown
let visible = false; // the picture alone is shown, with or without the tab
let held = false; // the space bar: the picture is moved meanwhile
const known = new Map(); // the strokes of every result that was opened, by its id
let strokes = null; // those of the result on the stage
let current = null; // under the hand
let pointer = null; // where the ring is
let asked = false; // a frame of animation is under way

const painting = () => active && strokes && byId("retouch-paint").checked && !held;
const brush = () => ({ radius: Number(byId("brush-size").value), softness: Number(byId("brush-soft").value) / 100 });

function paint() {
  asked = false;
  const shown = visible && strokes && viewer.base() ? [...strokes.drawn, ...(current ? [current] : [])] : [];
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
  const { list = [], undone = [], applied = 0, waiting = 0, sending = false, problem = "" } = strokes ?? {};
  byId("undo").disabled = list.length === 0;
  byId("redo").disabled = undone.length === 0;
  byId("retouch-apply").disabled = waiting === 0 || sending;
  byId("retouch-clear").disabled = list.length === 0;
  const words = [
    sending ? "Applying …" : waiting ? `${plural(waiting, "stroke")} not applied yet` : applied ? `${plural(applied, "stroke")} applied` : "",
    strokes?.unsaved && problem ? `Not saved: ${problem}` : "",
  ];
  byId("retouch-words").textContent = words.filter(Boolean).join(". ");
  byId("pending").hidden = active || (waiting === 0 && !sending);
  byId("pending-words").textContent = sending ? "Applying …" : `${plural(waiting, "stroke")} not applied yet. Files that you save now do not have ${waiting === 1 ? "it" : "them"}.`;
  byId("pending-apply").disabled = sending;
  byId("brush-size-value").textContent = byId("brush-size").value;
  byId("brush-soft-value").textContent = `${byId("brush-soft").value} %`;
  area.classList.toggle("painting", painting());
  redraw();
}

/** The strokes of a result; of one that is opened again they are the same. */
function strokesOf(id) {
  if (!known.has(id)) {
    let said = "";
    const changed = (answer) => {
      const mine = known.get(id);
      if (mine.problem && mine.problem !== said) toast(sentence(mine.problem));
      said = mine.problem;
      if (answer) setJob(answer);
      if (mine === strokes) showState();
    };
    known.set(id, new Strokes(id, api, changed));
  }
  return known.get(id);
}

/** The tiles of this version of the picture are on the screen: they have what was drawn for them. */
export function retouchSettled({ id, retouched }) {
  known.get(id)?.settle(retouched);
  redraw();
}

function change(what, words) {
  what();
  if (words) announce(words());
  showState();
}

const undo = () => strokes?.list.length && change(() => strokes.undo(), () => `${plural(strokes.list.length, "stroke")} left`);
const redo = () => strokes?.undone.length && change(() => strokes.redo());
const apply = () => change(() => strokes.apply());
const clearAll = () => change(() => strokes.clear());

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
  if (current.points.some(reaches)) strokes.add(current);
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

/** `isActive`: the brush is out. `isVisible`: strokes that are not applied are shown. */
export function setRetouching(isActive, isVisible) {
  if (isActive && !active) strokes?.refresh();
  active = isActive;
  visible = isVisible;
  showState();
}

/** Nothing is on the stage. */
export function closeRetouch() {
  strokes = null;
  current = null;
  setRetouching(false, false);
}

export function openRetouch(newJob, newPictures) {
  const same = job?.id === newJob.id;
  job = newJob;
  pictures = newPictures;
  if (same && strokes) {
    strokes.refresh();
    return;
  }
  if (!same) startFrom(newJob);
  strokes = strokesOf(job.id);
  showState();
}

/** Another result: its frames, and a brush that suits its size. */
function startFrom({ result }) {
  clearGhosts();
  fillSelect(byId("retouch-frame"), result.names.map((name, index) => [index, `${index + 1} · ${name}`]), 0);
  byId("retouch-noise").hidden = !(result.sigma >= 1.5);
  const long = Math.max(result.width, result.height);
  byId("brush-size").max = Math.min(LARGEST_RADIUS, Math.max(20, Math.round(long / 6)));
  byId("brush-size").value = Math.max(4, Math.round(long / 40));
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
  for (const id of ["retouch-apply", "pending-apply"]) byId(id).addEventListener("click", apply);
  byId("retouch-clear").addEventListener("click", clearAll);
  // What the server keeps is safe; only what it has not heard of yet would be lost.
  window.addEventListener("beforeunload", (event) => [...known.values()].some(({ unsaved }) => unsaved) && event.preventDefault());
  // Of a result that is deleted there is nothing to keep.
  on("jobs", () => [...known.keys()].forEach((id) => state.jobs.has(id) || known.delete(id)));
  on("online", () => known.forEach((each) => each.save()));
  window.addEventListener("keydown", keys, { capture: true });
  window.addEventListener("keyup", (event) => {
    if (event.key !== " " || !held) return;
    held = false;
    showState();
  });
}
