// Observations set by a click, with the curve and the band that follow from them.

import { decode } from "../arrays.js";
import { announce, button, formatNumber, h } from "../dom.js";
import { Pins } from "../pins.js";
import { aired, Plot } from "../plot.js";
import { clamp, fromBytes, randomButton, toBytes, Undo } from "./common.js";

export function create(stage, tools, model, changed) {
  return new Points(stage, tools, model, changed);
}

class Points {
  constructor(stage, tools, model, changed) {
    const { editor } = model;
    Object.assign(this, { editor, changed, stage, result: null });
    this.points = this.#pairs(editor.default);
    this.undo = new Undo((points) => this.#replace(points));
    stage.classList.add("plotted");
    this.plot = new Plot(stage, { label: "Observations, and the curve that follows from them", height: 440 });
    this.plot.drawing.classList.add("paint");
    this.pins = new Pins({
      get: () => this.points,
      toPicture: (x, y) => [`${this.plot.toX(x)}px`, `${this.plot.toY(y)}px`],
      toSpace: (event) => this.plot.toSpace(event),
      size: () => [editor.x[1] - editor.x[0], editor.y[1] - editor.y[0]],
      label: (k) => `Observation ${k + 1}: x ${formatNumber(this.points[k][0])}, value ${formatNumber(this.points[k][1])}`,
      started: () => this.undo.keep(this.points.slice()),
      moved: (k, place, event) => this.#move(k, place, event),
      removed: (k) => this.#delete(k),
      heard: (event) => this.undo.heard(event),
    });
    stage.append(this.pins.element);
    tools.replaceChildren(
      h("div", { class: "row buttons" }, this.undo.button,
        button("Add one", () => this.#add([(editor.x[0] + editor.x[1]) / 2, 0], true)),
        randomButton("Random", editor, model, (parameters) => this.#replace(this.#pairs(parameters[editor.parameter]), true)),
        button("Clear", () => this.#replace(this.points.slice(0, editor.min_count), true))),
      h("p", { id: "editor-help", class: "help" },
        "Click to observe, drag to move, double-click to remove. Keyboard: \u201cAdd one\u201d, then arrows move it, Delete removes it, Ctrl+Z undoes."));
    this.plot.drawing.addEventListener("pointerdown", (event) => this.#add(this.plot.toSpace(event)));
    this.resize = new ResizeObserver(() => this.draw());
    this.resize.observe(stage);
  }

  #pairs(array) {
    const { data } = decode(array);
    return Array.from({ length: data.length / 2 }, (_, k) => this.#within([data[2 * k], data[2 * k + 1]]));
  }

  #within([x, y]) {
    const { editor } = this;
    return [clamp(x, ...editor.x), clamp(y, ...editor.y)].map((number) => Number(number.toFixed(3)));
  }

  request() {
    return { parameters: { [this.editor.parameter]: this.points } };
  }

  save() {
    return toBytes(this.points);
  }

  load(bytes) {
    const points = fromBytes(bytes);
    const pairs = Array.isArray(points) && points.length >= this.editor.min_count && points.length <= this.editor.max_count
      && points.every((point) => Array.isArray(point) && point.length === 2 && point.every(Number.isFinite));
    if (!pairs) return false;
    this.points = points.map((point) => this.#within(point));
    this.draw();
    return true;
  }

  /** The curve: {x, y, low, high}. */
  showResult(result) {
    this.result = result;
    this.draw();
  }

  remove() {
    this.stage.classList.remove("plotted");
    this.resize.disconnect();
    this.plot.remove();
  }

  #replace(points, undoable = false) {
    if (undoable) this.undo.keep(this.points.slice());
    this.points = points;
    this.draw();
    this.changed();
  }

  #add(place, focus = false) {
    if (this.points.length >= this.editor.max_count) return announce(`At most ${this.editor.max_count} observations.`, true);
    this.#replace([...this.points, this.#within(place)], true);
    if (focus) this.pins.focus(this.points.length - 1);
    return announce(`${this.points.length} observations`);
  }

  #delete(k) {
    if (this.points.length <= this.editor.min_count) return announce(`At least ${this.editor.min_count} observation.`, true);
    this.#replace(this.points.filter((_, other) => other !== k), true);
    this.pins.focus(Math.min(k, this.points.length - 1));
    return announce(`${this.points.length} observations`);
  }

  draw() {
    const { editor, result } = this;
    const curves = result ? [{ name: "Surrogate", x: result.x, y: result.y, class: "surrogate" }] : [];
    const bands = result?.low ? [{ name: "Band", x: result.x, low: result.low, high: result.high }] : [];
    this.plot.show({ x: editor.x, y: aired(editor.y), xLabel: "x", yLabel: "value", curves, bands });
    if (this.plot.toX) this.pins.draw();
  }

  #move(k, place, event) {
    this.points = this.points.map((point, other) => (other === k ? this.#within(place) : point));
    this.draw();
    this.changed(event);
  }
}
