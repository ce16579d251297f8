// What editors share. An editor is made by `create(stage, tools, model, changed)` and has
//   request()        what to send: {parameters}, {file, parameters}, or null while there is nothing to ask
//   set(parameters)  optional: take a drawing that the service made
//   save(), load()   its drawing as bytes for the address, and back; load says whether it could
//   showInput(mesh)  optional: the geometry that the service built from the drawing
//   showResult(...)  optional: what the surrogate said
//   remove()         let go of everything
// It calls `changed(event)` whenever the drawing changes.

import { random } from "../api.js";
import { announce, button } from "../dom.js";

/** Earlier states of a drawing, and the button and keys that bring them back. */
export class Undo {
  constructor(restore) {
    this.states = [];
    this.restore = restore;
    this.button = button("Undo", () => this.undo(), { disabled: true });
  }

  /** Remember a state before it changes. */
  keep(state) {
    this.states.push(state);
    if (this.states.length > 100) this.states.shift();
    this.button.disabled = false;
  }

  undo() {
    if (!this.states.length) return;
    this.restore(this.states.pop());
    this.button.disabled = !this.states.length;
    announce("Undone.");
  }

  /** Whether a key press asked for it. */
  heard(event) {
    if (!(event.key === "z" && (event.ctrlKey || event.metaKey))) return false;
    event.preventDefault();
    this.undo();
    return true;
  }
}

/** Text of an object as bytes, and back; null where the bytes are no such text. */
export const toBytes = (object) => new TextEncoder().encode(JSON.stringify(object));
export function fromBytes(bytes) {
  try {
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    return null;
  }
}

/** The button that asks the service for a drawing by chance; nothing where it has none. */
export function randomButton(label, editor, { name }, take) {
  if (!editor.random) return null;
  return button(label, async () => {
    try {
      take(await random(name));
    } catch (error) {
      announce(error.message, true);
    }
  });
}

export const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
