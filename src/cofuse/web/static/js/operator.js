// The learned filters of the preset fast as small pictures, and those that respond at a pixel.

import * as api from "./api.js";
import { attempt, byId, make } from "./dom.js";

const list = byId("filters");
let loaded = false;
let firing = [];

function filterPicture(values, side) {
  const canvas = make("canvas", { width: side, height: side, "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(side, side);
  values.flat().forEach((value, index) => {
    pixels.data.set([value, value, value, 255], index * 4);
  });
  context.putImageData(pixels, 0, 0);
  return canvas;
}

export async function showOperator() {
  if (loaded) return;
  loaded = true;
  const operator = await attempt(() => api.operator());
  if (!operator) {
    loaded = false;
    return;
  }
  list.replaceChildren(
    ...operator.filters.map((values, index) =>
      make("li", { "data-filter": index, title: `Filter ${index + 1}` }, make("span", { class: "visually-hidden", text: `Filter ${index + 1}` }), filterPicture(values, operator.side)),
    ),
  );
  byId("operator-title").textContent = `Learned filters of the preset fast · ${operator.name}`;
  mark();
}

function mark() {
  list.classList.toggle("fired", firing.length > 0);
  for (const item of list.children) {
    const index = Number(item.dataset.filter);
    const fired = firing.find((filter) => filter.index === index);
    item.classList.toggle("fires", Boolean(fired));
    item.title = fired ? `Filter ${index + 1}: ${fired.strength.toPrecision(3)}` : `Filter ${index + 1}`;
  }
  byId("operator-words").textContent = firing.length
    ? `The strongest here: ${firing.slice(0, 4).map(({ index }) => index + 1).join(", ")}.`
    : "Click a pixel to see which of them respond there.";
}

export function highlightFilters(filters) {
  firing = filters;
  mark();
}
