// A field of two values, painted with a brush: the permeability of Darcy flow.

import { decode, encode } from "../arrays.js";
import { announce, button, choice, formatNumber, h, perFrame, slider } from "../dom.js";
import { ARROWS } from "../pins.js";
import { clamp, randomButton, Undo } from "./common.js";

const SHADES = ["#e9e4d8", "#2f4858"];

export function create(stage, tools, model, changed) {
  return new Paint(stage, tools, model, changed);
}

class Paint {
  constructor(stage, tools, model, changed) {
    const { editor } = model;
    Object.assign(this, { editor, model, changed, grid: editor.shape, value: 1, radius: 3.5 });
    this.cells = this.#cellsOf(decode(editor.default).data);
    this.cursor = [Math.floor(this.grid[0] / 2), Math.floor(this.grid[1] / 2)];
    this.shown = null; // where the brush is drawn
    this.pen = false; // whether the arrow keys paint
    this.undo = new Undo((cells) => this.#replace(cells));
    this.canvas = h("canvas", {
      class: "paint", tabindex: 0, role: "application", "aria-roledescription": "drawing area",
      "aria-label": `${editor.parameter}: paint with the pointer, or with the keyboard`, "aria-describedby": "editor-help",
    });
    stage.style.setProperty("--aspect", this.grid[0] / this.grid[1]);
    stage.replaceChildren(this.canvas);
    this.tiles = h("canvas", { width: this.grid[0], height: this.grid[1] });
    this.redraw = perFrame(() => this.draw());
    this.resize = new ResizeObserver(this.redraw);
    this.resize.observe(this.canvas);
    this.#tools(tools);
    this.#listen();
  }

  #cellsOf(values) {
    const middle = (this.editor.values[0] + this.editor.values[1]) / 2;
    const cells = new Uint8Array(this.grid[0] * this.grid[1]);
    for (let k = 0; k < cells.length; k += 1) cells[k] = values[k] > middle ? 1 : 0;
    return cells;
  }

  request() {
    const values = Float32Array.from(this.cells, (cell) => this.editor.values[cell]);
    return { parameters: { [this.editor.parameter]: encode(values, this.grid) } };
  }

  /** One bit per cell, after the grid. */
  save() {
    const bytes = new Uint8Array(4 + Math.ceil(this.cells.length / 8));
    new Uint16Array(bytes.buffer, 0, 2).set(this.grid);
    this.cells.forEach((cell, k) => { bytes[4 + (k >> 3)] |= cell << (k & 7); });
    return bytes;
  }

  load(bytes) {
    if (bytes.length !== 4 + Math.ceil(this.cells.length / 8)) return false;
    if (new Uint16Array(bytes.slice(0, 4).buffer).join() !== this.grid.join()) return false;
    this.cells = this.cells.map((_, k) => (bytes[4 + (k >> 3)] >> (k & 7)) & 1);
    this.draw();
    return true;
  }

  /** A drawing of the service, on any grid. */
  set(parameters) {
    const { data, shape } = decode(parameters[this.editor.parameter]);
    const [columns, rows] = this.grid;
    const values = Float32Array.from(this.cells, (_, k) => {
      const [i, j] = [Math.floor(k / rows), k % rows];
      return data[Math.floor(((i + 0.5) * shape[0]) / columns) * shape[1] + Math.floor(((j + 0.5) * shape[1]) / rows)];
    });
    this.#replace(this.#cellsOf(values), true);
  }

  remove() {
    this.resize.disconnect();
  }

  #tools(tools) {
    const { values } = this.editor;
    this.brush = choice({
      legend: "Brush", value: 1, change: (value) => { this.value = value; },
      options: [1, 0].map((value) => {
        const swatch = h("i", { class: "swatch" });
        swatch.style.setProperty("background", SHADES[value]);
        return { value, label: formatNumber(values[value]), mark: swatch };
      }),
    });
    const size = slider({
      label: "Size", min: 0.5, max: 12, step: 0.5, value: this.radius, words: (v) => `${2 * v} cells`,
      change: (v) => { this.radius = v; this.redraw(); },
    });
    tools.replaceChildren(
      h("div", { class: "row" }, this.brush.element, size.element),
      h("div", { class: "row buttons" }, this.undo.button,
        randomButton("Random field", this.editor, this.model, (parameters) => this.set(parameters)),
        button("Clear", () => this.#replace(new Uint8Array(this.cells.length).fill(1 - this.value), true))),
      h("p", { id: "editor-help", class: "help" },
        "Keyboard: arrows move the brush, Space paints, Enter keeps the brush down, X changes the value, Ctrl+Z undoes."));
  }

  #replace(cells, undoable = false) {
    if (undoable) this.undo.keep(this.cells);
    this.cells = cells;
    this.draw();
    this.changed();
  }

  #stamp([x, y]) {
    const [columns, rows] = this.grid;
    const radius = this.radius;
    for (let i = Math.max(0, Math.ceil(x - radius)); i <= Math.min(columns - 1, x + radius); i += 1) {
      for (let j = Math.max(0, Math.ceil(y - radius)); j <= Math.min(rows - 1, y + radius); j += 1) {
        if (Math.hypot(i - x, j - y) <= radius) this.cells[i * rows + j] = this.stroke;
      }
    }
  }

  #paint(from, to, event) {
    const steps = Math.max(1, Math.ceil(Math.hypot(to[0] - from[0], to[1] - from[1]) / Math.max(0.5, this.radius / 2)));
    for (let k = 1; k <= steps; k += 1) this.#stamp(from.map((start, axis) => start + (k / steps) * (to[axis] - start)));
    this.redraw();
    this.changed(event);
  }

  /** The place of the pointer in cells, whose middles have whole numbers. */
  #place(event) {
    const box = this.canvas.getBoundingClientRect();
    const [u, v] = [(event.clientX - box.left) / box.width, 1 - (event.clientY - box.top) / box.height];
    return [u * this.grid[0] - 0.5, v * this.grid[1] - 0.5];
  }

  #listen() {
    const { canvas } = this;
    let last = null;
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.undo.keep(this.cells.slice());
      this.stroke = event.button === 2 ? 1 - this.value : this.value;
      last = this.#place(event);
      this.#paint(last, last, event);
    });
    canvas.addEventListener("pointermove", (event) => {
      this.shown = this.#place(event);
      if (!last) return this.redraw();
      for (const each of event.getCoalescedEvents?.() ?? [event]) {
        const now = this.#place(each);
        this.#paint(last, now, event);
        last = now;
      }
      return undefined;
    });
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { last = null; });
    canvas.addEventListener("pointerleave", () => { this.shown = null; this.redraw(); });
    canvas.addEventListener("focus", () => { if (canvas.matches(":focus-visible")) { this.shown = this.cursor; this.redraw(); } });
    canvas.addEventListener("blur", () => { this.shown = null; this.pen = false; this.redraw(); });
    canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  #key(event) {
    if (this.undo.heard(event)) return;
    const arrow = ARROWS[event.key];
    if (arrow) {
      const before = this.cursor;
      this.cursor = before.map((c, axis) => clamp(c + arrow[axis] * (event.shiftKey ? 5 : 1), 0, this.grid[axis] - 1));
      this.shown = this.cursor;
      if (this.pen) this.#paint(before, this.cursor, event);
      else this.redraw();
      announce(`column ${this.cursor[0] + 1}, row ${this.cursor[1] + 1}: ${this.#here()}`);
    } else if (event.key === " " || event.key === "Enter") {
      this.pen = event.key === "Enter" && !this.pen;
      if (event.key === " " || this.pen) {
        this.undo.keep(this.cells.slice());
        this.stroke = this.value;
        this.#paint(this.cursor, this.cursor, event);
      }
      announce(event.key === " " ? `painted ${this.#here()}` : this.pen ? "brush down" : "brush up");
    } else if (event.key.toLowerCase() === "x") {
      this.value = 1 - this.value;
      this.stroke = this.value;
      this.brush.set(this.value);
      announce(`brush ${formatNumber(this.editor.values[this.value])}`);
    } else return;
    event.preventDefault();
  }

  #here() {
    return formatNumber(this.editor.values[this.cells[this.cursor[0] * this.grid[1] + this.cursor[1]]]);
  }

  draw() {
    const [columns, rows] = this.grid;
    const tiles = this.tiles.getContext("2d");
    const image = tiles.createImageData(columns, rows);
    const shades = SHADES.map((shade) => [1, 3, 5].map((k) => parseInt(shade.slice(k, k + 2), 16)));
    for (let i = 0; i < columns; i += 1) {
      for (let j = 0; j < rows; j += 1) image.data.set([...shades[this.cells[i * rows + j]], 255], 4 * ((rows - 1 - j) * columns + i));
    }
    tiles.putImageData(image, 0, 0);
    const box = this.canvas.getBoundingClientRect();
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    const [width, height] = [Math.round(box.width * ratio), Math.round(box.height * ratio)];
    if (!width) return;
    Object.assign(this.canvas, { width, height });
    const context = this.canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.drawImage(this.tiles, 0, 0, columns, rows, 0, 0, width, height);
    if (!this.shown) return;
    context.beginPath();
    context.arc(((this.shown[0] + 0.5) / columns) * width, (1 - (this.shown[1] + 0.5) / rows) * height,
      (this.radius + 0.2) * (width / columns), 0, 2 * Math.PI);
    for (const [colour, line] of [["#ffffff", 4], ["#101418", 1.5]]) {
      context.strokeStyle = colour;
      context.lineWidth = line * ratio;
      context.stroke();
    }
  }
}
