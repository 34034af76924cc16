// The maps that come with a result, laid over it with as much of them as is wanted.

import { byId, draw, make } from "./dom.js";
import { tileSource } from "./viewer.js";

// What each map is called, and what the ends of its colours mean.
const MAPS = {
  source: { title: "Source frame", ramp: "colours", ends: (job) => ["frame 1", `frame ${job.result.frames}`] },
  confidence: { title: "Confidence", ramp: "greys", ends: () => ["hardly mattered", "clearly the sharpest"] },
  depth: { title: "Depth", ramp: "colours", ends: (job) => ["frame 1", `frame ${job.result.frames}`] },
};

let viewer = null;
const chosen = new Map(); // name -> opacity, kept from one result to the next

async function show(job, picture, opacity) {
  const items = viewer.items(picture.name);
  if (opacity === null) await viewer.layer(picture.name, null);
  else if (items.length) items.forEach((item) => item.setOpacity(opacity));
  else await viewer.layer(picture.name, tileSource(job, picture), { rank: 2, opacity });
}

function row(job, picture) {
  const { title } = MAPS[picture.name];
  const box = make("input", { type: "checkbox", id: `overlay-${picture.name}` });
  const slider = make("input", { type: "range", min: 0, max: 100, value: 60, "aria-label": `Opacity of ${title.toLowerCase()}` });
  const remembered = chosen.get(picture.name);
  if (remembered !== undefined) {
    box.checked = true;
    slider.value = remembered * 100;
  }
  const change = () => {
    slider.disabled = !box.checked;
    const opacity = box.checked ? Number(slider.value) / 100 : null;
    if (opacity === null) chosen.delete(picture.name);
    else chosen.set(picture.name, opacity);
    showLegend(job);
    return show(job, picture, opacity);
  };
  box.addEventListener("change", change);
  slider.addEventListener("input", change);
  change();
  return make("div", { class: "overlay-row" }, box, make("label", { for: box.id, text: title }), slider);
}

function showLegend(job) {
  const legend = byId("legend");
  const kinds = new Map([...chosen.keys()].map((name) => [MAPS[name].ramp, MAPS[name].ends(job)]));
  legend.hidden = kinds.size === 0;
  legend.replaceChildren(
    ...[...kinds].map(([ramp, [low, high]]) =>
      make("div", { class: "ramp-row" }, make("div", { class: `ramp ${ramp}` }), make("p", {}, make("span", { text: low }), make("span", { text: high }))),
    ),
  );
}

/** The rows for the maps that this result has. */
export function showOverlays(job, pictures) {
  const maps = pictures.filter(({ name }) => name in MAPS);
  byId("overlay-rows").replaceChildren(...maps.map((picture) => row(job, picture)));
  if (maps.length === 0) byId("overlay-rows").append(make("p", { class: "quiet", text: "This result has no maps." }));
}

export function startOverlays(mainViewer) {
  viewer = mainViewer;
}

/** The share of pixels at each brightness, one translucent area a channel. */
export function showHistogram(histogram) {
  const width = 256;
  const height = 84;
  const channels = Object.entries(histogram.channels);
  // The ends are often far above all else, and would flatten the rest.
  const inner = channels.flatMap(([, counts]) => counts.slice(1, -1));
  const top = Math.max(1, ...inner) ** 0.5;
  const areas = channels.map(([name, counts]) => {
    const points = counts.map((count, index) => `${(index / (counts.length - 1)) * width},${height - Math.min(1, count ** 0.5 / top) * (height - 4)}`);
    return draw("polygon", { class: `channel histogram-${name}`, points: `0,${height} ${points.join(" ")} ${width},${height}` });
  });
  byId("histogram").replaceChildren(
    draw(
      "svg",
      { viewBox: `0 0 ${width} ${height + 1}`, role: "img", "aria-label": "Histogram of the result, from black on the left to white on the right" },
      ...areas,
      draw("line", { class: "baseline", x1: 0, x2: width, y1: height, y2: height }),
    ),
  );
}
