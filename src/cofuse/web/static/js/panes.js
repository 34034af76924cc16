// Up to four pictures side by side that zoom and move as one.

import { byId, fillSelect, make } from "./dom.js";
import { DeepViewer, tileSource } from "./viewer.js";

const holder = byId("panes");
let panes = []; // {viewer, select, box}
let leader = null; // the pane under the hand; the others follow

/** Only the leader is followed: if all followed all, an echo of an older view would pull it back. */
function follow(from) {
  if (from !== leader) return;
  for (const pane of panes) if (pane !== from) pane.viewer.lookLike(from.viewer);
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

/** `told(viewer)` is called whenever the view of the pane in the lead changes. */
export async function showPanes(job, pictures, count, like, told) {
  holder.hidden = false;
  holder.dataset.count = count;
  while (panes.length > count) panes.pop().box.remove();
  while (panes.length < count) panes.push(makePane(panes.length));
  leader = panes[0];
  const frames = pictures.filter(({ name }) => name.startsWith("frame-"));
  const first = ["result", "average", frames[0]?.name, frames.at(-1)?.name];
  const shown = panes.map(async (pane, index) => {
    const choices = pictures.map(({ name, title }) => [name, title]);
    fillSelect(pane.select, choices, pane.job === job.id ? pane.select.value : first[index]);
    pane.job = job.id;
    const load = () => {
      const picture = pictures.find(({ name }) => name === pane.select.value);
      pane.viewer.describe(picture.title);
      return pane.viewer.layer("picture", tileSource(job, picture, picture.name === "result" ? job.retouched : 0));
    };
    pane.select.onchange = load;
    pane.told = told;
    await load();
    pane.viewer.lookLike(like);
  });
  await Promise.all(shown);
}

export function hidePanes(like) {
  if (holder.hidden) return;
  like.lookLike(leadingViewer());
  holder.hidden = true;
  for (const pane of panes) pane.viewer.clear();
}
