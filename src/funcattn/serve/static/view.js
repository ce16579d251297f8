// A field as a picture: value under the pointer, zoom and turn. Views with one camera move together.

import { webglRenderer } from "./webgl.js";
import { RasterRenderer } from "./raster.js";
import { announce, button, formatNumber, h, perFrame } from "./dom.js";

let shared = null;

/** The renderer of all views: the graphics card where there is one and it works. */
export function renderer() {
  if (!shared || shared.lost) {
    // "?renderer=webgl" or "raster" asks for one, whatever the machine has.
    const asked = new URLSearchParams(location.search).get("renderer");
    shared = (asked !== "raster" && webglRenderer({ evenSlow: asked === "webgl" })) || new RasterRenderer();
  }
  return shared;
}

/** Draw a field into a canvas of its own; width and height in CSS pixels. */
export function drawField(canvas, { mesh, values, range, table, matrix }, width, height) {
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  const [w, hgt] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== w || canvas.height !== hgt) Object.assign(canvas, { width: w, height: hgt });
  const drawn = renderer().draw({ mesh, values, range, table, matrix, width: w, height: hgt });
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, w, hgt);
  context.drawImage(drawn, 0, 0, w, hgt, 0, 0, w, hgt);
}

export class FieldView {
  /**
   * @param stage element to fill
   * @param options label: text for screen readers; camera; pointed([x, y] | null): the pointer moved
   */
  constructor(stage, { label, camera, pointed }) {
    Object.assign(this, { stage, camera, pointed, field: null, label });
    this.canvas = h("canvas", { tabindex: 0, role: "img", "aria-label": label, class: "field" });
    this.mark = h("div", { class: "mark", hidden: true });
    this.zoomers = h("div", { class: "zoomers" },
      button("+", () => camera.zoomBy(1.5), { "aria-label": `Zoom in: ${label}` }),
      button("\u2212", () => camera.zoomBy(1 / 1.5), { "aria-label": `Zoom out: ${label}` }),
      button("Fit", () => camera.reset(), { "aria-label": `Show all of it: ${label}` }));
    stage.replaceChildren(this.canvas, this.mark, this.zoomers);
    stage.style.setProperty("--aspect", camera.aspect);
    this.redraw = perFrame(() => this.draw());
    this.resize = new ResizeObserver(this.redraw);
    this.resize.observe(this.canvas);
    camera.addEventListener("change", this.redraw);
    this.#listen();
  }

  remove() {
    this.resize.disconnect();
    this.camera.removeEventListener("change", this.redraw);
    this.stage.replaceChildren();
  }

  /** field: {mesh, values, range, table, unit}. */
  show(field) {
    this.field = field;
    this.draw();
  }

  draw() {
    if (!this.field || !this.canvas.isConnected) return;
    const { width, height } = this.canvas.getBoundingClientRect();
    if (!width) return;
    drawField(this.canvas, { ...this.field, matrix: this.camera.matrix() }, width, height);
    const { range, unit } = this.field;
    this.canvas.setAttribute("aria-label",
      `${this.label}: values from ${formatNumber(range[0])} to ${formatNumber(range[1])} ${unit ?? ""}. Arrow keys read values.`);
  }

  /** Show where the pointer is, in whichever view, and return the value there. */
  point(place) {
    this.mark.hidden = !place || this.camera.dims === 3;
    if (!place || !this.field) return NaN;
    const { mesh, values } = this.field;
    if (mesh.dims === 3) return values[place[3]] ?? NaN;
    const [u, v] = this.camera.toPicture(...place);
    this.mark.style.setProperty("left", `${100 * u}%`);
    this.mark.style.setProperty("top", `${100 * v}%`);
    return mesh.at(values, ...place);
  }

  #fractions(event) {
    const box = this.canvas.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  }

  #placeAt([u, v]) {
    return this.camera.dims === 2 ? this.camera.toSpace(u, v) : this.#nearestInSpace(u, v);
  }

  /** The point of a surface that is seen nearest to a place of the picture: [x, y, z, its number]. */
  #nearestInSpace(u, v) {
    if (!this.field) return null;
    const { positions, count } = this.field.mesh;
    const m = this.camera.matrix();
    let [best, least] = [-1, Infinity];
    for (let k = 0; k < count; k += 1) {
      const [x, y, z] = positions.subarray(3 * k, 3 * k + 3);
      const apart = (m[0] * x + m[4] * y + m[8] * z + m[12] + 1 - 2 * u) ** 2 + (m[1] * x + m[5] * y + m[9] * z + m[13] - 1 + 2 * v) ** 2;
      // Of points behind each other the nearest to the eye.
      const cost = Math.floor(apart * 4000) + (m[2] * x + m[6] * y + m[10] * z + m[14]) / 4;
      if (cost < least) [best, least] = [k, cost];
    }
    return least < 4 ? [...positions.subarray(3 * best, 3 * best + 3), best] : null;
  }

  #listen() {
    const { canvas, camera } = this;
    const pointed = perFrame((at) => this.pointed(at && this.#placeAt(at)));
    let grip = null;
    canvas.addEventListener("pointermove", (event) => {
      const at = this.#fractions(event);
      if (grip) {
        camera.moveBy(at[0] - grip[0], at[1] - grip[1]);
        grip = at;
      }
      pointed(at);
    });
    canvas.addEventListener("pointerleave", () => pointed(null));
    canvas.addEventListener("pointerdown", (event) => {
      // In the plane a finger scrolls the page, and a mouse drags what was zoomed.
      if (camera.dims === 2 && (camera.zoom <= 1 || event.pointerType === "touch")) return;
      grip = this.#fractions(event);
      canvas.setPointerCapture(event.pointerId);
    });
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { grip = null; });
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
      event.preventDefault();
      camera.zoomBy(Math.exp(-event.deltaY / 300), this.#fractions(event));
    }, { passive: false });
    canvas.classList.toggle("turns", camera.dims === 3);
    this.cursor = [0.5, 0.5];
    canvas.addEventListener("keydown", (event) => this.#key(event));
    canvas.addEventListener("blur", () => pointed(null));
  }

  /** Arrows read values in the plane and turn surfaces; plus, minus and 0 zoom. */
  #key(event) {
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const zooms = { "+": 1.25, "=": 1.25, "-": 0.8 };
    if (event.key in steps) {
      const [du, dv] = steps[event.key].map((step) => step * (event.shiftKey ? 0.1 : 0.02));
      if (this.camera.dims === 3) this.camera.moveBy(du, dv);
      else {
        this.cursor = [this.cursor[0] + du, this.cursor[1] + dv].map((c) => Math.min(1, Math.max(0, c)));
        const place = this.#placeAt(this.cursor);
        this.pointed(place);
        const value = this.point(place);
        announce(`x ${formatNumber(place[0])}, y ${formatNumber(place[1])}: ${Number.isNaN(value) ? "outside" : formatNumber(value)}`);
      }
    } else if (event.key in zooms) this.camera.zoomBy(zooms[event.key]);
    else if (event.key === "0") this.camera.reset();
    else return;
    event.preventDefault();
  }
}
