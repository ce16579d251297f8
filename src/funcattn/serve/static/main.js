// The page: which models there are, which one is on the table, and what to say when the service is gone.

import * as api from "./api.js";
import { announce, button, find, h } from "./dom.js";
import * as state from "./state.js";
import { Workbench } from "./workbench.js";

let models = [];
let bench = null;
let retry = 0;

async function start() {
  try {
    models = await api.models();
  } catch (error) {
    return lost(error, start);
  }
  window.addEventListener("hashchange", open);
  return open();
}

/** Put the model of the address on the table; the first one where it names none. */
async function open() {
  const { name, ...rest } = state.read();
  if (!models.length) return notice("This service has no models. Start it with one: funcattn serve RUN");
  const chosen = models.find((each) => each.name === name) ?? models[0];
  list(chosen.name);
  if (name && name !== chosen.name) notice(`There is no model \u201c${name}\u201d here. This is ${shortTitle(chosen)}.`, { fleeting: true });
  bench?.remove();
  bench = null;
  find("#title").textContent = shortTitle(chosen);
  find("#summary").textContent = restOfTitle(chosen) || chosen.summary;
  document.title = `${shortTitle(chosen)} \u2013 funcattn`;
  try {
    const model = await api.model(chosen.name);
    record(model);
    if (HINTS[model.editor.kind]) find("#summary").textContent += `${find("#summary").textContent && ". "}${HINTS[model.editor.kind]}`;
    const made = new Workbench(model, (error) => lost(error, () => made.predict()));
    bench = made;
    find("#bench").hidden = false;
    await made.start(chosen.name === name ? rest : {});
  } catch (error) {
    if (!error.kind) throw error;
    return error.kind === "gone" || error.kind === "token" ? lost(error, open) : notice(error.message);
  }
  return undefined;
}

function list(current) {
  find("#models").replaceChildren(...models.map((each) => h("li", {},
    h("a", { href: `#/${encodeURIComponent(each.name)}`, "aria-current": each.name === current ? "page" : null }, shortTitle(each)))));
  find("#models [aria-current]").scrollIntoView({ block: "nearest", inline: "nearest" });
}

/** "Darcy flow" of "Darcy flow: permeability to pressure", and what follows; runs of one's own go by their names. */
const shortTitle = ({ title, name, kind }) => (kind === "own" ? name : title || name).split(":")[0];
const restOfTitle = ({ title }) => (title ?? "").split(":").slice(1).join(":").trim().replace(/^./, (letter) => letter.toUpperCase());

/** What to do, by the kind of editor. */
const HINTS = {
  paint: "Paint, and the field follows the brush.",
  curve: "Draw a curve, and see what becomes of it.",
  handles: "Drag the points, and the field follows.",
  sliders: "Move the sliders, and the field follows.",
  stir: "Set and drag vortices, then play the frames.",
  points: "Click where you have observed something.",
  upload: "Bring a file of your own.",
};

function record({ record: made }) {
  const rows = made ? [
    ["Test error", made.error === null || made.error === undefined ? null : `${Number(made.error.toPrecision(3))} (${made.metric})`],
    ["Command", made.command && h("code", {}, made.command)],
    ["Seed", made.seed],
    ["Commit", made.commit && h("code", {}, String(made.commit).slice(0, 12))],
  ].filter(([, value]) => value !== null && value !== undefined) : [];
  find("#record").hidden = !rows.length;
  find("#record dl").replaceChildren(...rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

/** A message above everything; actions stand beside it. */
function notice(text, { actions = [], fleeting = false } = {}) {
  const box = find("#notice");
  box.replaceChildren(h("p", {}, text), ...actions);
  box.hidden = false;
  clearTimeout(notice.timer);
  if (fleeting) notice.timer = setTimeout(calm, 6000);
}

function calm() {
  find("#notice").hidden = true;
}

/** The service is gone, or wants a token: say so, and go on with `again` once that is over. */
function lost(error, again) {
  if (error.kind === "token") return askToken(again);
  if (error.kind !== "gone") return notice(error.message);
  if (retry) return undefined;
  let wait = 1;
  const attempt = async () => {
    clearTimeout(retry);
    try {
      await api.health();
    } catch {
      wait = Math.min(10, 2 * wait);
      return schedule();
    }
    retry = 0;
    calm();
    announce("The service is back.");
    return again();
  };
  const schedule = () => {
    notice(`The service does not answer. It may have ended, or the connection is gone. Trying again every ${wait === 1 ? "second" : `${wait} seconds`}.`,
      { actions: [button("Try now", attempt)] });
    retry = setTimeout(attempt, 1000 * wait);
  };
  schedule();
  return announce("The service does not answer.", true);
}

function askToken(again) {
  const input = h("input", { type: "password", id: "token", autocomplete: "off", required: true });
  const form = h("form", {
    submit: (event) => {
      event.preventDefault();
      api.setToken(input.value);
      calm();
      again();
    },
  }, h("label", { for: "token" }, "Token"), input, h("button", { type: "submit", class: "primary" }, "Go on"));
  notice("This service asks for a token. Whoever started it knows it.", { actions: [form] });
  input.focus();
}

find("#skip").addEventListener("click", (event) => {
  event.preventDefault();
  find("#work").focus();
});

start();
