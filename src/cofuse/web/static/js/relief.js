// The depth as a relief to be turned in the hand: a grid of triangles, in plain WebGL.

import { byId } from "./dom.js";
import { multiply, perspective, rotation, scaling, translation } from "./matrices.js";

const canvas = byId("relief");

const VERTEX = `#version 300 es
in vec3 place; in vec3 colour; in vec3 normal;
uniform mat4 camera; uniform float height;
out vec3 shade;
void main() {
  gl_Position = camera * vec4(place.xy, place.z * height, 1.0);
  // The normal leans the more, the higher the relief is drawn.
  vec3 n = normalize(vec3(normal.xy * height, 1.0));
  shade = colour * (0.55 + 0.5 * max(0.0, dot(n, normalize(vec3(-0.4, 0.5, 0.75)))));
}`;
const FRAGMENT = `#version 300 es
precision mediump float;
in vec3 shade; out vec4 pixel;
void main() { pixel = vec4(shade, 1.0); }`;

const START = { turn: -0.3, tilt: -0.6, distance: 1.4 };
let gl = null;
let program = null;
let count = 0;
let view = { ...START };
let drawn = false;

function compile() {
  gl = canvas.getContext("webgl2", { antialias: true, alpha: true });
  if (!gl) throw new Error("this browser has no WebGL 2, which the relief needs");
  program = gl.createProgram();
  for (const [kind, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(program));
  gl.useProgram(program);
  gl.enable(gl.DEPTH_TEST);
}

function attribute(name, values, type, normalised) {
  gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
  gl.bufferData(gl.ARRAY_BUFFER, values, gl.STATIC_DRAW);
  const where = gl.getAttribLocation(program, name);
  gl.enableVertexAttribArray(where);
  gl.vertexAttribPointer(where, 3, type, normalised, 0, 0);
}

/** Places in a box of longest side 1, heights as they are, and slopes for the light. */
function surface({ columns, rows, heights }) {
  const side = 1 / (Math.max(columns, rows) - 1);
  const places = new Float32Array(columns * rows * 3);
  const normals = new Float32Array(columns * rows * 3);
  const at = (column, row) =>
    heights[Math.min(rows - 1, Math.max(0, row)) * columns + Math.min(columns - 1, Math.max(0, column))];
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const start = (row * columns + column) * 3;
      places.set([(column - (columns - 1) / 2) * side, ((rows - 1) / 2 - row) * side, at(column, row) - 0.5], start);
      const slopeX = (at(column + 1, row) - at(column - 1, row)) / (2 * side);
      const slopeY = (at(column, row - 1) - at(column, row + 1)) / (2 * side);
      normals.set([-slopeX, -slopeY, 1], start);
    }
  }
  const triangles = new Uint32Array((columns - 1) * (rows - 1) * 6);
  let next = 0;
  for (let row = 0; row < rows - 1; row++) {
    for (let column = 0; column < columns - 1; column++) {
      const a = row * columns + column;
      triangles.set([a, a + columns, a + 1, a + 1, a + columns, a + columns + 1], next);
      next += 6;
    }
  }
  return { places, normals, triangles };
}

function draw() {
  drawn = false;
  if (!gl || canvas.hidden || count === 0) return;
  const ratio = window.devicePixelRatio;
  canvas.width = Math.round(canvas.clientWidth * ratio);
  canvas.height = Math.round(canvas.clientHeight * ratio);
  gl.viewport(0, 0, canvas.width, canvas.height);
  gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
  const wide = canvas.width / Math.max(1, canvas.height);
  const camera = [perspective(0.7, wide, 0.05, 20), translation(0, 0, -view.distance), scaling(Math.min(1, wide)), rotation("x", view.tilt), rotation("z", view.turn)].reduce(multiply);
  gl.uniformMatrix4fv(gl.getUniformLocation(program, "camera"), false, camera);
  gl.uniform1f(gl.getUniformLocation(program, "height"), Number(byId("relief-height").value) / 100);
  gl.drawElements(gl.TRIANGLES, count, gl.UNSIGNED_INT, 0);
}

function redraw() {
  if (drawn) return;
  drawn = true;
  requestAnimationFrame(draw);
}

function turnBy(turn, tilt) {
  view.turn += turn;
  view.tilt = Math.min(0, Math.max(-1.5, view.tilt + tilt));
  redraw();
}

export function zoomRelief(factor) {
  view.distance = Math.min(6, Math.max(0.5, view.distance / factor));
  redraw();
}

export function resetRelief() {
  view = { ...START };
  redraw();
}

/** Show {columns, rows, heights, colours (base64 of RGB)}. */
export function showRelief(data) {
  const points = data.columns * data.rows;
  const colours = Uint8Array.from(window.atob(data.colours), (letter) => letter.charCodeAt(0));
  // WebGL would draw nonsense and say nothing.
  if (data.heights.length !== points || colours.length !== 3 * points) throw new Error("heights and colours of the relief do not fit together");
  if (!gl) compile();
  const { places, normals, triangles } = surface(data);
  attribute("place", places, gl.FLOAT, false);
  attribute("normal", normals, gl.FLOAT, false);
  attribute("colour", colours, gl.UNSIGNED_BYTE, true);
  gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, gl.createBuffer());
  gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, triangles, gl.STATIC_DRAW);
  count = triangles.length;
  redraw();
}

export function startRelief() {
  const fingers = new Map();
  canvas.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, event);
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const last = fingers.get(event.pointerId);
    if (!last) return;
    const others = [...fingers.values()].filter((finger) => finger.pointerId !== event.pointerId);
    if (others.length === 1) {
      const [other] = others;
      const apart = (finger) => Math.hypot(finger.clientX - other.clientX, finger.clientY - other.clientY);
      zoomRelief(apart(event) / Math.max(1, apart(last)));
    } else turnBy((event.clientX - last.clientX) * 0.008, (event.clientY - last.clientY) * 0.008);
    fingers.set(event.pointerId, event);
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => fingers.delete(event.pointerId));
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoomRelief(event.deltaY < 0 ? 1.12 : 1 / 1.12);
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const actions = {
      ArrowLeft: () => turnBy(-0.1, 0), ArrowRight: () => turnBy(0.1, 0),
      ArrowUp: () => turnBy(0, -0.1), ArrowDown: () => turnBy(0, 0.1),
      "+": () => zoomRelief(1.15), "=": () => zoomRelief(1.15), "-": () => zoomRelief(1 / 1.15), 0: resetRelief,
    };
    if (!(event.key in actions)) return;
    event.preventDefault();
    actions[event.key]();
  });
  byId("relief-height").addEventListener("input", redraw);
  new ResizeObserver(redraw).observe(canvas);
}
