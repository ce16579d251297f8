// A curve drawn with the pointer or bent with the keyboard: the first velocity of Burgers' equation.

import { decode, encode, rangeOf } from "../arrays.js";
import { announce, button, formatNumber, h, perFrame } from "../dom.js";
import { aired, Plot } from "../plot.js";
import { clamp, randomButton, Undo } from "./common.js";

export function create(stage, tools, model, changed) {
  return new Curve(stage, tools, model, changed);
}

class Curve {
  constructor(stage, tools, model, changed) {
    const { editor } = model;
    const input = model.inputs?.[0] ?? {};
    Object.assign(this, { editor, model, changed, name: input.name ?? editor.parameter, periodic: editor.periodic ?? model.periodic, cursor: 0 });
    this.unit = input.unit ?? null;
    this.ends = [model.lower?.[0] ?? 0, model.upper?.[0] ?? 1];
    const given = decode(editor.default).data;
    this.range = [editor.min ?? input.min ?? rangeOf(given)[0], editor.max ?? input.max ?? rangeOf(given)[1]];
    this.count = editor.points ?? given.length;
    this.values = this.#resampled(given);
    this.undo = new Undo((values) => this.#replace(values));
    stage.classList.add("plotted");
    this.plot = new Plot(stage, { label: editor.parameter, height: 300 });
    this.plot.drawing.classList.add("paint");
    for (const [name, value] of Object.entries({
      tabindex: 0, role: "application", "aria-roledescription": "drawing area", "aria-describedby": "editor-help",
      "aria-label": `${editor.parameter}: draw with the pointer, or with the keyboard`,
    })) this.plot.drawing.setAttribute(name, value);
    this.redraw = perFrame(() => this.draw());
    this.#tools(tools);
    this.#listen();
    this.draw();
  }

  request() {
    return { parameters: { [this.editor.parameter]: encode(this.values) } };
  }

  /** What the address keeps is what is sent: steps of 1/4000 of the range. */
  #rounded(values) {
    const [low, high] = this.range;
    const step = (high - low) / 4000;
    return values.map((value) => low + step * Math.round((clamp(value, low, high) - low) / step));
  }

  save() {
    const [low, high] = this.range;
    const steps = Uint16Array.from(this.values, (value) => Math.round(((value - low) / (high - low)) * 4000));
    return new Uint8Array(steps.buffer);
  }

  load(bytes) {
    if (bytes.length !== 2 * this.count) return false;
    const [low, high] = this.range;
    this.values = Float32Array.from(new Uint16Array(bytes.slice().buffer), (step) => low + ((high - low) / 4000) * step);
    this.draw();
    return true;
  }

  remove() {
    this.plot.stage.classList.remove("plotted");
    this.plot.remove();
  }

  #tools(tools) {
    tools.replaceChildren(
      h("div", { class: "row buttons" }, this.undo.button,
        randomButton("Random curve", this.editor, this.model, (parameters) => this.set(parameters)),
        button("Clear", () => this.#replace(new Float32Array(this.count).fill(clamp(0, ...this.range)), true))),
      h("p", { id: "editor-help", class: "help" },
        "Keyboard: left and right choose a place, up and down bend the curve there (with Shift more), Ctrl+Z undoes."));
  }

  /** A drawing of the service, at any number of places. */
  set(parameters) {
    const given = decode(parameters[this.editor.parameter]).data;
    this.#replace(this.#resampled(given), true);
  }

  #resampled(given) {
    const at = (k) => given[Math.floor((k * given.length) / this.count)];
    return this.#rounded(Float32Array.from({ length: this.count }, (_, k) => at(k)));
  }

  #replace(values, undoable = false) {
    if (undoable) this.undo.keep(this.values);
    this.values = values;
    this.draw();
    this.changed();
  }

  /** Local averages, as hands are not smooth; on a circle where the curve is on one. */
  #smoothed(values, width) {
    const n = values.length;
    return values.map((_, k) => {
      let [sum, weights] = [0, 0];
      for (let away = -3 * width; away <= 3 * width; away += 1) {
        const at = this.periodic ? (k + away + 2 * n) % n : clamp(k + away, 0, n - 1);
        const weight = Math.exp(-0.5 * (away / width) ** 2);
        sum += weight * values[at];
        weights += weight;
      }
      return sum / weights;
    });
  }

  #index(x) {
    return clamp(Math.round(((x - this.ends[0]) / (this.ends[1] - this.ends[0])) * (this.count - 1)), 0, this.count - 1);
  }

  #listen() {
    const { drawing } = this.plot;
    let last = null;
    let raw = null;
    drawing.addEventListener("pointerdown", (event) => {
      drawing.setPointerCapture(event.pointerId);
      this.undo.keep(this.values);
      raw = this.values.slice();
      last = this.plot.toSpace(event);
    });
    drawing.addEventListener("pointermove", (event) => {
      if (!last) return;
      const now = this.plot.toSpace(event);
      const [from, to] = [this.#index(last[0]), this.#index(now[0])];
      for (let k = Math.min(from, to); k <= Math.max(from, to); k += 1) {
        const share = from === to ? 1 : (k - from) / (to - from);
        raw[k] = clamp(last[1] + share * (now[1] - last[1]), ...this.range);
      }
      last = now;
      this.values = this.#rounded(this.#smoothed(raw, Math.max(1, Math.round(this.count / 100))));
      this.redraw();
      this.changed(event);
    });
    for (const end of ["pointerup", "pointercancel"]) drawing.addEventListener(end, () => { last = null; });
    drawing.addEventListener("focus", this.redraw);
    drawing.addEventListener("blur", this.redraw);
    drawing.addEventListener("keydown", (event) => this.#key(event));
  }

  #key(event) {
    if (this.undo.heard(event)) return;
    const many = event.shiftKey ? 5 : 1;
    const sideways = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const upwards = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (sideways) this.cursor = clamp(this.cursor + sideways * many * Math.ceil(this.count / 100), 0, this.count - 1);
    else if (upwards) {
      this.undo.keep(this.values);
      const by = 0.02 * many * upwards * (this.range[1] - this.range[0]);
      this.values = this.#rounded(this.values.map((value, k) => {
        const straight = Math.abs(k - this.cursor) / this.count;
        const away = this.periodic ? Math.min(straight, 1 - straight) : straight;
        return value + by * Math.exp(-0.5 * (away / 0.05) ** 2);
      }));
      this.changed(event);
    } else return;
    event.preventDefault();
    this.redraw();
    announce(`${formatNumber(this.#x(this.cursor))}: ${formatNumber(this.values[this.cursor])}`);
  }

  #x(k) {
    return this.ends[0] + ((this.ends[1] - this.ends[0]) * k) / (this.periodic ? this.count : this.count - 1);
  }

  draw() {
    const x = Array.from(this.values, (_, k) => this.#x(k));
    const focused = document.activeElement === this.plot.drawing && this.plot.drawing.matches(":focus-visible");
    this.plot.show({
      x: this.ends, y: aired(this.range), xLabel: "x", yLabel: this.unit ? `${this.name} (${this.unit})` : this.name,
      curves: [{ x, y: this.values, class: "drawn" }],
      dots: focused ? [{ x: x[this.cursor], y: this.values[this.cursor] }] : [],
    });
  }
}
