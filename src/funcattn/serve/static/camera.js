// Where a mesh is looked at from: a window in the plane, or a turn in space. Views may share one.

export class Camera extends EventTarget {
  /** view: the part of the plane to show at first, [x, y, x, y] of two corners; null: what matters of the mesh. */
  constructor(mesh, view = null) {
    super();
    this.dims = mesh.dims;
    const given = view && mesh.dims === 2 ? [[view[0], view[2]], [view[1], view[3]]] : null;
    this.home = given ?? (mesh.dims === 2 ? mesh.focus : mesh.bounds);
    this.reset();
  }

  /** Width over height of a picture that the home view fills. */
  get aspect() {
    if (this.dims !== 2) return 1.2;
    const [width, height] = this.home.map(([low, high]) => high - low);
    return Math.min(4, Math.max(0.6, width / height));
  }

  reset() {
    this.centre = this.home.map(([low, high]) => (low + high) / 2);
    this.zoom = 1;
    [this.yaw, this.pitch] = [-0.6, 0.5];
    this.#changed();
  }

  /** Come closer by a factor, keeping a place (in fractions of the picture) where it is. */
  zoomBy(factor, [u, v] = [0.5, 0.5]) {
    const before = this.dims === 2 ? this.toSpace(u, v) : null;
    this.zoom = Math.min(1000, Math.max(0.02, this.zoom * factor));
    if (before) {
      const after = this.toSpace(u, v);
      this.centre = this.centre.map((c, axis) => c + before[axis] - after[axis]);
    }
    this.#changed();
  }

  /** Turn (in space) or shift (in the plane) by fractions of the picture. */
  moveBy(du, dv) {
    if (this.dims === 2) {
      const [width, height] = this.#window();
      this.centre = [this.centre[0] - du * width, this.centre[1] + dv * height];
    } else {
      this.yaw += 4 * du;
      this.pitch = Math.min(1.5, Math.max(-1.5, this.pitch + 4 * dv));
    }
    this.#changed();
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }

  /** Width and height of what is seen in the plane. */
  #window() {
    const [width, height] = this.home.map(([low, high]) => high - low);
    const seen = Math.max(width, height * this.aspect) / this.zoom;
    return [seen, seen / this.aspect];
  }

  /** From space to the clip space of the graphics card, column after column. */
  matrix() {
    if (this.dims === 2) {
      const [width, height] = this.#window();
      const [sx, sy] = [2 / width, 2 / height];
      return new Float32Array([sx, 0, 0, 0, 0, sy, 0, 0, 0, 0, 1, 0, -sx * this.centre[0], -sy * this.centre[1], 0, 1]);
    }
    const radius = Math.hypot(...this.home.map(([low, high]) => high - low)) / 2;
    const [cy, sy, cp, sp] = [Math.cos(this.yaw), Math.sin(this.yaw), Math.cos(this.pitch), Math.sin(this.pitch)];
    // The third axis points up; rows are right, up and towards the eye.
    const rows = [[cy, -sy, 0], [sy * sp, cy * sp, cp], [-sy * cp, -cy * cp, sp]];
    const scale = [this.zoom / (radius * this.aspect), this.zoom / radius, -0.5 / radius];
    const [r, u, n] = rows.map((row, k) => row.map((entry) => entry * scale[k]));
    const shift = [r, u, n].map((row) => -row.reduce((sum, entry, axis) => sum + entry * this.centre[axis], 0));
    return new Float32Array([r[0], u[0], n[0], 0, r[1], u[1], n[1], 0, r[2], u[2], n[2], 0, ...shift, 1]);
  }

  /** From fractions of the picture (from its upper left corner) to the plane. */
  toSpace(u, v) {
    const [width, height] = this.#window();
    return [this.centre[0] + (u - 0.5) * width, this.centre[1] + (0.5 - v) * height];
  }

  /** From space to fractions of the picture. */
  toPicture(x, y, z = 0) {
    const m = this.matrix();
    const clip = [0, 1].map((row) => m[row] * x + m[4 + row] * y + m[8 + row] * z + m[12 + row]);
    return [(clip[0] + 1) / 2, (1 - clip[1]) / 2];
  }
}
