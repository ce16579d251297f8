// A look into the network: the basis functions of a layer and head, and the map C between them.

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
    section.hidden = !(model.layers > 0);
    this.refresh = afterPause(250, () => this.#load());
    this.open = () => section.open && this.#load();
    section.addEventListener("toggle", this.open);
    this.choices = find(".choices", section);
    this.choices.replaceChildren();
    this.#message("");
    find(".bases", section).replaceChildren();
    find(".map", section).hidden = true;
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
    if (this.section.hidden || !request) return;
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
    const bases = find(".bases", this.section);
    if (reply.basis && (reply.places ?? reply.positions)) {
      this.mesh = meshOf({ ...reply, positions: reply.places ?? reply.positions }, this.mesh);
      const { data, shape } = decode(reply.basis);
      const [functions, points] = shape;
      bases.replaceChildren(...Array.from({ length: functions }, (_, k) => this.#thumbnail(k, functions)));
      const camera = this.mesh.dims > 1 ? new Camera(this.mesh) : null;
      [...bases.children].forEach((figure, k) => this.#draw(find("canvas", figure), data.subarray(k * points, (k + 1) * points), camera));
    } else bases.replaceChildren();
    this.#map(reply.map);
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

  #map(array) {
    const figure = find(".map", this.section);
    figure.hidden = !array;
    if (!array) return;
    const { data, shape: [rows, columns] } = decode(array);
    const canvas = find("canvas", figure);
    Object.assign(canvas, { width: columns, height: rows });
    const context = canvas.getContext("2d");
    const image = context.createImageData(columns, rows);
    const range = rangeAroundZero(data);
    data.forEach((value, k) => image.data.set([...colourOf(value, range, diverging), 255], 4 * k));
    context.putImageData(image, 0, 0);
    canvas.setAttribute("aria-label", `The map C, ${rows} by ${columns}, entries from ${formatNumber(rangeOf(data)[0])} to ${formatNumber(rangeOf(data)[1])}`);
    const reading = find(".reading", figure);
    const rest = `${rows} \u00d7 ${columns}, largest entry ${formatNumber(range[1])}`;
    reading.textContent = rest;
    canvas.onpointerleave = () => { reading.textContent = rest; };
    canvas.onpointermove = (event) => {
      const box = canvas.getBoundingClientRect();
      const [i, j] = [Math.floor(((event.clientY - box.top) / box.height) * rows), Math.floor(((event.clientX - box.left) / box.width) * columns)];
      reading.textContent = `row ${i + 1}, column ${j + 1}: ${formatNumber(data[i * columns + j])}`;
    };
  }
}
