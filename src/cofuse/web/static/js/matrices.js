// 4 × 4 matrices, column by column, as WebGL wants them.

export function multiply(a, b) {
  const product = new Float32Array(16);
  for (let column = 0; column < 4; column++) {
    for (let row = 0; row < 4; row++) {
      for (let k = 0; k < 4; k++) product[column * 4 + row] += a[k * 4 + row] * b[column * 4 + k];
    }
  }
  return product;
}

/** `angle` is the height of the view in radians, `wide` its width over its height. */
export function perspective(angle, wide, near, far) {
  const f = 1 / Math.tan(angle / 2);
  const depth = 1 / (near - far);
  return new Float32Array([f / wide, 0, 0, 0, 0, f, 0, 0, 0, 0, (far + near) * depth, -1, 0, 0, 2 * far * near * depth, 0]);
}

export const translation = (x, y, z) => new Float32Array([1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, x, y, z, 1]);

export const scaling = (s) => new Float32Array([s, 0, 0, 0, 0, s, 0, 0, 0, 0, s, 0, 0, 0, 0, 1]);

export function rotation(axis, angle) {
  const c = Math.cos(angle);
  const s = Math.sin(angle);
  return axis === "x"
    ? new Float32Array([1, 0, 0, 0, 0, c, s, 0, 0, -s, c, 0, 0, 0, 0, 1])
    : new Float32Array([c, s, 0, 0, -s, c, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]);
}
