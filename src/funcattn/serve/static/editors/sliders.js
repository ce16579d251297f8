// Numbers with a range each: the shape of an airfoil and its flow, the parameters of people's own runs.

import { button, formatNumber, h, slider } from "../dom.js";
import { fromBytes, randomButton, toBytes } from "./common.js";
import { Preview } from "./preview.js";

export function create(stage, tools, model, changed) {
  return new Sliders(stage, tools, model, changed);
}

/** The controls of some numbers; used for uploads too. */
export class Controls {
  constructor(sliders, changed) {
    this.sliders = sliders;
    this.values = Object.fromEntries(sliders.map((each) => [each.name, each.default]));
    this.touched = new Set();
    this.controls = sliders.map((each) => (each.choices ? this.#select(each, changed) : this.#slider(each, changed)));
    this.elements = this.controls.map((control) => control.element);
  }

  #slider(each, changed) {
    const words = (value) => `${Math.abs(value) >= 1e5 ? formatNumber(value, 4) : Number(value.toPrecision(5))}${each.unit ? `\u00a0${each.unit}` : ""}`.replace("-", "\u2212");
    return slider({
      label: each.label ?? each.name, min: each.min, max: each.max, step: each.step ?? "any", value: each.default, words,
      change: (value) => { this.#change(each.name, value); changed(); },
    });
  }

  #select(each, changed) {
    const id = `choice-of-${each.name}`;
    const select = h("select", { id, change: () => { this.#change(each.name, each.choices[select.selectedIndex]); changed(); } },
      ...each.choices.map((one) => h("option", { selected: one === each.default }, String(one))));
    const element = h("div", { class: "slider" }, h("label", { for: id }, each.label ?? each.name), select);
    return { element, set: (value) => { select.selectedIndex = each.choices.indexOf(value); } };
  }

  #change(name, value) {
    this.values[name] = value;
    this.touched.add(name);
  }

  /** The numbers that were changed since `forget`, as `set`, and the others, as `defaults`. */
  get moved() {
    const part = (wanted) => Object.fromEntries(Object.entries(this.values).filter(([name]) => this.touched.has(name) === wanted));
    return { set: part(true), defaults: part(false) };
  }

  /** A new file has numbers of its own. */
  forget() {
    this.touched.clear();
  }

  /** Take those of the values that are known and can be. */
  set(values) {
    this.sliders.forEach((each, k) => {
      const value = values[each.name];
      const fits = each.choices ? each.choices.includes(value) : Number.isFinite(value) && value >= each.min && value <= each.max;
      if (!fits) return;
      this.values[each.name] = value;
      this.controls[k].set(value);
    });
  }

  reset() {
    this.set(Object.fromEntries(this.sliders.map((each) => [each.name, each.default])));
  }
}

class Sliders {
  constructor(stage, tools, model, changed) {
    const { editor } = model;
    this.controls = new Controls(editor.sliders, changed);
    stage.replaceChildren();
    this.preview = new Preview(stage, "The geometry", model.view);
    const set = (values) => { this.controls.set(values); changed(); };
    tools.replaceChildren(
      ...this.controls.elements,
      h("div", { class: "row buttons" },
        randomButton("Random", editor, model, set),
        button("Reset", () => { this.controls.reset(); changed(); })));
  }

  request() {
    return { parameters: this.controls.values };
  }

  save() {
    return toBytes(this.controls.values);
  }

  load(bytes) {
    const values = fromBytes(bytes);
    if (!values || typeof values !== "object") return false;
    this.controls.set(values);
    return true;
  }

  showInput(mesh) {
    this.preview.show(mesh);
  }

  remove() {
    this.preview.remove();
  }
}
