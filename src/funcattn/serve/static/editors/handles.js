// Control points that move along a line: the void of a sheet, the wall of a pipe, the face of a die.

import { decode } from "../arrays.js";
import { announce, button, formatNumber, h } from "../dom.js";
import { clamp, fromBytes, randomButton, toBytes, Undo } from "./common.js";
import { Preview } from "./preview.js";

export function create(stage, tools, model, changed) {
  return new Handles(stage, tools, model, changed);
}

class Handles {
  constructor(stage, tools, model, changed) {
    const { editor } = model;
    Object.assign(this, { editor, model, changed, stage });
    this.values = this.#start();
    this.undo = new Undo((values) => this.#replace(values));
    stage.replaceChildren();
    stage.classList.add("handled");
    this.preview = new Preview(stage, `${editor.parameter}: the geometry`);
    this.buttons = this.values.map((_, k) => this.#handle(k));
    stage.append(...this.buttons);
    tools.replaceChildren(
      h("div", { class: "row buttons" }, this.undo.button,
        randomButton("Random shape", editor, model, (parameters) => this.set(parameters)),
        button("Reset", () => this.#replace(this.#start(), true))),
      h("p", { id: "editor-help", class: "help" }, "Drag the points. Keyboard: Tab chooses a point, arrows move it, with Shift further, Ctrl+Z undoes."));
    this.#place();
  }

  #start() {
    return Array.from(decode(this.editor.default).data, (value) => this.#rounded(value));
  }

  #rounded(value) {
    return Number(clamp(value, this.editor.min, this.editor.max).toPrecision(4));
  }

  request() {
    return { parameters: { [this.editor.parameter]: this.values } };
  }

  set(parameters) {
    this.#replace(Array.from(decode(parameters[this.editor.parameter]).data, (value) => this.#rounded(value)), true);
  }

  save() {
    return toBytes(this.values);
  }

  load(bytes) {
    const values = fromBytes(bytes);
    if (!Array.isArray(values) || values.length !== this.values.length || !values.every(Number.isFinite)) return false;
    this.values = values.map((value) => this.#rounded(value));
    this.#place();
    return true;
  }

  showInput(mesh) {
    // The window must hold the handles too, wherever they can go.
    if (!this.mesh) {
      const spots = [this.editor.min, this.editor.max].flatMap((value) => this.values.map((_, k) => this.#spot(k, value, mesh)));
      this.home = mesh.bounds.map(([low, high], axis) => {
        const all = [low, high, ...spots.map((spot) => spot[axis])];
        const by = 0.03 * (Math.max(...all) - Math.min(...all));
        return [Math.min(...all) - by, Math.max(...all) + by];
      });
      this.preview.show(mesh, this.home);
    } else this.preview.show(mesh);
    this.mesh = mesh;
    this.#place();
  }

  remove() {
    this.stage.classList.remove("handled");
    this.preview.remove();
  }

  #replace(values, undoable = false) {
    if (undoable) this.undo.keep(this.values.slice());
    this.values = values;
    this.#place();
    this.changed();
  }

  /** Where a handle with some value is in space; a die stands on top of its block. */
  #spot(k, value = this.values[k], mesh = this.mesh) {
    const { shape, centre, angles, at } = this.editor;
    if (shape === "polar") return [centre[0] + value * Math.cos(angles[k]), centre[1] + value * Math.sin(angles[k])];
    return [at[k], value + (this.model.task === "plasticity" ? mesh.bounds[1][1] : 0)];
  }

  /** The value with which a handle is nearest to a place. */
  #valueAt(k, [x, y]) {
    const { shape, centre, angles } = this.editor;
    if (shape === "polar") return (x - centre[0]) * Math.cos(angles[k]) + (y - centre[1]) * Math.sin(angles[k]);
    return y - this.#spot(k, 0)[1];
  }

  #place() {
    if (!this.mesh) return;
    this.buttons.forEach((handle, k) => {
      const [u, v] = this.preview.camera.toPicture(...this.#spot(k));
      handle.style.setProperty("left", `${100 * u}%`);
      handle.style.setProperty("top", `${100 * v}%`);
      handle.setAttribute("aria-valuenow", this.values[k]);
      handle.setAttribute("aria-valuetext", `${formatNumber(this.values[k])} ${this.editor.unit ?? ""}`.trim());
    });
  }

  #handle(k) {
    const { editor, values } = this;
    const handle = h("button", {
      type: "button", class: "handle", role: "slider", "aria-label": `${editor.parameter} ${k + 1} of ${values.length}`,
      "aria-valuemin": editor.min, "aria-valuemax": editor.max, "aria-describedby": "editor-help",
      "aria-orientation": editor.shape === "columns" ? "vertical" : null,
    });
    let grabbed = false;
    handle.addEventListener("pointerdown", (event) => {
      handle.setPointerCapture(event.pointerId);
      this.undo.keep(this.values.slice());
      grabbed = true;
    });
    handle.addEventListener("pointermove", (event) => {
      if (!grabbed) return;
      const box = this.preview.canvas.getBoundingClientRect();
      const place = this.preview.camera.toSpace((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
      this.#move(k, this.#valueAt(k, place), event);
    });
    for (const end of ["pointerup", "pointercancel"]) handle.addEventListener(end, () => { grabbed = false; });
    handle.addEventListener("keydown", (event) => {
      if (this.undo.heard(event)) return;
      const ways = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1 };
      const ends = { Home: editor.min, End: editor.max };
      if (!(event.key in ways) && !(event.key in ends)) return;
      event.preventDefault();
      this.undo.keep(this.values.slice());
      const step = (editor.max - editor.min) * (event.shiftKey ? 0.1 : 0.02);
      this.#move(k, ends[event.key] ?? this.values[k] + ways[event.key] * step, event);
      announce(handle.getAttribute("aria-valuetext"));
    });
    return handle;
  }

  #move(k, value, event) {
    this.values[k] = this.#rounded(value);
    this.#place();
    this.changed(event);
  }
}
