// A finished job on the stage: what is shown (modes), and the tools beside it (tabs).

import * as api from "./api.js";
import { showBefore, startCompare } from "./compare.js";
import { attempt, byId, fillSelect } from "./dom.js";
import { showFacts } from "./facts.js";
import { inspect, resetInspect, showMark, startInspect } from "./inspect.js";
import { showOverlays, startOverlays } from "./overlays.js";
import { hidePanes, leadingViewer, showPanes } from "./panes.js";
import { resetRelief, showRelief, startRelief, zoomRelief } from "./relief.js";
import { brushIsOut, closeRetouch, openRetouch, retouchSettled, setRetouching, startRetouch } from "./retouch.js";
import { showSave, startSave } from "./save.js";
import { on, state } from "./state.js";
import { DeepViewer, tileSource } from "./viewer.js";

let viewer = null;
let shown = null; // the job on the stage
let pictures = [];
let mode = "picture";
let tab = "look";
let reliefOf = null;

const picture = (name) => pictures.find((each) => each.name === name);
const front = () => (mode === "panes" ? leadingViewer() : viewer);

function problem(words) {
  byId("viewer-problem").hidden = !words;
  byId("viewer-problem").textContent = words ?? "";
}

async function showResultLayer() {
  const job = shown;
  const item = await viewer.layer("result", tileSource(job, picture("result"), job.retouched));
  if (!item) return;
  if (item.getFullyLoaded()) retouchSettled(job);
  else item.addOnceHandler("fully-loaded-change", () => retouchSettled(job));
}

function showZoom(of) {
  const words = `${Math.round(of.scale() * window.devicePixelRatio * 100)} %`;
  if (byId("zoom").textContent !== words) byId("zoom").textContent = words;
}

async function setMode(next) {
  const before = mode;
  mode = next;
  byId("before-field").hidden = mode !== "slider";
  byId("panes-field").hidden = mode !== "panes";
  byId("relief-field").hidden = mode !== "relief";
  byId("relief").hidden = mode !== "relief";
  byId("zoom").hidden = mode === "relief";
  byId("zoom-actual").hidden = mode === "relief";
  byId("full-screen").hidden = !document.fullscreenEnabled;
  problem(null);
  if (before === "panes" && mode !== "panes") hidePanes(viewer);
  showStrokes();
  const other = picture(byId("before").value);
  await showBefore(mode === "slider" && other ? tileSource(shown, other) : null, other?.title);
  if (mode === "panes") await showPanes(shown, pictures, Number(byId("pane-count").value), viewer, showZoom);
  if (mode === "relief") await openRelief();
  else if (front().base()) showZoom(front());
}

async function openRelief() {
  const key = `${shown.id}:${shown.retouched}`;
  if (reliefOf === key) return;
  try {
    showRelief(await api.relief(shown.id));
    reliefOf = key;
  } catch (error) {
    problem(`No relief: ${error.message}`);
  }
}

function setTab(next, focus) {
  tab = next;
  for (const button of byId("tabs").children) {
    const chosen = button.id === `tab-${tab}`;
    button.setAttribute("aria-selected", chosen);
    button.tabIndex = chosen ? 0 : -1;
    byId(button.getAttribute("aria-controls")).hidden = !chosen;
    if (chosen && focus) button.focus();
  }
  showMark(tab === "pixel");
  if (tab === "save" && shown) showSave(shown);
  // The brush works on the picture alone.
  if (tab === "retouch" && mode !== "picture") chooseMode("picture");
  else showStrokes();
}

const showStrokes = () => setRetouching(tab === "retouch" && mode === "picture", mode === "picture");

function chooseMode(name) {
  for (const input of byId("modes").querySelectorAll("input")) input.checked = input.value === name;
  setMode(name);
}

/** Show a finished job, or, if it is there already, what has changed of it. */
export async function showResult(job) {
  const same = shown?.id === job.id;
  const retouched = shown?.retouched !== job.retouched;
  shown = job;
  if (same) {
    if (!retouched || pictures.length === 0) return;
    resetInspect(job);
    openRetouch(job, pictures);
    await showResultLayer();
    showFacts(job, false);
    return;
  }
  setTab(tab);
  closeRetouch();
  viewer.clear();
  pictures = [];
  const list = await attempt(() => api.pictures(job.id));
  if (!list || shown?.id !== job.id) return;
  pictures = list;
  viewer.describe(`${job.name}, fused`);
  byId("relief-choice").hidden = !job.result.has_depth;
  const others = pictures.filter(({ name }) => name === "average" || name.startsWith("frame-"));
  fillSelect(byId("before"), others.map(({ name, title }) => [name, title]), "average");
  openRetouch(job, pictures);
  await showResultLayer();
  resetInspect(job);
  showOverlays(job, pictures);
  showFacts(job, true);
  if (tab === "save") showSave(job);
  chooseMode(mode === "relief" && !job.result.has_depth ? "picture" : mode);
}

/** Nothing is shown any more; the next result starts from the beginning. */
export function leaveResult() {
  if (!shown) return;
  shown = null;
  pictures = [];
  closeRetouch();
  hidePanes(viewer);
  viewer.clear();
}

function ask(event) {
  if (!viewer.base() || brushIsOut()) return;
  const place = viewer.toPicture(event.position);
  setTab("pixel");
  inspect(place.x, place.y);
}

function startToolbar() {
  byId("modes").addEventListener("change", (event) => setMode(event.target.value));
  byId("before").addEventListener("change", () => setMode("slider"));
  byId("pane-count").addEventListener("change", () => setMode("panes"));
  byId("zoom-in").addEventListener("click", () => (mode === "relief" ? zoomRelief(1.3) : front().zoomBy(1.6)));
  byId("zoom-out").addEventListener("click", () => (mode === "relief" ? zoomRelief(1 / 1.3) : front().zoomBy(1 / 1.6)));
  byId("zoom-fit").addEventListener("click", () => (mode === "relief" ? resetRelief() : front().fit()));
  byId("zoom-actual").addEventListener("click", () => front().actual());
  byId("full-screen").addEventListener("click", () => {
    if (document.fullscreenElement) document.exitFullscreen();
    else byId("toolbar").parentElement.requestFullscreen();
  });
  viewer.on("update-viewport", () => mode !== "panes" && showZoom(viewer));
}

function startTabs() {
  const tabs = [...byId("tabs").children];
  for (const button of tabs) button.addEventListener("click", () => setTab(button.id.slice(4)));
  byId("tabs").addEventListener("keydown", (event) => {
    const here = tabs.indexOf(document.activeElement);
    const next = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    setTab(tabs[(next + tabs.length) % tabs.length].id.slice(4), true);
  });
}

export function startResult() {
  viewer = new DeepViewer(byId("viewer"), "The fused picture");
  startCompare(viewer);
  startOverlays(viewer);
  startInspect(viewer);
  startRetouch(viewer);
  startRelief();
  startSave();
  startToolbar();
  startTabs();
  viewer.on("canvas-click", (event) => event.quick && ask(event));
  viewer.on("choose-middle", ask);
  on("route", () => state.jobId !== shown?.id && leaveResult());
}
