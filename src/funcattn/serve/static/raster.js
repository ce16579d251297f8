// The same pictures without a graphics card: the obvious way, pixel by pixel. The page falls back on it.

import { pointSize } from "./webgl.js";

export class RasterRenderer {
  constructor() {
    this.canvas = document.createElement("canvas");
  }

  draw({ mesh, values, range, table, matrix, width, height }) {
    this.canvas.width = width;
    this.canvas.height = height;
    const context = this.canvas.getContext("2d");
    const image = context.createImageData(width, height);
    const paint = painter(image, { table, depths: mesh.dims === 3 ? new Float32Array(width * height).fill(Infinity) : null });
    const corners = projected(mesh, matrix, width, height);
    const colours = Float32Array.from(values, (value) => (value - range[0]) / (range[1] - range[0]));
    if (!mesh.triangles) {
      const radius = pointSize(mesh, width, height) / 2;
      for (let k = 0; k < mesh.count; k += 1) disc(paint, corners.subarray(3 * k, 3 * k + 3), colours[k], radius, width, height);
    } else {
      for (let t = 0; t < mesh.triangles.length; t += 3) {
        triangle(paint, mesh.triangles.subarray(t, t + 3), corners, colours, mesh.dims === 3, width, height);
      }
    }
    context.putImageData(image, 0, 0);
    return this.canvas;
  }
}

/** x and y in pixels and the depth of every point. */
function projected(mesh, m, width, height) {
  const { positions, dims, count } = mesh;
  const out = new Float32Array(3 * count);
  for (let k = 0; k < count; k += 1) {
    const [x, y, z] = [positions[k * dims], positions[k * dims + 1], dims === 3 ? positions[k * dims + 2] : 0];
    out[3 * k] = ((m[0] * x + m[4] * y + m[8] * z + m[12] + 1) / 2) * width;
    out[3 * k + 1] = ((1 - m[1] * x - m[5] * y - m[9] * z - m[13]) / 2) * height;
    out[3 * k + 2] = m[2] * x + m[6] * y + m[10] * z + m[14];
  }
  return out;
}

/** Colours one pixel, if nothing nearer is there. */
function painter(image, { table, depths }) {
  return (column, row, colour, depth, light) => {
    const place = row * image.width + column;
    if (Number.isNaN(colour) || (depths && depth >= depths[place])) return;
    if (depths) depths[place] = depth;
    const entry = 4 * Math.round(255 * Math.min(1, Math.max(0, colour)));
    for (let c = 0; c < 3; c += 1) image.data[4 * place + c] = light * table[entry + c];
    image.data[4 * place + 3] = 255;
  };
}

function triangle(paint, [a, b, c], corners, colours, shaded, width, height) {
  const [ax, ay, az] = corners.subarray(3 * a, 3 * a + 3);
  const [bx, by, bz] = corners.subarray(3 * b, 3 * b + 3);
  const [cx, cy, cz] = corners.subarray(3 * c, 3 * c + 3);
  const area = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay);
  if (!(Math.abs(area) > 0)) return;
  const light = shaded ? lightOf([bx - ax, by - ay, bz - az], [cx - ax, cy - ay, cz - az], width, height) : 1;
  const rows = [Math.max(0, Math.ceil(Math.min(ay, by, cy) - 0.5)), Math.min(height - 1, Math.floor(Math.max(ay, by, cy) - 0.5))];
  const columns = [Math.max(0, Math.ceil(Math.min(ax, bx, cx) - 0.5)), Math.min(width - 1, Math.floor(Math.max(ax, bx, cx) - 0.5))];
  for (let row = rows[0]; row <= rows[1]; row += 1) {
    for (let column = columns[0]; column <= columns[1]; column += 1) {
      const [x, y] = [column + 0.5 - ax, row + 0.5 - ay];
      const second = (x * (cy - ay) - (cx - ax) * y) / area;
      const third = ((bx - ax) * y - x * (by - ay)) / area;
      const first = 1 - second - third;
      if (first < -1e-6 || second < -1e-6 || third < -1e-6) continue;
      const colour = first * colours[a] + second * colours[b] + third * colours[c];
      paint(column, row, colour, first * az + second * bz + third * cz, light);
    }
  }
}

/** How much a triangle faces the eye, in the units of the graphics card's picture. */
function lightOf(u, v, width, height) {
  const scale = [2 / width, 2 / height, 1];
  const [p, q] = [u, v].map((side) => side.map((length, axis) => length * scale[axis]));
  const normal = [p[1] * q[2] - p[2] * q[1], p[2] * q[0] - p[0] * q[2], p[0] * q[1] - p[1] * q[0]];
  return 0.55 + 0.45 * Math.abs(normal[2]) / (Math.hypot(...normal) || 1);
}

function disc(paint, [x, y, depth], colour, radius, width, height) {
  for (let row = Math.max(0, Math.ceil(y - radius - 0.5)); row <= Math.min(height - 1, y + radius); row += 1) {
    for (let column = Math.max(0, Math.ceil(x - radius - 0.5)); column <= Math.min(width - 1, x + radius); column += 1) {
      if (Math.hypot(column + 0.5 - x, row + 0.5 - y) <= radius) paint(column, row, colour, depth, 1);
    }
  }
}
