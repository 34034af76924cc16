// How strokes look before they are applied: the pixels of their frames, with the brush's soft edge.

const RINGS = 8; // steps of a soft edge

/** How much of the frame is taken at `share` of the radius: all inside, none at the rim. */
function strength(share, softness) {
  const core = 1 - softness;
  if (share <= core) return 1;
  const t = (1 - share) / (1 - core);
  return t * t * (3 - 2 * t);
}

/**
 * Draw a stroke's mask: the path again and again, ever narrower. Each line adds just so much that the
 * sum at every distance is the brush's strength there; within a line nothing adds up, however it turns.
 */
function drawMask(context, stroke, place, scale) {
  context.lineCap = "round";
  context.lineJoin = "round";
  const rings = stroke.softness > 0 ? RINGS : 1;
  let sum = 0;
  for (let ring = 0; ring < rings; ring++) {
    const outer = 1 - (ring / rings) * stroke.softness;
    const wanted = rings === 1 ? 1 : strength(outer - stroke.softness / rings, stroke.softness);
    const alpha = sum >= 1 ? 0 : 1 - (1 - wanted) / (1 - sum);
    sum = wanted;
    context.lineWidth = 2 * stroke.radius * outer * scale;
    context.strokeStyle = `rgb(0 0 0 / ${alpha})`;
    context.beginPath();
    stroke.points.forEach(([x, y], index) => {
      const point = place(x, y);
      if (index === 0) context.moveTo(point.x, point.y);
      // A path of one point would not be drawn.
      context.lineTo(point.x + (index === 0 ? 0.01 : 0), point.y);
    });
    context.stroke();
  }
}

/** Neighbours of the same frame are drawn at once. */
function groups(strokes) {
  const all = [];
  for (const stroke of strokes) {
    if (all.length && all.at(-1)[0].frame === stroke.frame) all.at(-1).push(stroke);
    else all.push([stroke]);
  }
  return all;
}

const scratch = document.createElement("canvas");

/**
 * Paint `strokes` on `canvas`. `place(x, y)` maps the picture to the canvas, `scale` is its size,
 * `frameCanvas(frame)` the frame drawn in the same view (or null), `tint` a colour instead of it.
 */
export function paintStrokes(canvas, strokes, { place, scale, frameCanvas, tint }) {
  const ratio = window.devicePixelRatio;
  const width = Math.round(canvas.clientWidth * ratio);
  const height = Math.round(canvas.clientHeight * ratio);
  for (const each of [canvas, scratch]) {
    if (each.width !== width) each.width = width;
    if (each.height !== height) each.height = height;
  }
  const context = canvas.getContext("2d");
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, width, height);
  const mask = scratch.getContext("2d");
  for (const group of groups(strokes)) {
    mask.setTransform(1, 0, 0, 1, 0, 0);
    mask.globalCompositeOperation = "source-over";
    mask.clearRect(0, 0, width, height);
    mask.setTransform(ratio, 0, 0, ratio, 0, 0);
    for (const stroke of group) drawMask(mask, stroke, place, scale);
    mask.setTransform(1, 0, 0, 1, 0, 0);
    mask.globalCompositeOperation = "source-in";
    const pixels = frameCanvas(group[0].frame);
    if (pixels && !tint) mask.drawImage(pixels, 0, 0, width, height);
    else {
      mask.fillStyle = tint ?? "rgb(128 128 128 / 60%)";
      mask.fillRect(0, 0, width, height);
    }
    context.drawImage(scratch, 0, 0);
  }
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/** The ring under the pointer: the brush's reach, and inside it what it takes whole. */
export function drawRing(context, { x, y }, radius, softness) {
  for (const [width, colour] of [[3, "rgb(0 0 0 / 70%)"], [1.2, "#fff"]]) {
    context.lineWidth = width;
    context.strokeStyle = colour;
    context.beginPath();
    context.arc(x, y, Math.max(1.5, radius), 0, 2 * Math.PI);
    context.stroke();
  }
  if (softness === 0 || radius * (1 - softness) < 3) return;
  context.setLineDash([3, 4]);
  context.lineWidth = 1;
  context.beginPath();
  context.arc(x, y, radius * (1 - softness), 0, 2 * Math.PI);
  context.stroke();
  context.setLineDash([]);
}
