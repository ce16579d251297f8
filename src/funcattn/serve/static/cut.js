// Values along a line that people put across the fields.

import { rangeOf } from "./arrays.js";
import { find, formatNumber, svg } from "./dom.js";
import { Pins } from "./pins.js";
import { aired, Plot } from "./plot.js";

const SAMPLES = 240;

export class Cut {
  /** board: where the curve is drawn; changed(): the line was moved. */
  constructor(board, changed) {
    Object.assign(this, { board, changed, ends: null, shown: null });
    this.plot = new Plot(find(".stage", board), { label: "Values along the cut", height: 330 });
    this.line = svg("line", { x1: 0, y1: 0, x2: 0, y2: 0 });
    this.layer = svg("svg", { class: "cut-line", "aria-hidden": "true" }, this.line);
  }

  get state() {
    return this.ends ? this.ends.flat().map((number) => Number(number.toPrecision(4))).join(",") : "";
  }

  set state(text) {
    const numbers = String(text).split(",").map(Number);
    if (numbers.length === 4 && numbers.every(Number.isFinite)) this.ends = [numbers.slice(0, 2), numbers.slice(2)];
  }

  /** pictures: those of which the first gets the line; width: whether it shows the width of its band. */
  show(pictures, width) {
    const { camera, views, shown } = pictures;
    this.board.hidden = !camera || camera.dims !== 2;
    if (this.board.hidden) return;
    if (this.camera !== camera) this.#attach(camera, find(".stage", pictures.boards.surrogate));
    this.views = views;
    this.shown = shown;
    this.width = width;
    const [xs, ys] = camera.home;
    this.ends ??= [[xs[0] + 0.08 * (xs[1] - xs[0]), (ys[0] + ys[1]) / 2], [xs[1] - 0.08 * (xs[1] - xs[0]), (ys[0] + ys[1]) / 2]];
    this.draw();
  }

  #attach(camera, stage) {
    this.camera = camera;
    const fractions = (event) => {
      const box = stage.getBoundingClientRect();
      return camera.toSpace((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
    };
    this.pins = new Pins({
      get: () => this.ends,
      toPicture: (x, y) => camera.toPicture(x, y).map((c) => `${100 * c}%`),
      toSpace: fractions,
      size: () => camera.home.map(([low, high]) => (high - low) / camera.zoom),
      label: (k) => `${k ? "End" : "Start"} of the cut: x ${formatNumber(this.ends[k][0])}, y ${formatNumber(this.ends[k][1])}`,
      moved: (k, place) => {
        this.ends[k] = place.map((c, axis) => Math.min(camera.home[axis][1], Math.max(camera.home[axis][0], c)));
        this.draw();
        this.changed();
      },
    });
    this.pins.element.classList.add("cut-ends");
    stage.append(this.layer, this.pins.element);
    camera.addEventListener("change", () => this.#place());
  }

  #place() {
    const [[x1, y1], [x2, y2]] = this.ends.map(([x, y]) => this.camera.toPicture(x, y));
    for (const [name, value] of Object.entries({ x1, y1, x2, y2 })) this.line.setAttribute(name, `${100 * value}%`);
    this.pins.draw();
  }

  draw() {
    this.#place();
    const [[x1, y1], [x2, y2]] = this.ends;
    const length = Math.hypot(x2 - x1, y2 - y1);
    const at = Float32Array.from({ length: SAMPLES }, (_, k) => (k / (SAMPLES - 1)) * length);
    const along = (mesh, values) => at.map((_, k) => {
      const t = k / (SAMPLES - 1);
      return mesh.at(values, x1 + t * (x2 - x1), y1 + t * (y2 - y1));
    });
    const names = ["solver", "surrogate"].filter((name) => this.views[name]?.field && (name === "surrogate" || (this.shown.solver && !this.width)));
    const curves = names.map((name) => {
      const { mesh, values } = this.views[name].field;
      return { name: name === "solver" ? "Solver" : "Surrogate", x: at, y: along(mesh, values), class: name };
    });
    const { surrogate, channel, frame } = this.shown;
    const bands = [];
    if (surrogate.bands && !this.width) {
      const [low, high] = ["lower", "upper"].map((side) => along(surrogate.meshAt(frame), surrogate.values(channel, frame, side)));
      bands.push({ name: "Band", x: at, low, high });
    }
    const { name, unit } = channel;
    const label = this.width ? `half width of the band of ${name}` : name;
    this.plot.show({
      x: [0, length || 1], y: aired(rangeOf(...curves.map((curve) => curve.y), ...bands.flatMap(({ low, high }) => [low, high]))), curves, bands,
      xLabel: "distance along the cut", yLabel: unit ? `${label} (${unit})` : label,
    });
  }

  remove() {
    this.plot.remove();
  }
}
