// What the surrogate or the solver said, as scalar fields by channel and frame.

import { decode } from "./arrays.js";
import { Mesh, meshOf } from "./mesh.js";

/** The scalar fields that a model gives: [{key, name, unit, labels, output, part}]; part: a component, or "size". */
export function channelsOf(model) {
  // Where the points go is seen in their places already: what else there is comes first.
  const outputs = [...model.outputs].sort((a, b) => (a.name === "position") - (b.name === "position"));
  return outputs.flatMap(({ name, unit, labels, channels = 1 }) => {
    if (channels === 1) return [{ key: name, name, unit, labels, output: name, part: 0 }];
    const axes = channels <= 3 ? ["x", "y", "z"] : Array.from({ length: channels }, (_, k) => k + 1);
    return [
      { key: `${name}-size`, name: `${name}, magnitude`, unit, output: name, part: "size" },
      ...Array.from({ length: channels }, (_, k) => ({ key: `${name}-${k}`, name: `${name} ${axes[k]}`, unit, output: name, part: k })),
    ];
  });
}

export class Result {
  constructor(reply, model, previous = null) {
    this.mesh = meshOf({ ...reply, positions: reply.places ?? reply.positions }, previous?.mesh);
    this.model = model;
    this.seconds = reply.seconds;
    this.warnings = reply.warnings ?? [];
    this.input = reply.values ? decode(reply.values) : null;
    this.sides = Object.fromEntries(["outputs", "lower", "upper"].map((side) => [side, reply[side] ? decodeAll(reply[side]) : null]));
    this.meshes = new Map();
    const { name, channels = 1 } = model.outputs[0];
    this.frames = this.sides.outputs[name].data.length / (this.mesh.count * channels);
  }

  get bands() {
    return Boolean(this.sides.lower && this.sides.upper);
  }

  /** A scalar field at the points; side: outputs, lower or upper. */
  values({ output, part }, frame = 0, side = "outputs") {
    const { data } = this.sides[side][output];
    const { channels = 1 } = this.model.outputs.find((each) => each.name === output);
    const n = this.mesh.count;
    const start = Math.min(frame, this.frames - 1) * n * channels;
    if (channels === 1) return data.subarray(start, start + n);
    if (part !== "size") return Float32Array.from({ length: n }, (_, k) => data[start + k * channels + part]);
    const rows = (from) => Array.from({ length: n }, (_, k) => from.subarray(start + k * channels, start + (k + 1) * channels));
    if (side === "outputs") return Float32Array.from(rows(data), (row) => Math.hypot(...row));
    // The shortest and the longest vector of a box.
    const [lows, highs] = ["lower", "upper"].map((end) => rows(this.sides[end][output].data));
    const end = side === "upper" ? (low, high) => Math.max(Math.abs(low), Math.abs(high)) : (low, high) => Math.max(0, low, -high);
    return Float32Array.from(lows, (row, k) => Math.hypot(...row.map((low, c) => end(low, highs[k][c]))));
  }

  /** Half the width of the band at the points. */
  halfWidth(channel, frame = 0) {
    const [low, high] = ["lower", "upper"].map((side) => this.values(channel, frame, side));
    return high.map((value, k) => (value - low[k]) / 2);
  }

  /** The mesh of a frame: where the points are then, if the model says that. */
  meshAt(frame) {
    const place = this.model.outputs.find((each) => each.name === "position" && each.channels === this.mesh.dims);
    if (!place) return this.mesh;
    if (!this.meshes.has(frame)) {
      const { dims, count, triangles, grid } = this.mesh;
      const start = frame * count * dims;
      const moved = this.sides.outputs.position.data.subarray(start, start + count * dims);
      this.meshes.set(frame, new Mesh(dims, moved, triangles, grid));
    }
    return this.meshes.get(frame);
  }
}

function decodeAll(arrays) {
  return Object.fromEntries(Object.entries(arrays).map(([name, array]) => [name, decode(array)]));
}

/** The values of another result at this one's points, by interpolation where their points differ. */
export function valuesAt(mesh, result, channel, frame, side = "outputs") {
  const values = result.values(channel, frame, side);
  if (result.mesh === mesh || result.mesh.count === mesh.count) return values;
  return Float32Array.from({ length: mesh.count }, (_, k) =>
    result.mesh.at(values, mesh.positions[k * mesh.dims], mesh.positions[k * mesh.dims + 1]));
}
