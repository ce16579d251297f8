// Points in the plane that are dragged, or moved by arrow keys: observations, vortices, ends of a cut.

import { announce, button, h } from "./dom.js";

/** The way of an arrow key, with y upwards. */
export const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

export class Pins {
  /**
   * options:
   *   get()                    the places, [[x, y, ...], ...]
   *   toPicture(x, y)          CSS lengths or percentages from the upper left corner of the layer
   *   toSpace(event)           the place of the pointer
   *   size()                   width and height of space, of which an arrow key moves a fiftieth
   *   label(k)                 for screen readers
   *   moved(k, [x, y], event)  a pin was moved
   *   started(k)               optional: it will be
   *   removed(k)               optional: people want to remove it
   *   heard(event)             optional: whether a key press meant something else, such as undo
   */
  constructor(options) {
    this.options = { started: () => {}, removed: null, heard: () => false, ...options };
    this.element = h("div", { class: "over" });
  }

  /** Pins that are there stay there: one of them may have the focus or the pointer. */
  draw() {
    const places = this.options.get();
    const { children } = this.element;
    while (children.length > places.length) this.element.lastElementChild.remove();
    while (children.length < places.length) this.element.append(this.#pin(children.length));
    places.forEach(([x, y], k) => {
      const [left, top] = this.options.toPicture(x, y);
      children[k].style.setProperty("left", left);
      children[k].style.setProperty("top", top);
      children[k].setAttribute("aria-label", this.options.label(k));
    });
  }

  focus(k) {
    this.element.children[k]?.focus();
  }

  #pin(k) {
    const { options } = this;
    const pin = button("", () => {}, { class: "handle", "aria-describedby": "editor-help" });
    let grabbed = false;
    pin.addEventListener("pointerdown", (event) => {
      pin.setPointerCapture(event.pointerId);
      options.started(k);
      grabbed = true;
    });
    pin.addEventListener("pointermove", (event) => { if (grabbed) options.moved(k, options.toSpace(event), event); });
    for (const end of ["pointerup", "pointercancel"]) pin.addEventListener(end, () => { grabbed = false; });
    pin.addEventListener("dblclick", () => options.removed?.(k));
    pin.addEventListener("keydown", (event) => {
      if (options.heard(event, k)) return;
      const arrow = ARROWS[event.key];
      if (arrow) {
        options.started(k);
        const share = event.shiftKey ? 0.1 : 0.02;
        const place = options.get()[k];
        options.moved(k, arrow.map((way, axis) => place[axis] + share * way * options.size()[axis]), event);
        announce(pin.getAttribute("aria-label"));
      } else if (options.removed && (event.key === "Delete" || event.key === "Backspace")) options.removed(k);
      else return;
      event.preventDefault();
    });
    return pin;
  }
}
