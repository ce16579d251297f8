// Surrogate, solver and difference side by side: one colour scale, one camera, one pointer.

import { rangeAroundZero, rangeOf, relativeError } from "./arrays.js";
import { Camera } from "./camera.js";
import { ColourBar } from "./colourbar.js";
import { diverging, sequential } from "./colours.js";
import { find, formatNumber } from "./dom.js";
import { aired, Plot } from "./plot.js";
import { valuesAt } from "./result.js";
import { FieldView } from "./view.js";

const NAMES = { surrogate: "Surrogate", solver: "Solver", difference: "Surrogate minus solver" };

export class Pictures {
  /** boards: elements by the names above; moved(place): the pointer is elsewhere. */
  constructor(boards, model) {
    Object.assign(this, { boards, model, views: {}, bars: {}, camera: null, range: null, shown: null });
    for (const [name, board] of Object.entries(boards)) this.bars[name] = new ColourBar(find(".colourbar", board));
  }

  /** shown: {surrogate, solver | null: results, channel, frame, band: whether the band's width is shown}. */
  show(shown) {
    const { surrogate } = shown;
    const fresh = !this.camera || this.camera.dims !== surrogate.mesh.dims;
    if (this.shown?.channel !== shown.channel || this.shown?.band !== shown.band) this.range = null;
    this.shown = shown;
    if (fresh && surrogate.mesh.dims > 1) this.camera = new Camera(surrogate.mesh, this.model.view);
    if (surrogate.mesh.dims === 1) this.#series();
    else this.#fields();
    this.#read(this.place);
  }

  clear(name) {
    this.views[name]?.remove();
    delete this.views[name];
    this.bars[name].clear();
    find(".reading", this.boards[name]).textContent = "";
  }

  remove() {
    for (const name of Object.keys(this.boards)) this.clear(name);
  }

  #fields() {
    const { surrogate, solver, channel, frame, band } = this.shown;
    const values = band ? surrogate.halfWidth(channel, frame) : surrogate.values(channel, frame);
    const truth = solver && !band ? solver.values(channel, frame) : null;
    this.#widen(band ? [values] : [...everyFrame(surrogate, channel), ...(solver ? everyFrame(solver, channel) : [])]);
    const name = band ? `half width of the band of ${channel.name}` : channel.name;
    this.#field("surrogate", { mesh: surrogate.meshAt(frame), values, range: this.range, table: sequential, name, unit: channel.unit });
    if (!truth) return;
    const { mesh } = solver;
    this.#field("solver", { mesh: solver.meshAt(frame), values: truth, range: this.range, table: sequential, name, unit: channel.unit });
    const apart = this.#apart(mesh);
    this.#field("difference", {
      mesh: solver.meshAt(frame), values: apart, range: rangeAroundZero(apart), table: diverging, name: `difference of ${channel.name}`, unit: channel.unit,
    });
  }

  #field(name, field) {
    this.views[name] ??= new FieldView(find(".stage", this.boards[name]), {
      label: NAMES[name], camera: this.camera, pointed: (place) => this.#read(place),
    });
    this.views[name].show(field);
    this.bars[name].show(field);
  }

  #series() {
    const { surrogate, solver, channel, frame } = this.shown;
    const [x, y] = [surrogate.mesh.positions, surrogate.values(channel, frame)];
    const [low, high] = surrogate.bands ? ["lower", "upper"].map((side) => surrogate.values(channel, frame, side)) : [null, null];
    const truth = solver ? solver.values(channel, frame) : null;
    this.#widen([y, low, high, truth]);
    const axes = { x: rangeOf(x), y: aired(this.range), xLabel: "x", yLabel: channel.unit ? `${channel.name} (${channel.unit})` : channel.name };
    const mine = { name: "Surrogate", x, y, class: "surrogate" };
    const bands = low ? [{ name: "Band", x, low, high }] : [];
    this.#plot("surrogate", { ...axes, curves: [mine], bands });
    if (!truth) return;
    const exact = { name: "Solver", x: solver.mesh.positions, y: truth, class: "solver" };
    this.#plot("solver", { ...axes, curves: [exact, mine], bands });
    const apart = this.#apart(solver.mesh);
    this.#plot("difference", { ...axes, y: aired(rangeAroundZero(apart)), yLabel: "surrogate minus solver",
      curves: [{ x: exact.x, y: apart, class: "surrogate" }] });
  }

  #plot(name, content) {
    const stage = find(".stage", this.boards[name]);
    stage.classList.add("plotted");
    this.views[name] ??= new Plot(stage, { label: NAMES[name], height: 300, pointed: (place) => this.#read(place) });
    this.views[name].show(content);
  }

  /** Wider at once where values need it, narrower only when much narrower will do: colours should not flicker. */
  #widen(arrays) {
    const now = rangeOf(...arrays);
    const [low, high] = this.range ?? now;
    const close = this.range && now[0] >= low && now[1] <= high && now[1] - now[0] > 0.6 * (high - low);
    if (!close) this.range = now;
  }

  #apart(mesh) {
    const { surrogate, solver, channel, frame } = this.shown;
    const [ours, theirs] = [valuesAt(mesh, surrogate, channel, frame), solver.values(channel, frame)];
    return theirs.map((value, k) => ours[k] - value);
  }

  /** Relative L2 error over all frames, at the solver's points. */
  get error() {
    const { surrogate, solver, channel } = this.shown;
    const frames = Array.from({ length: solver.frames }, (_, frame) => frame);
    const ours = frames.map((frame) => valuesAt(solver.mesh, surrogate, channel, frame));
    const theirs = frames.map((frame) => solver.values(channel, frame));
    return relativeError(joined(ours), joined(theirs));
  }

  /** The share of the solver's points, over all frames, at which its field lies inside the band; null without one. */
  get inside() {
    const { surrogate, solver, channel } = this.shown;
    if (!surrogate.bands) return null;
    let [count, held] = [0, 0];
    for (let frame = 0; frame < solver.frames; frame += 1) {
      const [low, high] = ["lower", "upper"].map((side) => valuesAt(solver.mesh, surrogate, channel, frame, side));
      solver.values(channel, frame).forEach((value, k) => {
        if (Number.isNaN(low[k])) return;
        count += 1;
        held += value >= low[k] && value <= high[k] ? 1 : 0;
      });
    }
    return held / count;
  }

  /** The value under the pointer, in all pictures. */
  #read(place) {
    this.place = place;
    for (const [name, view] of Object.entries(this.views)) {
      const line = find(".reading", this.boards[name]);
      if (!place) {
        line.textContent = "";
        if (view.point) view.point(null);
        continue;
      }
      const { unit, labels } = this.shown.channel;
      const found = view.point ? view.point(place) : this.#onCurve(name, place[0]);
      // Between two points with labels there is no third one.
      const value = labels && !Number.isNaN(found) ? nearest(labels, found) : found;
      const where = place.slice(0, view.point ? this.camera.dims : 1).map((c, axis) => `${"xyz"[axis]} ${formatNumber(c)}`).join(", ");
      line.textContent = Number.isNaN(value) ? "" : `${where}: ${formatNumber(value, 4)}${unit ? ` ${unit}` : ""}`;
    }
  }

  #onCurve(name, x) {
    const { surrogate, solver, channel, frame } = this.shown;
    if (name === "difference") return surrogate.mesh.at(surrogate.values(channel, frame), x) - solver.mesh.at(solver.values(channel, frame), x);
    const result = name === "solver" ? solver : surrogate;
    return result.mesh.at(result.values(channel, frame), x);
  }
}

const nearest = (labels, value) => labels.reduce((best, label) => (Math.abs(label - value) < Math.abs(best - value) ? label : best));

const everyFrame = (result, channel) => Array.from({ length: result.frames }, (_, frame) => result.values(channel, frame));

function joined(arrays) {
  const all = new Float32Array(arrays.reduce((sum, each) => sum + each.length, 0));
  arrays.reduce((start, each) => { all.set(each, start); return start + each.length; }, 0);
  return all;
}
