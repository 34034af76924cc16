// Up to four pictures side by side that zoom and move as one.

import { byId, fillSelect, make } from "./dom.js";
import { DeepViewer, tileSource } from "./viewer.js";

const holder = byId("panes");
let panes = []; // {viewer, select, box}; they are there while they are shown
let chosen = { job: null, names: [] }; // what was last chosen in each
let leader = null; // the pane under the hand; the others follow

/** Only the leader is followed: if all followed all, an echo of an older view would pull it back. */
function follow(from) {
  if (from !== leader) return;
  for (const pane of panes) if (pane !== from) pane.viewer.take(from.viewer.view());
}

function makePane(number) {
  const select = make("select", { "aria-label": `Picture ${number + 1}` });
  const inner = make("div", { class: "layer" });
  const box = make("div", { class: "pane" }, inner, select);
  holder.append(box);
  const pane = { box, select, viewer: new DeepViewer(inner, `Picture ${number + 1}`) };
  const lead = () => {
    leader = pane;
  };
  for (const event of ["pointerdown", "wheel", "keydown", "touchstart"]) {
    inner.addEventListener(event, lead, { capture: true, passive: true });
  }
  pane.viewer.on("viewport-change", () => follow(pane));
  pane.viewer.on("update-viewport", () => pane === leader && pane.told?.(pane.viewer));
  return pane;
}

/** The viewer that the zoom buttons act on. */
export function leadingViewer() {
  leader = leader && panes.includes(leader) ? leader : panes[0];
  return leader.viewer;
}

function removePane() {
  const { viewer, box } = panes.pop();
  viewer.destroy();
  box.remove();
}

/** `told(viewer)` is called whenever the view of the pane in the lead changes. */
export async function showPanes(job, pictures, count, like, told) {
  const view = (holder.hidden ? like : leadingViewer()).view();
  holder.hidden = false;
  holder.dataset.count = count;
  while (panes.length > count) removePane();
  while (panes.length < count) panes.push(makePane(panes.length));
  const frames = pictures.filter(({ name }) => name.startsWith("frame-"));
  if (chosen.job !== job.id) chosen = { job: job.id, names: ["result", "average", frames[0]?.name, frames.at(-1)?.name] };
  const { names } = chosen;
  const shown = panes.map(async (pane, index) => {
    fillSelect(pane.select, pictures.map(({ name, title }) => [name, title]), names[index]);
    const load = () => {
      const picture = pictures.find(({ name }) => name === pane.select.value);
      names[index] = picture.name;
      pane.viewer.describe(picture.title);
      return pane.viewer.layer("picture", tileSource(job, picture, picture.name === "result" ? job.retouched : 0));
    };
    pane.select.onchange = load;
    pane.told = told;
    await load();
    if (panes.includes(pane)) pane.viewer.take(view);
  });
  await Promise.all(shown);
}

export function hidePanes(like) {
  if (holder.hidden) return;
  like.take(leadingViewer().view());
  holder.hidden = true;
  while (panes.length) removePane();
}
