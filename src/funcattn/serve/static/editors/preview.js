// The geometry that the service built, behind the handles or beside the sliders.

import { Camera } from "../camera.js";
import { h, perFrame } from "../dom.js";
import { drawLines } from "../lines.js";

export class Preview {
  /** view: as of a camera. */
  constructor(stage, label, view = null) {
    Object.assign(this, { stage, view });
    this.canvas = h("canvas", { class: "field", role: "img", "aria-label": label });
    stage.append(this.canvas);
    this.redraw = perFrame(() => this.draw());
    this.resize = new ResizeObserver(this.redraw);
    this.resize.observe(this.canvas);
  }

  /** home: the part of space to show, all of the mesh that matters unless given. */
  show(mesh, home = null) {
    // Other spaces are seen well enough in the result.
    this.stage.hidden = mesh.dims !== 2;
    if (this.stage.hidden) return;
    this.mesh = mesh;
    if (!this.camera || home) {
      this.camera = new Camera(mesh, this.view);
      if (home) Object.assign(this.camera, { home });
      this.camera.reset();
      this.stage.style.setProperty("--aspect", this.camera.aspect);
    }
    this.redraw();
  }

  draw() {
    if (!this.mesh || !this.canvas.clientWidth) return;
    const colour = getComputedStyle(this.canvas).color;
    drawLines(this.canvas, this.mesh, (x, y) => this.camera.toPicture(x, y), colour);
  }

  remove() {
    this.stage.hidden = false;
    this.resize.disconnect();
  }
}
