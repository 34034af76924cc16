// One pixel: which frame it came from, and by which activity where that chose it.

import * as api from "./api.js";
import { byId, draw, factRow, make, toast } from "./dom.js";

/* global OpenSeadragon */
const BARS_UP_TO = 48; // more frames than that become a curve
let viewer = null;
let job = null;
let asked = 0;
const mark = make("div", { class: "pixel-mark" });

function activityChart(activity, chosen, names) {
  const width = 296;
  const height = 92;
  const top = Math.max(...activity, 1e-12);
  const high = (value) => (value / top) * (height - 8);
  const step = width / activity.length;
  const parts = [];
  if (activity.length <= BARS_UP_TO) {
    activity.forEach((value, index) => {
      const bar = draw("rect", {
        class: index === chosen ? "bar chosen" : "bar",
        x: index * step + step * 0.12,
        width: step * 0.76,
        y: height - Math.max(1, high(value)),
        height: Math.max(1, high(value)),
        rx: Math.min(2, step * 0.2),
      });
      bar.append(draw("title", { text: `${names[index] ?? index + 1}: ${value.toPrecision(3)}` }));
      parts.push(bar);
    });
  } else {
    const points = activity.map((value, index) => `${(index + 0.5) * step},${height - high(value)}`);
    parts.push(draw("polyline", { class: "curve", points: points.join(" ") }));
    parts.push(draw("circle", { class: "dot chosen", cx: (chosen + 0.5) * step, cy: height - high(activity[chosen]), r: 4 }));
  }
  parts.push(draw("line", { class: "baseline", x1: 0, x2: width, y1: height, y2: height }));
  parts.push(draw("text", { x: 0, y: height + 14, text: "frame 1" }));
  parts.push(draw("text", { x: width, y: height + 14, "text-anchor": "end", text: activity.length }));
  const best = activity.indexOf(Math.max(...activity));
  const label = `Activity of ${activity.length} frames; largest in frame ${best + 1}, chosen frame ${chosen + 1}`;
  return draw("svg", { viewBox: `0 0 ${width} ${height + 18}`, role: "img", "aria-label": label }, ...parts);
}

/** The pixel's colour on the screen. */
function swatch(colour) {
  const patch = make("span", { class: "swatch" });
  patch.style.background = `rgb(${colour.join(" ")})`;
  return patch;
}

const number = (value) => (Number.isInteger(value) ? String(value) : value.toPrecision(4));

function show(facts) {
  byId("pixel-facts").hidden = false;
  byId("pixel-frame").textContent = `${facts.painted ? "Painted from frame" : "Frame"} ${facts.frame + 1} · ${facts.frame_name}`;
  const colour = make("span", {}, swatch(facts.colour), facts.value.map(number).join(" · "));
  const rows = [factRow("Place", `${facts.x}, ${facts.y}`), factRow("Value", colour)];
  if (facts.confidence !== null && facts.confidence !== undefined) rows.push(factRow("Confidence", `${Math.round(facts.confidence * 100)} %`));
  if (facts.depth !== null && facts.depth !== undefined) rows.push(factRow("Depth", `frame ${(facts.depth + 1).toFixed(1)}`));
  byId("pixel-table").tBodies[0].replaceChildren(...rows);
  byId("activity-group").hidden = !facts.activity;
  byId("activity").replaceChildren(...(facts.activity ? [activityChart(facts.activity, facts.frame, job.result.names)] : []));
}

export async function inspect(x, y) {
  const { width, height } = job.result;
  const column = Math.floor(x);
  const row = Math.floor(y);
  if (!(column >= 0 && row >= 0 && column < width && row < height)) return;
  byId("pixel-x").value = column;
  byId("pixel-y").value = row;
  placeMark(column, row);
  const turn = ++asked;
  try {
    const facts = await api.pixel(job.id, column, row);
    if (turn === asked) show(facts);
  } catch (error) {
    if (turn === asked) toast(error.message);
  }
}

function placeMark(column, row) {
  const base = viewer.base();
  if (!base) return;
  const location = base.imageToViewportCoordinates(new OpenSeadragon.Point(column + 0.5, row + 0.5));
  viewer.osd.removeOverlay(mark);
  viewer.osd.addOverlay({ element: mark, location, placement: OpenSeadragon.Placement.CENTER });
}

/** The ring stands in the way of everything but questions about pixels. */
export function showMark(shown) {
  mark.hidden = !shown;
}

/** Another result is shown: what was known of a pixel is no longer true. */
export function resetInspect(newJob) {
  if (job?.id !== newJob.id) {
    asked += 1;
    byId("pixel-facts").hidden = true;
    byId("pixel-x").value = "";
    byId("pixel-y").value = "";
    viewer.osd.removeOverlay(mark);
  }
  job = newJob;
  byId("pixel-x").max = job.result.width - 1;
  byId("pixel-y").max = job.result.height - 1;
}

export function startInspect(mainViewer) {
  viewer = mainViewer;
  byId("pixel-form").addEventListener("submit", (event) => {
    event.preventDefault();
    inspect(Number(byId("pixel-x").value), Number(byId("pixel-y").value));
  });
}
