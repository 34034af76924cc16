// Before and after: one picture lies over the other and is cut off at a line that can be moved.

import { byId } from "./dom.js";

/* global OpenSeadragon */
const divider = byId("divider");
const area = byId("canvas-area");

let viewer = null;
let place = 0.5; // of the line, in widths of the viewer
let active = false;

/** The line stands still on the screen; where it cuts the picture changes with zoom and pan. */
function cut() {
  if (!active) return;
  for (const before of viewer.items("before")) {
    const size = before.getContentSize();
    const { x } = viewer.toPicture({ x: place * area.clientWidth, y: 0 });
    const width = Math.min(size.x, Math.max(0, x));
    // A clip of no width would mean no clip.
    before.setOpacity(width > 0 ? 1 : 0);
    if (width > 0) before.setClip(new OpenSeadragon.Rect(0, 0, width, size.y));
  }
}

function moveTo(where) {
  place = Math.min(1, Math.max(0, where));
  divider.style.left = `${place * 100}%`;
  divider.setAttribute("aria-valuenow", Math.round(place * 100));
  divider.setAttribute("aria-valuetext", `${Math.round(place * 100)} % before`);
  cut();
}

export async function showBefore(source, title) {
  active = Boolean(source);
  divider.hidden = !active;
  byId("tag-before").hidden = !active;
  byId("tag-after").hidden = !active;
  byId("tag-before").textContent = title ?? "";
  await viewer.layer("before", source, { rank: 1, opacity: 0 });
  moveTo(place);
}

export function startCompare(mainViewer) {
  viewer = mainViewer;
  viewer.on("viewport-change", cut);
  viewer.on("resize", () => requestAnimationFrame(cut));
  divider.addEventListener("pointerdown", (down) => {
    down.preventDefault();
    divider.focus({ focusVisible: false });
    divider.setPointerCapture(down.pointerId);
    const move = (event) => {
      const box = area.getBoundingClientRect();
      moveTo((event.clientX - box.left) / box.width);
    };
    divider.addEventListener("pointermove", move);
    divider.addEventListener("pointerup", () => divider.removeEventListener("pointermove", move), { once: true });
    divider.addEventListener("pointercancel", () => divider.removeEventListener("pointermove", move), { once: true });
  });
  divider.addEventListener("keydown", (event) => {
    const step = event.shiftKey ? 0.1 : 0.02;
    const places = { ArrowLeft: place - step, ArrowRight: place + step, Home: 0, End: 1, PageDown: place - 0.1, PageUp: place + 0.1 };
    if (!(event.key in places)) return;
    event.preventDefault();
    moveTo(places[event.key]);
  });
}
