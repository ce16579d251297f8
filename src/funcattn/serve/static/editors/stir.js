// Vorticity stirred by vortices that are set, dragged, made stronger or turned round.

import { decode, rangeAroundZero } from "../arrays.js";
import { Camera } from "../camera.js";
import { diverging } from "../colours.js";
import { announce, button, formatNumber, h, perFrame, slider } from "../dom.js";
import { gridTriangles, Mesh } from "../mesh.js";
import { Pins } from "../pins.js";
import { drawField } from "../view.js";
import { clamp, fromBytes, randomButton, toBytes, Undo } from "./common.js";

const SIDE = 64; // nodes per axis of the picture

export function create(stage, tools, model, changed) {
  return new Stir(stage, tools, model, changed);
}

class Stir {
  constructor(stage, tools, model, changed) {
    const { editor } = model;
    Object.assign(this, { editor, model, changed, chosen: 0 });
    this.vortices = this.#rowsOf(editor.default);
    this.undo = new Undo((vortices) => this.#replace(vortices));
    this.canvas = h("canvas", { class: "field paint", role: "img", "aria-label": "The vorticity of all vortices" });
    this.pins = this.#pins();
    stage.style.setProperty("--aspect", 1);
    stage.classList.add("handled");
    stage.replaceChildren(this.canvas, this.pins.element);
    this.stage = stage;
    this.mesh = unitMesh();
    this.camera = new Camera(this.mesh);
    this.redraw = perFrame(() => this.draw());
    this.resize = new ResizeObserver(this.redraw);
    this.resize.observe(this.canvas);
    this.#tools(tools);
    this.canvas.addEventListener("pointerdown", (event) => this.#add(this.#place(event)));
    this.#choose(0);
  }

  #rowsOf(array) {
    const { data } = decode(array);
    return Array.from({ length: data.length / 4 }, (_, k) => this.#within(data.slice(4 * k, 4 * k + 4)));
  }

  #within([x, y, strength, radius]) {
    const { editor } = this;
    // The square is a torus.
    return [x - Math.floor(x), y - Math.floor(y), clamp(strength, ...editor.strength), clamp(radius, ...editor.radius)]
      .map((number) => Number(number.toFixed(3)));
  }

  request() {
    return { parameters: { [this.editor.parameter]: this.vortices } };
  }

  save() {
    return toBytes(this.vortices);
  }

  load(bytes) {
    const rows = fromBytes(bytes);
    const good = Array.isArray(rows) && rows.length <= this.editor.max_count
      && rows.every((row) => Array.isArray(row) && row.length === 4 && row.every(Number.isFinite));
    if (!good) return false;
    this.vortices = rows.map((row) => this.#within(row));
    this.redraw();
    return true;
  }

  remove() {
    this.stage.classList.remove("handled");
    this.resize.disconnect();
  }

  #place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, 1 - (event.clientY - box.top) / box.height].map((c) => clamp(c, 0, 0.999));
  }

  #pins() {
    return new Pins({
      get: () => this.vortices,
      toPicture: (x, y) => [`${100 * x}%`, `${100 * (1 - y)}%`],
      toSpace: (event) => this.#place(event),
      size: () => [1, 1],
      label: (k) => {
        const [x, y, strength] = this.vortices[k];
        return `Vortex ${k + 1} at ${formatNumber(x)}, ${formatNumber(y)}, turning ${strength < 0 ? "right" : "left"} with ${formatNumber(Math.abs(strength))}`;
      },
      started: (k) => { this.#keep(); this.#choose(k); },
      moved: (k, [x, y], event) => this.#change(k, [x, y, ...this.vortices[k].slice(2)], event),
      removed: (k) => {
        this.#replace(this.vortices.filter((_, other) => other !== k), true);
        this.pins.focus(Math.min(k, this.vortices.length - 1));
        announce(`${this.vortices.length} vortices`);
      },
      heard: (event, k) => this.undo.heard(event) || this.#key(event, k),
    });
  }

  /** Plus and minus change the strength, X the direction. */
  #key(event, k) {
    this.#choose(k);
    const [x, y, strength, radius] = this.vortices[k];
    const by = 0.05 * (this.editor.strength[1] - this.editor.strength[0]);
    const next = { "+": strength + by, "=": strength + by, "-": strength - by, x: -strength, X: -strength }[event.key];
    if (next === undefined) return false;
    this.#keep();
    this.#change(k, [x, y, next, radius], event);
    event.preventDefault();
    announce(this.pins.options.label(k));
    return true;
  }

  #keep() {
    this.undo.keep(this.vortices.slice());
  }

  #add([x, y], focus = false) {
    if (this.vortices.length >= this.editor.max_count) return announce(`At most ${this.editor.max_count} vortices.`, true);
    this.#replace([...this.vortices, this.#within([x, y, this.strength.value, this.radius.value])], true);
    this.#choose(this.vortices.length - 1);
    if (focus) this.pins.focus(this.chosen);
    return announce(`${this.vortices.length} vortices`);
  }

  #change(k, vortex, event) {
    this.vortices = this.vortices.map((each, other) => (other === k ? this.#within(vortex) : each));
    this.redraw();
    this.changed(event);
  }

  #replace(vortices, undoable = false) {
    if (undoable) this.#keep();
    this.vortices = vortices;
    this.redraw();
    this.changed();
  }

  /** The sliders show the vortex that was touched last. */
  #choose(k) {
    this.chosen = k;
    if (!this.vortices[k]) return;
    this.strength.set(this.vortices[k][2]);
    this.radius.set(this.vortices[k][3]);
  }

  #tools(tools) {
    const { editor } = this;
    const set = (axis) => (value) => {
      const vortex = this.vortices[this.chosen]?.slice();
      if (!vortex) return;
      vortex[axis] = value;
      this.#change(this.chosen, vortex);
    };
    const [s, r] = [editor.strength, editor.radius];
    const middle = (r[0] + r[1]) / 2;
    this.strength = slider({ label: "Strength", min: s[0], max: s[1], step: (s[1] - s[0]) / 100, value: s[1] / 2, change: set(2) });
    this.radius = slider({ label: "Radius", min: r[0], max: r[1], step: (r[1] - r[0]) / 50, value: middle, change: set(3) });
    tools.replaceChildren(
      this.strength.element, this.radius.element,
      h("div", { class: "row buttons" }, this.undo.button, button("Add one", () => this.#add([0.5, 0.5], true)),
        randomButton("Random flow", editor, this.model, (parameters) => this.#replace(this.#rowsOf(parameters[editor.parameter]), true)),
        button("Clear", () => this.#replace([], true))),
      h("p", { id: "editor-help", class: "help" },
        "Click to add a vortex, drag to move it, double-click to remove it. Keyboard: arrows move, plus and minus change the strength, X turns it round, Delete removes, Ctrl+Z undoes."));
  }

  draw() {
    const { width, height } = this.canvas.getBoundingClientRect();
    if (!width) return;
    const values = new Float32Array(SIDE * SIDE);
    for (const [x, y, strength, radius] of this.vortices) {
      const away = (at, from) => at - from - Math.round(at - from);
      for (let i = 0; i < SIDE; i += 1) {
        for (let j = 0; j < SIDE; j += 1) {
          const apart = away(i / (SIDE - 1), x) ** 2 + away(j / (SIDE - 1), y) ** 2;
          values[i * SIDE + j] += strength * Math.exp(-apart / (2 * radius ** 2));
        }
      }
    }
    const field = { mesh: this.mesh, values, range: rangeAroundZero(values), table: diverging, matrix: this.camera.matrix() };
    drawField(this.canvas, field, width, height);
    this.pins.draw();
  }
}

/** The nodes of a grid spread over the unit square. */
function unitMesh() {
  const positions = new Float32Array(2 * SIDE * SIDE);
  for (let i = 0; i < SIDE; i += 1) {
    for (let j = 0; j < SIDE; j += 1) positions.set([i / (SIDE - 1), j / (SIDE - 1)], 2 * (i * SIDE + j));
  }
  return new Mesh(2, positions, gridTriangles(SIDE, SIDE), [SIDE, SIDE]);
}
