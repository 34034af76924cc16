// The frames of the stack as thumbnails: their order, by dragging and by buttons, and their removal.

import * as api from "./api.js";
import { announce, attempt, byId, iconButton, make } from "./dom.js";
import { goTo, on, setStack, state } from "./state.js";
import { frameCount, frameFacts, megapixels, plural, sentence } from "./words.js";

const list = byId("frames");

/** Put frame `id` at `place`: at once on the screen, then on the server. */
async function moveFrame(id, place, focus) {
  const stack = state.stack;
  const frames = stack.frames.filter((frame) => frame.id !== id);
  const moved = stack.frames.find((frame) => frame.id === id);
  const target = Math.max(0, Math.min(frames.length, place));
  frames.splice(target, 0, moved);
  if (frames.every((frame, index) => frame.id === stack.frames[index].id)) return;
  setStack({ ...stack, frames });
  announce(`${moved.name} is now frame ${target + 1} of ${frames.length}`);
  if (focus) list.querySelector(`[data-frame="${id}"] [data-move="${focus}"]`)?.focus();
  const changed = await attempt(() => api.changeStack(stack.id, { order: frames.map((frame) => frame.id) }));
  if (!changed) setStack(await api.stack(stack.id));
}

async function removeFrame(frame) {
  const place = state.stack.frames.indexOf(frame);
  const stack = await attempt(() => api.removeFrame(state.stack.id, frame.id));
  if (!stack) return;
  setStack(stack);
  announce(`${frame.name} removed, ${plural(stack.frames.length, "frame")} left`);
  // The focus was on a button that is gone.
  const next = list.children[Math.min(place, list.children.length - 1)];
  (next?.querySelector("[data-move=remove]") ?? byId("choose-files")).focus();
}

function card(frame, index, count) {
  const picture = make(
    "div",
    { class: "frame-picture" },
    make("img", { src: api.thumbnailUrl(state.stack.id, frame.id), alt: "", loading: "lazy", draggable: "false" }),
    make("span", { class: "frame-number", text: index + 1, "aria-hidden": "true" }),
  );
  const grip = make("span", { class: "icon-button frame-grip", "aria-hidden": "true" });
  grip.append(iconButton("grip", "").firstChild);
  const item = make(
    "li",
    { class: "frame", "data-frame": frame.id },
    picture,
    make(
      "div",
      { class: "frame-words" },
      make("p", { class: "frame-name", text: frame.name, title: frame.name }),
      ...frameFacts(frame).map((text) => make("p", { class: "frame-facts", text })),
    ),
    make(
      "div",
      { class: "frame-buttons", role: "group", "aria-label": `Frame ${index + 1}, ${frame.name}` },
      iconButton("earlier", `Move ${frame.name} earlier`, () => moveFrame(frame.id, index - 1, "earlier"), { "data-move": "earlier", "aria-disabled": index === 0 }),
      grip,
      iconButton("later", `Move ${frame.name} later`, () => moveFrame(frame.id, index + 1, "later"), { "data-move": "later", "aria-disabled": index === count - 1 }),
      iconButton("remove", `Remove ${frame.name}`, () => removeFrame(frame), { "data-move": "remove" }),
    ),
  );
  // A finger on the picture scrolls the page; only the grip is for dragging by touch.
  picture.addEventListener("pointerdown", (event) => event.pointerType !== "touch" && startDrag(event, item));
  grip.addEventListener("pointerdown", (event) => startDrag(event, item));
  return item;
}

const EDGE = 70; // so near to the edge a dragged frame scrolls the others

/** Scroll while a frame is held at the upper or lower edge of what is seen of the list. */
function scrollAt(y) {
  const stage = list.closest(".stage");
  // On a phone the whole page scrolls.
  const own = getComputedStyle(stage).overflowY !== "visible";
  const { top, bottom } = own ? stage.getBoundingClientRect() : { top: 0, bottom: window.innerHeight };
  const over = Math.min(0, y - top - EDGE) + Math.max(0, y - bottom + EDGE);
  (own ? stage : document.scrollingElement).scrollBy(0, over / 4);
}

/** Pointer events rather than the browser's drag and drop, which knows no fingers. */
function startDrag(down, item) {
  if (down.button !== 0) return;
  down.preventDefault();
  const catcher = down.currentTarget;
  catcher.setPointerCapture(down.pointerId);
  let target = null;
  let last = null; // where the pointer is, once it has moved far enough
  const clear = () => {
    for (const card of list.children) card.classList.remove("target-before", "target-after", "dragged");
  };
  const move = (event) => {
    if (Math.hypot(event.clientX - down.clientX, event.clientY - down.clientY) < 6 && !target) return;
    if (!last) requestAnimationFrame(scroll);
    last = event;
    clear();
    item.classList.add("dragged");
    const over = document.elementFromPoint(event.clientX, event.clientY)?.closest(".frame");
    target = null;
    if (!over || over === item) return;
    const box = over.getBoundingClientRect();
    const after = event.clientX > box.left + box.width / 2;
    over.classList.add(after ? "target-after" : "target-before");
    const order = [...list.children].filter((card) => card !== item);
    target = { place: order.indexOf(over) + (after ? 1 : 0) };
  };
  // A pointer that is held still moves over the frames, too, while they scroll.
  const scroll = () => {
    if (!last) return;
    scrollAt(last.clientY);
    move(last);
    requestAnimationFrame(scroll);
  };
  const end = (event) => {
    last = null;
    catcher.removeEventListener("pointermove", move);
    clear();
    if (target && event.type === "pointerup") moveFrame(item.dataset.frame, target.place);
  };
  catcher.addEventListener("pointermove", move);
  catcher.addEventListener("pointerup", end, { once: true });
  catcher.addEventListener("pointercancel", end, { once: true });
}

function show(stack) {
  const frames = stack?.frames ?? [];
  byId("stack-head").hidden = frames.length === 0;
  byId("try-sample").hidden = frames.length > 0;
  list.closest(".stage").classList.toggle("empty", frames.length === 0);
  byId("stack-problem").hidden = !stack?.problem;
  byId("stack-problem").textContent = stack?.problem ? sentence(stack.problem) : "";
  const keep = document.activeElement?.closest?.("[data-move]")?.dataset.move;
  const keepFrame = document.activeElement?.closest?.("[data-frame]")?.dataset.frame;
  list.replaceChildren(...frames.map((frame, index) => card(frame, index, frames.length)));
  if (keep) list.querySelector(`[data-frame="${keepFrame}"] [data-move="${keep}"]`)?.focus();
  if (frames.length === 0) return;
  if (document.activeElement !== byId("stack-name")) byId("stack-name").value = stack.name ?? "";
  const [first] = frames;
  byId("stack-facts").textContent = `${plural(frameCount(stack), "frame")} · ${megapixels(first.width, first.height)} each`;
}

export function startFrames() {
  on("stack", show);
  byId("stack-name").addEventListener("change", async (event) => {
    const stack = await attempt(() => api.changeStack(state.stack.id, { name: event.target.value.trim() }));
    if (stack) setStack(stack);
  });
  byId("new-stack").addEventListener("click", (event) => {
    event.preventDefault();
    setStack(null);
    goTo("new");
  });
}
