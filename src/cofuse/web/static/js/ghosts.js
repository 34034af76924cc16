// Frames drawn out of sight, in the very view of the result: the brush takes their pixels, so that a
// stroke shows what it will bring before anything is sent.

import { byId, make } from "./dom.js";
import { DeepViewer, tileSource } from "./viewer.js";

const ghosts = new Map(); // frame -> its viewer

/** The canvas with frame number `frame`; made when first wanted. `drawn` is called as its tiles come. */
export function ghostCanvas(job, pictures, frame, viewer, drawn) {
  let ghost = ghosts.get(frame);
  if (!ghost) {
    const picture = pictures.find(({ name }) => name === `frame-${frame}`);
    if (!picture) return null;
    const box = make("div");
    byId("ghosts").append(box);
    ghost = new DeepViewer(box, "Frame");
    ghosts.set(frame, ghost);
    ghost.layer("frame", tileSource(job, picture)).then(() => ghost.take(exact(viewer)));
    ghost.on("update-viewport", drawn);
  }
  return ghost.osd.drawer.canvas ?? null;
}

/** Also on the way to the whole picture, where others would be there at once. */
const exact = (viewer) => ({ ...viewer.view(), fitted: false });

export function followWithGhosts(viewer) {
  for (const ghost of ghosts.values()) ghost.take(exact(viewer));
}

export function clearGhosts() {
  for (const ghost of ghosts.values()) ghost.destroy();
  ghosts.clear();
  byId("ghosts").replaceChildren();
}
