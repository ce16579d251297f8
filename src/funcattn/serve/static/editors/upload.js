// A mesh from a file of people's own, with the numbers that belong to it. A file is not part of the address.

import { h } from "../dom.js";
import { fromBytes, toBytes } from "./common.js";
import { Controls } from "./sliders.js";
import { Preview } from "./preview.js";

export function create(stage, tools, model, changed) {
  return new Upload(stage, tools, model, changed);
}

class Upload {
  constructor(stage, tools, model, changed) {
    const { editor } = model;
    Object.assign(this, { stage, changed, file: null, drawn: editor.kind === "sliders" });
    this.controls = new Controls(editor.sliders ?? [], changed);
    stage.replaceChildren();
    this.preview = new Preview(stage, "The mesh");
    const endings = editor.upload.join(", ");
    const own = model.kind === "own";
    this.words = h("span", { class: "words" }, `Choose or drop a ${own ? "mesh " : ""}file (${endings})`);
    const input = h("input", { type: "file", accept: editor.upload.join(","), id: "upload", change: () => this.#take(input.files[0]) });
    const drop = h("label", {
      class: "drop", for: "upload",
      dragover: (event) => { event.preventDefault(); drop.classList.add("over"); },
      dragleave: () => drop.classList.remove("over"),
      drop: (event) => {
        event.preventDefault();
        drop.classList.remove("over");
        this.#take(event.dataTransfer.files[0]);
      },
    }, this.words, input);
    const help = h("p", { class: "help" }, "With the arrays that \u201cfuncattn predict\u201d takes: positions, values and grid.");
    tools.replaceChildren(drop, ...(own ? [] : [help]), ...this.controls.elements);
  }

  #take(file) {
    if (!file) return;
    this.file = file;
    this.controls.forget();
    this.words.textContent = file.name;
    this.changed();
  }

  request() {
    if (this.file) return { file: this.file, ...this.controls.moved };
    return this.drawn ? { parameters: this.controls.values } : null;
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
