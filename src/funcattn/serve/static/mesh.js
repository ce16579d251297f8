// Points with or without triangles between them, and the value of a field at any place.

import { decode, rangeOf } from "./arrays.js";

/** The mesh of a reply; the previous one where it has the same points, so that the graphics card keeps it. */
export function meshOf(reply, previous = null) {
  const key = [reply.positions.data ?? JSON.stringify(reply.positions), reply.triangles?.data, String(reply.grid)];
  if (previous && key.every((part, k) => part === previous.key[k])) return previous;
  const { data, shape } = decode(reply.positions);
  const [count, dims] = shape.length === 1 ? [shape[0], 1] : shape.slice(-2);
  const triangles = reply.triangles ? Uint32Array.from(decode(reply.triangles).data)
    : reply.grid?.length === 2 ? gridTriangles(...reply.grid) : null;
  return new Mesh(dims, data.length === count * dims ? data : data.slice(0, count * dims), triangles, reply.grid ?? null, key);
}

/** Two triangles per cell of a grid in row-major order. */
export function gridTriangles(rows, columns) {
  const triangles = new Uint32Array(6 * (rows - 1) * (columns - 1));
  let k = 0;
  for (let i = 0; i + 1 < rows; i += 1) {
    for (let j = 0; j + 1 < columns; j += 1) {
      const first = i * columns + j;
      triangles.set([first, first + 1, first + columns, first + columns + 1, first + columns, first + 1], k);
      k += 6;
    }
  }
  return triangles;
}

export class Mesh {
  constructor(dims, positions, triangles = null, grid = null, key = []) {
    Object.assign(this, { dims, positions, triangles, grid, key, count: positions.length / dims });
    this.bounds = Array.from({ length: dims }, (_, axis) => rangeOf(this.#coordinates(axis, 1)));
  }

  #coordinates(axis, every) {
    const found = new Float32Array(Math.ceil(this.count / every));
    for (let k = 0; k < found.length; k += 1) found[k] = this.positions[k * every * this.dims + axis];
    return found;
  }

  /** The part of space that is worth looking at: without a far field that dwarfs it. */
  get focus() {
    const boxes = this.bounds.map(([low, high], axis) => {
      const sorted = this.#coordinates(axis, Math.ceil(this.count / 4096)).sort();
      const inner = [sorted[Math.floor(0.2 * sorted.length)], sorted[Math.floor(0.8 * sorted.length)]];
      return { inner, small: high - low > 8 * (inner[1] - inner[0]), whole: [low, high] };
    });
    if (this.dims !== 2 || !boxes.some((box) => box.small)) return this.bounds;
    // The same half width along both axes, so that shapes fill the picture.
    const half = 0.6 * Math.max(...boxes.filter((box) => box.small).map(({ inner }) => inner[1] - inner[0]));
    return boxes.map(({ inner }) => [(inner[0] + inner[1]) / 2 - half, (inner[0] + inner[1]) / 2 + half]);
  }

  /** The value of a field at a place: linear in its triangle, NaN outside; the nearest point's in a cloud. */
  at(values, x, y) {
    if (this.dims === 1) return this.#onLine(values, x);
    if (!this.triangles) {
      const nearest = this.nearest(x, y);
      return nearest < 0 ? NaN : values[nearest];
    }
    const found = this.#triangleAt(x, y);
    if (!found) return NaN;
    return found.reduce((sum, [vertex, weight]) => sum + weight * values[vertex], 0);
  }

  /** The point nearest to a place in the plane, -1 where there is none within a tenth of the width. */
  nearest(x, y) {
    let [best, least] = [-1, (0.1 * (this.bounds[0][1] - this.bounds[0][0])) ** 2];
    for (let k = 0; k < this.count; k += 1) {
      const apart = (this.positions[k * this.dims] - x) ** 2 + (this.positions[k * this.dims + 1] - y) ** 2;
      if (apart < least) [best, least] = [k, apart];
    }
    return best;
  }

  #onLine(values, x) {
    const at = this.positions;
    let [low, high] = [0, this.count - 1];
    if (x < at[low] || x > at[high]) return NaN;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (at[middle] <= x) low = middle;
      else high = middle;
    }
    const share = (x - at[low]) / (at[high] - at[low] || 1);
    return (1 - share) * values[low] + share * values[high];
  }

  #triangleAt(x, y) {
    this.bins ??= new Bins(this);
    const [first, last] = this.bins.range(x, y);
    for (let k = first; k < last; k += 1) {
      const corners = this.triangles.subarray(3 * this.bins.members[k], 3 * this.bins.members[k] + 3);
      const [ax, ay, bx, by, cx, cy] = [...corners].flatMap((v) => [this.positions[v * this.dims], this.positions[v * this.dims + 1]]);
      const area = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay);
      const second = ((x - ax) * (cy - ay) - (cx - ax) * (y - ay)) / area;
      const third = ((bx - ax) * (y - ay) - (x - ax) * (by - ay)) / area;
      if (second >= -1e-6 && third >= -1e-6 && second + third <= 1 + 1e-6) {
        return [[corners[0], 1 - second - third], [corners[1], second], [corners[2], third]];
      }
    }
    return null;
  }
}

/** Which triangles can hold a place: boxes with edges at quantiles, as fine as the mesh is there. */
class Bins {
  constructor(mesh) {
    const { positions, triangles, dims } = mesh;
    const side = Math.min(512, Math.max(1, Math.floor(Math.sqrt(triangles.length / 6))));
    this.side = side;
    this.edges = [0, 1].map((axis) => quantiles(mesh, axis, side));
    const count = triangles.length / 3;
    // The boxes of a triangle: first and last along both axes.
    const boxes = new Uint16Array(4 * count);
    for (let axis = 0; axis < 2; axis += 1) {
      const bins = Uint16Array.from({ length: mesh.count }, (_, k) => this.#bin(axis, positions[k * dims + axis]));
      for (let t = 0; t < count; t += 1) {
        const [a, b, c] = [bins[triangles[3 * t]], bins[triangles[3 * t + 1]], bins[triangles[3 * t + 2]]];
        boxes[4 * t + 2 * axis] = Math.min(a, b, c);
        boxes[4 * t + 2 * axis + 1] = Math.max(a, b, c);
      }
    }
    this.starts = new Uint32Array(side * side + 1);
    for (let t = 0; t < count; t += 1) {
      for (let i = boxes[4 * t]; i <= boxes[4 * t + 1]; i += 1) {
        for (let j = boxes[4 * t + 2]; j <= boxes[4 * t + 3]; j += 1) this.starts[i * side + j + 1] += 1;
      }
    }
    for (let bin = 0; bin < side * side; bin += 1) this.starts[bin + 1] += this.starts[bin];
    this.members = new Uint32Array(this.starts[side * side]);
    const next = this.starts.slice();
    for (let t = 0; t < count; t += 1) {
      for (let i = boxes[4 * t]; i <= boxes[4 * t + 1]; i += 1) {
        for (let j = boxes[4 * t + 2]; j <= boxes[4 * t + 3]; j += 1) this.members[next[i * side + j]++] = t;
      }
    }
  }

  /** The part of `members` to look through. */
  range(x, y) {
    const bin = this.#bin(0, x) * this.side + this.#bin(1, y);
    return [this.starts[bin], this.starts[bin + 1]];
  }

  #bin(axis, value) {
    const edges = this.edges[axis];
    let [low, high] = [0, this.side];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (edges[middle] <= value) low = middle;
      else high = middle;
    }
    return low;
  }
}

function quantiles(mesh, axis, parts) {
  const every = Math.max(1, Math.floor(mesh.count / 16384));
  const sorted = new Float32Array(Math.ceil(mesh.count / every));
  for (let k = 0; k < sorted.length; k += 1) sorted[k] = mesh.positions[k * every * mesh.dims + axis];
  sorted.sort();
  return Float32Array.from({ length: parts }, (_, k) => sorted[Math.floor((k / parts) * sorted.length)]);
}
