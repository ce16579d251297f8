// The same pictures without a graphics card: pixel by pixel, in plain loops. The page falls back on it.

import { pointSize } from "./webgl.js";

export class RasterRenderer {
  constructor() {
    this.canvas = document.createElement("canvas");
    this.tables = new WeakMap();
  }

  /** As the graphics card's: draw a field and return the canvas, whose upper left pixels it fills. */
  draw({ mesh, values, range, table, matrix, width, height }) {
    if (this.canvas.width !== width || this.canvas.height !== height) Object.assign(this.canvas, { width, height });
    const context = this.canvas.getContext("2d");
    const image = context.createImageData(width, height);
    const sheet = {
      width, height, colours: this.#packed(table), pixels: new Uint32Array(image.data.buffer),
      depths: mesh.dims === 3 ? new Float32Array(width * height).fill(Infinity) : null,
    };
    const places = projected(mesh, matrix, width, height);
    const shades = new Float32Array(mesh.count);
    const scale = 255 / (range[1] - range[0]);
    for (let k = 0; k < mesh.count; k += 1) shades[k] = (values[k] - range[0]) * scale;
    if (mesh.triangles) triangles(sheet, mesh.triangles, places, shades);
    else discs(sheet, mesh.count, places, shades, pointSize(mesh, width, height) / 2);
    context.putImageData(image, 0, 0);
    return this.canvas;
  }

  /** A map of colours with all bytes of a colour in one number. */
  #packed(table) {
    if (!this.tables.has(table)) this.tables.set(table, new Uint32Array(table.slice().buffer));
    return this.tables.get(table);
  }
}

/** Column, row and depth of every point. */
function projected(mesh, m, width, height) {
  const { positions, dims, count } = mesh;
  const out = new Float32Array(3 * count);
  for (let k = 0; k < count; k += 1) {
    const x = positions[k * dims];
    const y = positions[k * dims + 1];
    const z = dims === 3 ? positions[k * dims + 2] : 0;
    out[3 * k] = ((m[0] * x + m[4] * y + m[8] * z + m[12] + 1) / 2) * width;
    out[3 * k + 1] = ((1 - m[1] * x - m[5] * y - m[9] * z - m[13]) / 2) * height;
    out[3 * k + 2] = m[2] * x + m[6] * y + m[10] * z + m[14];
  }
  return out;
}

/** Colour one pixel, if nothing nearer is there; NaN has no colour. */
function put(sheet, place, shade, depth, light) {
  if (!(shade === shade) || (sheet.depths && depth >= sheet.depths[place])) return;
  if (sheet.depths) sheet.depths[place] = depth;
  const colour = sheet.colours[shade <= 0 ? 0 : shade >= 255 ? 255 : (shade + 0.5) | 0];
  sheet.pixels[place] = light === 1 ? colour : dimmed(colour, light);
}

/** Red, green and blue times the light. */
function dimmed(colour, light) {
  return ((colour & 0xff) * light) | ((((colour >> 8) & 0xff) * light) << 8) | ((((colour >> 16) & 0xff) * light) << 16) | 0xff000000;
}

function triangles(sheet, corners, places, shades) {
  const { width, height, depths } = sheet;
  for (let t = 0; t < corners.length; t += 3) {
    const [a, b, c] = [corners[t], corners[t + 1], corners[t + 2]];
    const [ax, ay, bx, by, cx, cy] = [places[3 * a], places[3 * a + 1], places[3 * b], places[3 * b + 1], places[3 * c], places[3 * c + 1]];
    // Pixels whose middles can lie in the triangle.
    const left = Math.max(0, Math.ceil(Math.min(ax, bx, cx) - 0.5));
    const right = Math.min(width - 1, Math.floor(Math.max(ax, bx, cx) - 0.5));
    const top = Math.max(0, Math.ceil(Math.min(ay, by, cy) - 0.5));
    const bottom = Math.min(height - 1, Math.floor(Math.max(ay, by, cy) - 0.5));
    if (left > right || top > bottom) continue;
    const area = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay);
    if (!(area !== 0)) continue;
    const [az, bz, cz] = [places[3 * a + 2], places[3 * b + 2], places[3 * c + 2]];
    const light = depths ? lightOf(bx - ax, by - ay, bz - az, cx - ax, cy - ay, cz - az, width, height) : 1;
    // The weights of the second and third corner, and their steps from pixel to pixel.
    const [second10, second01] = [(cy - ay) / area, -(cx - ax) / area];
    const [third10, third01] = [-(by - ay) / area, (bx - ax) / area];
    for (let row = top; row <= bottom; row += 1) {
      const y = row + 0.5 - ay;
      for (let column = left; column <= right; column += 1) {
        const x = column + 0.5 - ax;
        const second = second10 * x + second01 * y;
        const third = third10 * x + third01 * y;
        const first = 1 - second - third;
        if (first < -1e-6 || second < -1e-6 || third < -1e-6) continue;
        const shade = first * shades[a] + second * shades[b] + third * shades[c];
        put(sheet, row * width + column, shade, first * az + second * bz + third * cz, light);
      }
    }
  }
}

/** How much a triangle faces the eye, with lengths as in the graphics card's picture. */
function lightOf(ux, uy, uz, vx, vy, vz, width, height) {
  const [sx, sy] = [2 / width, 2 / height];
  const nx = sy * (uy * vz - uz * vy);
  const ny = sx * (uz * vx - ux * vz);
  const nz = sx * sy * (ux * vy - uy * vx);
  return 0.55 + (0.45 * Math.abs(nz)) / (Math.hypot(nx, ny, nz) || 1);
}

function discs(sheet, count, places, shades, radius) {
  const { width, height } = sheet;
  for (let k = 0; k < count; k += 1) {
    const [x, y, depth] = [places[3 * k], places[3 * k + 1], places[3 * k + 2]];
    for (let row = Math.max(0, Math.ceil(y - radius - 0.5)); row <= Math.min(height - 1, y + radius - 0.5); row += 1) {
      for (let column = Math.max(0, Math.ceil(x - radius - 0.5)); column <= Math.min(width - 1, x + radius - 0.5); column += 1) {
        if (Math.hypot(column + 0.5 - x, row + 0.5 - y) <= radius) put(sheet, row * width + column, shades[k], depth, 1);
      }
    }
  }
}
