// One model on the table: what is drawn, what the surrogate says at once, what the solver says when asked.

import * as api from "./api.js";
import { rangeOf } from "./arrays.js";
import { Cut } from "./cut.js";
import { afterPause, announce, button, choice, find, formatNumber, formatSeconds, h, slider } from "./dom.js";
import { createEditor } from "./editors/index.js";
import { Inside } from "./inside.js";
import { Pictures } from "./pictures.js";
import { channelsOf, Result } from "./result.js";
import { Solving } from "./solving.js";
import * as state from "./state.js";

const board = (name) => find(`#${name}`);

export class Workbench {
  /** failed(error): the service is gone, or wants a token. */
  constructor(model, failed) {
    Object.assign(this, { model, failed, channels: channelsOf(model), frame: 0, refine: 1, band: false, solved: null, result: null });
    this.channel = this.channels[0];
    this.busy = this.dirty = this.removed = false;
    this.strokeAt = null;
    this.save = afterPause(250, () => this.#save());
  }

  /** Bring back what the address says, then ask. */
  async start({ d, r, o, t, c, b }) {
    const { model } = this;
    const drawn = () => this.request();
    this.editor = createEditor(find(".stage", board("input")), find(".tools", board("input")), model, (event) => this.#drawn(event));
    const bytes = d ? await state.unpack(d) : null;
    if (d && !(bytes && this.editor.load(bytes))) announce("The drawing in the address could not be read.", true);
    if (model.refine?.includes(Number(r))) this.refine = Number(r);
    this.channel = this.channels.find((each) => each.key === o) ?? this.channel;
    this.band = Boolean(model.bands && b);
    this.frame = Math.min(Math.max(0, Number(t) || 0), (model.frames ?? 1) - 1);
    this.pictures = new Pictures({ surrogate: board("surrogate"), solver: board("solver"), difference: board("difference") }, model);
    this.cut = new Cut(board("cut"), () => this.save());
    if (c) this.cut.state = c;
    this.inside = new Inside(board("inside"), model, drawn);
    board("solver").hidden = !model.solver;
    board("difference").hidden = true;
    board("cut").hidden = true;
    board("solver").classList.remove("stale");
    this.solving = new Solving(board("solver"), model, {
      request: drawn, answered: (reply) => this.#answered(reply), failed: this.failed,
    });
    this.#controls();
    this.#downloads();
    if (!this.request()) find(".stage", board("surrogate")).replaceChildren(h("p", { class: "empty" }, "The field of your file appears here."));
    await this.predict();
  }

  remove() {
    this.removed = true;
    clearInterval(this.playing);
    for (const part of [this.editor, this.solving, this.inside, this.cut, this.pictures]) part?.remove();
    for (const name of ["surrogate", "solver", "difference", "cut"]) find(".stage", board(name)).classList.remove("plotted");
    for (const element of document.querySelectorAll("main .message, main .warnings, main .time, main .spent, main .promise")) element.textContent = "";
    find("#verdict").hidden = true;
  }

  /** What is asked about, as the service takes it; null while there is nothing to ask. */
  request() {
    const request = this.editor.request();
    return request && (this.refine > 1 && !request.file ? { ...request, refine: this.refine } : request);
  }

  #drawn(event) {
    this.strokeAt ??= event?.timeStamp ?? performance.now();
    this.solving.changed();
    this.inside.changed();
    this.#compare();
    this.save();
    this.predict();
  }

  /** One request at a time: what is drawn meanwhile is asked about in the next one. */
  async predict() {
    if (this.busy) {
      this.dirty = true;
      return;
    }
    this.busy = true;
    do {
      this.dirty = false;
      const strokeAt = this.strokeAt;
      this.strokeAt = null;
      try {
        const request = this.request();
        if (request) this.#predicted(await (request.file ? api.predictFile : api.predict)(this.model.name, request), strokeAt);
      } catch (error) {
        await this.#refused(error);
      }
    } while (this.dirty && !this.removed);
    this.busy = false;
  }

  async #refused(error) {
    if (this.removed) return;
    if (error.kind === "busy") {
      this.dirty = true;
      await new Promise((resolve) => { setTimeout(resolve, 1000 * error.retryAfter); });
    } else if (error.kind === "gone" || error.kind === "token") this.failed(error);
    else if (error.kind) this.#complain(error.message);
    else throw error;
  }

  /** A refusal is told where the drawing is. */
  #complain(text) {
    const message = find(".message", board("input"));
    if (message.textContent !== text) message.textContent = text;
  }

  #predicted(reply, strokeAt) {
    if (this.removed) return;
    this.#complain("");
    this.result = new Result(reply, this.model, this.result);
    this.editor.showInput?.(this.result.mesh, this.result);
    if (this.editor.showResult) this.#showCurve();
    this.#show();
    find(".time", board("surrogate")).textContent = formatSeconds(this.result.seconds);
    this.#warn(this.result.warnings);
    if (strokeAt === null) return;
    requestAnimationFrame(() => {
      const { duration } = performance.measure("stroke to picture", { start: strokeAt, end: performance.now() });
      find(".spent", board("surrogate")).textContent = `${Math.round(duration)} ms from stroke to picture`;
    });
  }

  /** Said again only where it is another warning: screen readers read each of them. */
  #warn(texts) {
    const said = texts.join("\n");
    if (this.warned === said) return;
    this.warned = said;
    const first = texts.slice(0, 2).map((text) => `${text.replace(/^./, (letter) => letter.toUpperCase())}.`);
    if (texts.length > 2) first.push(`And ${texts.length - 2} more of this kind.`);
    find(".warnings", board("surrogate")).replaceChildren(...first.map((text) => h("p", {}, text)));
  }

  /** What the band of the run promises for this picture. */
  #promise() {
    const { result, model, channel, frame } = this;
    const line = find(".promise", board("surrogate"));
    line.hidden = !result.bands;
    if (line.hidden) return;
    const most = rangeOf(result.halfWidth(channel, frame))[1];
    const text = `Band: at most \u00b1${formatNumber(most, 2)}${channel.unit ? `\u00a0${channel.unit}` : ""}. `
      + `For ${formatNumber(100 * model.bands.coverage)}\u00a0% of inputs like those of training, the truth lies inside at every point.`;
    const finer = result.mesh.count > model.bands.points ? " At this resolution it is an estimate." : "";
    line.textContent = text + (result.warnings.length ? " This input is not like them, so that nothing is promised." : finer);
  }

  /** The curve that an editor of observations draws itself. */
  #showCurve() {
    const { result, channel } = this;
    const side = (name) => (result.bands ? result.values(channel, 0, name) : null);
    this.editor.showResult({ x: result.mesh.positions, y: result.values(channel), low: side("lower"), high: side("upper") });
  }

  #show() {
    if (!this.result) return;
    const { channel, frame, band } = this;
    this.pictures.show({ surrogate: this.result, solver: this.solved, channel, frame, band });
    const { camera } = this.pictures;
    find("#boards").classList.toggle("broad", !camera || camera.aspect > 1.7);
    find("#boards").style.setProperty("--aspect", camera?.aspect ?? 2);
    find("#boards").classList.toggle("solo", Boolean(this.editor.showResult));
    this.cut.show(this.pictures, band);
    this.#promise();
    this.#compare();
    if (this.bandChoice) this.bandChoice.element.hidden = !(this.result.bands && this.result.mesh.dims > 1);
  }

  #answered(reply) {
    this.solved = new Result(reply, this.model, this.result);
    board("difference").hidden = false;
    this.#show();
    announce(find("#verdict").textContent);
  }

  /** Both times and the error, as long as the solver's answer is that of the drawing. */
  #compare() {
    const stale = board("solver").classList.contains("stale");
    if (stale && this.solved) {
      this.solved = null;
      board("difference").hidden = true;
      this.pictures.clear("difference");
    }
    const verdict = find("#verdict");
    verdict.hidden = !this.solved || !this.result;
    if (verdict.hidden) return;
    const [fast, slow] = [this.result.seconds, this.solved.seconds];
    const { error } = this.pictures;
    const percent = `${formatNumber(100 * error, 2)}\u00a0%`;
    find(".time", board("difference")).textContent = percent;
    const ratio = slow / fast;
    const words = ratio >= 1.5 ? `The surrogate is ${formatNumber(ratio, 2)} times as fast.`
      : ratio <= 1 / 1.5 ? `The solver is ${formatNumber(1 / ratio, 2)} times as fast.` : "Both take about as long.";
    verdict.replaceChildren(
      h("p", { class: "times" }, h("b", {}, formatSeconds(fast)), " against ", h("b", {}, formatSeconds(slow))),
      h("p", {}, `${words} Relative L2 error: ${percent}.${this.#held()}`));
  }

  /** Whether the band kept its promise this time. */
  #held() {
    const share = this.pictures.inside;
    if (share === null) return "";
    return share === 1 ? " The solver\u2019s field lies inside the band at every point."
      : ` The solver\u2019s field leaves the band at ${formatNumber(100 * (1 - share), 2)}\u00a0% of the points.`;
  }

  #controls() {
    const { model, channels } = this;
    const items = [];
    if (channels.length > 1) {
      const select = h("select", { id: "channel", change: () => this.#set({ channel: channels[select.selectedIndex] }) },
        ...channels.map((each) => h("option", { selected: each === this.channel }, each.name)));
      items.push(h("div", { class: "slider" }, h("label", { for: "channel" }, "Field"), select));
    }
    if (model.refine?.length > 1) {
      const steps = model.refine;
      const points = (k) => model.grid?.map((n) => (model.periodic ? n * steps[k] : (n - 1) * steps[k] + 1)).join("\u2009\u00d7\u2009");
      items.push(slider({
        label: "Resolution", min: 0, max: steps.length - 1, step: 1, value: steps.indexOf(this.refine),
        words: (k) => `${steps[k]}\u00d7 the training grid${points(k) ? `, ${points(k)}` : ""}`,
        change: (k) => { this.refine = steps[k]; this.strokeAt ??= performance.now(); this.save(); this.predict(); this.inside.changed(); },
      }).element);
    }
    if (model.frames > 1) items.push(...this.#player());
    if (model.bands) {
      this.bandChoice = choice({
        legend: "Show", value: this.band ? "band" : "field",
        options: [{ value: "field", label: "Field" }, { value: "band", label: "Half width of its band" }],
        change: (value) => this.#set({ band: value === "band" }),
      });
      this.bandChoice.element.hidden = true;
      items.push(this.bandChoice.element);
    }
    find("#controls").replaceChildren(...items);
    find("#controls").hidden = !items.length;
  }

  #player() {
    const { frames } = this.model;
    const time = slider({
      label: "Frame", min: 1, max: frames, step: 1, value: this.frame + 1, words: (value) => `${value} of ${frames}`,
      change: (value) => this.#set({ frame: value - 1 }),
    });
    const play = button("Play", () => {
      clearInterval(this.playing);
      const start = play.textContent === "Play";
      play.textContent = start ? "Pause" : "Play";
      if (!start) return;
      this.playing = setInterval(() => {
        const next = (this.frame + 1) % frames;
        time.set(next + 1);
        this.#set({ frame: next });
      }, 350);
    });
    return [h("div", { class: "player" }, time.element, play)];
  }

  #set(changes) {
    Object.assign(this, changes);
    this.#show();
    this.save();
  }

  #downloads() {
    const own = this.model.kind === "own";
    const tools = find(".tools", board("surrogate"));
    tools.replaceChildren();
    if (!own) return;
    const series = this.model.frames > 1;
    tools.append(button(series ? "Download the result" : "Download VTU", async () => {
      const request = this.request();
      if (!request) return this.#complain("Choose a mesh file first.");
      try {
        const { blob, ending } = await api.download(this.model.name, request, series);
        const link = h("a", { href: URL.createObjectURL(blob), download: `${this.model.name}.${ending}` });
        link.click();
        URL.revokeObjectURL(link.href);
        announce("The file was downloaded.");
      } catch (error) {
        await this.#refused(error);
      }
      return undefined;
    }));
  }

  async #save() {
    if (this.removed) return;
    const d = await state.pack(this.editor.save());
    if (this.removed) return;
    state.write({
      name: this.model.name, d, r: this.refine > 1 ? this.refine : "", o: this.channel === this.channels[0] ? "" : this.channel.key,
      t: this.frame || "", c: this.cut.state, b: this.band ? 1 : "",
    });
  }
}
