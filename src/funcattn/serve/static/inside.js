// A look into the network: the basis functions of a layer and head, the map C between them, and what grids have instead.

import { inspect } from "./api.js";
import { decode, rangeAroundZero, rangeOf } from "./arrays.js";
import { Camera } from "./camera.js";
import { colourOf, diverging, sequential } from "./colours.js";
import { afterPause, find, formatNumber, h, slider } from "./dom.js";
import { meshOf } from "./mesh.js";
import { drawField } from "./view.js";

export class Inside {
  /** section: a `details`; request(): what was drawn, or null. */
  constructor(section, model, request) {
    Object.assign(this, { section, model, request, layer: 0, head: 0, count: 0, asked: null });
    find(".about", section).textContent = model.layers > 0 ? "" : "Nothing can be shown of this network: it has no layers of functional attention, or inputs that come as files only.";
    this.refresh = afterPause(250, () => this.#load());
    this.open = () => section.open && this.#load();
    section.addEventListener("toggle", this.open);
    this.choices = find(".choices", section);
    this.choices.replaceChildren();
    this.#message("");
    find(".bases", section).replaceChildren();
    find(".matrices", section).replaceChildren();
    if (section.open) this.refresh();
  }

  remove() {
    this.asked?.abort();
    this.section.removeEventListener("toggle", this.open);
    this.refresh = () => {};
  }

  /** What was drawn has changed. */
  changed() {
    if (this.section.open) this.refresh();
  }

  async #load() {
    const request = this.request();
    if (!(this.model.layers > 0) || !request) return;
    if (request.file) {
      this.#message("The inside is shown for what is drawn, not for files.");
      return;
    }
    this.asked?.abort();
    this.asked = new AbortController();
    try {
      this.#show(await inspect(this.model.name, { ...request, layer: this.layer, head: this.head }, this.asked.signal));
      this.#message("");
    } catch (error) {
      if (error.name !== "AbortError") this.#message(error.message);
    }
  }

  #message(text) {
    find(".message", this.section).textContent = text;
  }

  #controls({ layers, heads }) {
    if (this.choices.children.length) return;
    const pick = (label, name, count) => slider({
      label, min: 1, max: count, step: 1, value: this[name] + 1, words: (value) => `${value} of ${count}`,
      change: (value) => { this[name] = value - 1; this.refresh(); },
    }).element;
    this.choices.replaceChildren(...[layers > 1 ? pick("Layer", "layer", layers) : null, heads > 1 ? pick("Head", "head", heads) : null].filter(Boolean));
  }

  #show(reply) {
    this.#controls(reply);
    find(".about", this.section).textContent = reply.about;
    const bases = find(".bases", this.section);
    const places = reply.places ?? reply.positions;
    const field = reply.basis ?? reply.coefficient;
    bases.replaceChildren();
    if (field && places) {
      this.mesh = meshOf({ ...reply, positions: places }, this.mesh);
      const { data, shape } = decode(field);
      const [functions, points] = reply.basis ? shape : [1, shape[0]];
      bases.replaceChildren(...Array.from({ length: functions }, (_, k) => (reply.basis ? this.#thumbnail(k, functions) : this.#coefficient(data))));
      const camera = this.mesh.dims > 1 ? new Camera(this.mesh, this.model.view) : null;
      [...bases.children].forEach((figure, k) => this.#draw(find("canvas", figure), data.subarray(k * points, (k + 1) * points), camera));
    }
    find(".matrices", this.section).replaceChildren(...[
      reply.gains ? this.#gains(decode(reply.gains), reply.along_axes) : null,
      reply.map ? matrix("Map C", decode(reply.map), { table: diverging, range: rangeAroundZero(decode(reply.map).data) }) : null,
    ].filter(Boolean));
  }

  /** One number per wave, the longest first; on a line as one row. */
  #gains({ data, shape }, alongAxes) {
    const { periodic } = this.model;
    // On a torus the rows are in the order -m, ..., m - 1.
    const waves = (i, j) => `waves ${periodic ? i - shape[0] / 2 : i} and ${j}`;
    return matrix("Strength of each wave", { data, shape: shape.length === 1 ? [1, ...shape] : shape }, {
      table: sequential, range: [0, rangeOf(data)[1]],
      name: (i, j) => (shape.length === 1 ? `wave ${j}` : alongAxes ? `axis ${i + 1}, wave ${j}` : waves(i, j)),
    });
  }

  #coefficient(data) {
    const [low, high] = rangeOf(data).map((value) => formatNumber(value));
    return h("figure", { class: "large" },
      h("canvas", { role: "img", "aria-label": `The coefficient that the block has learned to see, from ${low} to ${high}` }),
      h("figcaption", {}, "Learned coefficient", h("span", {}, `${low} (dark) to ${high} (bright)`)));
  }

  #thumbnail(k, count) {
    return h("figure", {}, h("canvas", { role: "img", "aria-label": `Basis function ${k + 1} of ${count}` }));
  }

  #draw(canvas, values, camera) {
    const aspect = camera ? camera.aspect : 1.4;
    const width = canvas.getBoundingClientRect().width || 84;
    canvas.style.setProperty("aspect-ratio", String(aspect));
    if (camera) {
      drawField(canvas, { mesh: this.mesh, values, range: rangeOf(values), table: sequential, matrix: camera.matrix() }, width, width / aspect);
      return;
    }
    Object.assign(canvas, { width: 2 * width, height: (2 * width) / aspect });
    const context = canvas.getContext("2d");
    const [[left, right], [low, high]] = [this.mesh.bounds[0], rangeOf(values)];
    context.lineWidth = 2.5;
    context.strokeStyle = getComputedStyle(canvas).color;
    values.forEach((value, k) => context.lineTo(
      ((this.mesh.positions[k] - left) / (right - left)) * canvas.width,
      canvas.height * (0.95 - (0.9 * (value - low)) / (high - low)),
    ));
    context.stroke();
  }
}

/** A matrix as a picture that tells its entries. */
function matrix(title, { data, shape: [rows, columns] }, { table, range, name = (i, j) => `row ${i + 1}, column ${j + 1}` }) {
  const [low, high] = rangeOf(data).map((value) => formatNumber(value));
  const canvas = h("canvas", { role: "img", "aria-label": `${title}, ${rows} by ${columns}, entries from ${low} to ${high}`, width: columns, height: rows });
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  data.forEach((value, k) => image.data.set([...colourOf(value, range, table), 255], 4 * k));
  context.putImageData(image, 0, 0);
  const rest = `${rows} \u00d7 ${columns}, from ${low} to ${high}`;
  const reading = h("span", { class: "reading" }, rest);
  canvas.style.setProperty("aspect-ratio", String(Math.min(8, columns / rows)));
  canvas.onpointerleave = () => { reading.textContent = rest; };
  canvas.onpointermove = (event) => {
    const box = canvas.getBoundingClientRect();
    const [i, j] = [Math.floor(((event.clientY - box.top) / box.height) * rows), Math.floor(((event.clientX - box.left) / box.width) * columns)];
    if (i >= 0 && j >= 0 && i < rows && j < columns) reading.textContent = `${name(i, j)}: ${formatNumber(data[i * columns + j])}`;
  };
  return h("figure", { class: "matrix" }, canvas, h("figcaption", {}, title, reading));
}
