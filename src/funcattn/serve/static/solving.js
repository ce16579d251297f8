// The true solver on request: progress, cancel, and whether its answer is still that of the drawing.

import { solve } from "./api.js";
import { announce, button, find, formatSeconds, h } from "./dom.js";

export class Solving {
  /**
   * board: its element; request(): what to solve; answered(reply): the solver has ended;
   * failed(error): the service is gone.
   */
  constructor(board, model, { request, answered, failed }) {
    Object.assign(this, { board, model, request, answered, failed, running: null });
    this.call = find(".call", board);
    this.message = find(".message", board);
    this.time = find(".time", board);
    this.time.textContent = "";
    this.#offer("Ask the solver");
  }

  remove() {
    this.running?.abort();
  }

  /** The drawing has changed: a running solve is of no use, and an answer is of the past. */
  changed() {
    if (this.running) this.running.abort();
    if (this.answer) {
      this.board.classList.add("stale");
      this.#offer("Ask again");
    }
  }

  #offer(label, focus = false) {
    this.ask = button(label, () => this.start(), { class: "primary" });
    this.call.replaceChildren(this.ask);
    this.call.hidden = false;
    if (focus) this.ask.focus();
  }

  async start() {
    const had = document.activeElement === this.ask;
    this.running?.abort();
    const running = new AbortController();
    this.running = running;
    this.message.textContent = "";
    const bar = h("progress", { max: 1, "aria-label": "Progress of the solver" });
    const text = h("p", {}, "Waiting for the solver");
    const cancel = button("Cancel", () => running.abort());
    this.call.replaceChildren(text, bar, cancel);
    if (had) cancel.focus();
    announce("The solver has started.");
    const progress = (done, words) => {
      if (Number.isFinite(done)) bar.value = done;
      text.textContent = words || "Solving";
    };
    const used = () => this.call.contains(document.activeElement);
    try {
      const reply = await solve(this.model.name, this.request(), { progress, signal: running.signal });
      this.answer = reply;
      this.board.classList.remove("stale");
      const focused = used();
      this.call.hidden = true;
      if (focused) find(".stage", this.board).focus();
      this.time.textContent = formatSeconds(reply.seconds);
      this.answered(reply);
    } catch (error) {
      // Of a solve that another one has replaced nobody wants to hear.
      if (this.running !== running) return;
      const focused = used();
      if (error.name === "AbortError") announce("The solver was cancelled.");
      else {
        this.message.textContent = error.kind === "busy" ? "The solver is busy. Try again in a moment." : error.message;
        if (error.kind === "gone") this.failed(error);
      }
      this.#offer(this.answer ? "Ask again" : "Ask the solver", focused);
    } finally {
      if (this.running === running) this.running = null;
    }
  }
}
