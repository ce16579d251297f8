// Elements in one call, and the page's voice for people who do not see it.

/** An element: attributes (functions listen, `false` and `null` leave out), then children. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for a piece of a drawing. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const find = (selector, within = document) => within.querySelector(selector);

/** Say something to screen readers; `urgently` interrupts what they are reading. */
export function announce(text, urgently = false) {
  const voice = find(urgently ? "#alert" : "#status");
  // The same text twice in a row is a new message too.
  voice.textContent = voice.textContent === text ? `${text}\u00a0` : text;
}

let labels = 0;

/** A slider with its label and its value in words; `change` gets the number. */
export function slider({ label, min, max, step, value, words = formatNumber, change }) {
  const id = `slider-${(labels += 1)}`;
  const output = h("output", { for: id }, words(value));
  const input = h("input", { id, type: "range", min, max, step, value, "aria-valuetext": words(value) });
  const set = (number) => {
    input.value = number;
    output.textContent = words(Number(input.value));
    input.setAttribute("aria-valuetext", output.textContent);
  };
  input.addEventListener("input", () => {
    set(input.value);
    change(Number(input.value));
  });
  const element = h("div", { class: "slider" }, h("label", { for: id }, label), output, input);
  return { element, input, set, get value() { return Number(input.value); } };
}

export function button(label, click, attributes = {}) {
  return h("button", { type: "button", click, ...attributes }, label);
}

/** Choices of which one holds, as radio buttons in a row. */
export function choice({ legend, options, value, change, hidden = false }) {
  const name = `choice-${(labels += 1)}`;
  const inputs = options.map((option) =>
    h("input", {
      type: "radio", name, value: option.value, checked: option.value === value,
      change: () => change(option.value),
    }));
  const rows = options.map((option, k) => h("label", {}, inputs[k], h("span", {}, ...[option.mark ?? null, option.label])));
  const element = h("fieldset", { class: "choice" }, h("legend", { class: hidden ? "unseen" : null }, legend), ...rows);
  return { element, set(next) { for (const input of inputs) input.checked = input.value === String(next); } };
}

/** Numbers as people read them: three figures, and powers of ten only where they help. */
export function formatNumber(value, figures = 3) {
  if (!Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size >= 1e5 || size < 1e-3
    ? String(value.toExponential(figures - 1)).replace(/\.?0*e\+?/, " × 10^")
    : String(Number(value.toPrecision(figures)));
  return raised(text).replace("-", "\u2212");
}

/** "10^-4" with a raised exponent. */
function raised(text) {
  const figures = { "-": "\u207b", 0: "\u2070", 1: "\u00b9", 2: "\u00b2", 3: "\u00b3", 4: "\u2074",
    5: "\u2075", 6: "\u2076", 7: "\u2077", 8: "\u2078", 9: "\u2079" };
  return text.replace(/\^(-?\d+)/, (_, power) => [...power].map((c) => figures[c]).join(""));
}

export function formatSeconds(seconds) {
  return seconds < 0.0095 ? `${Number((1000 * seconds).toPrecision(2))}\u00a0ms` : `${Number(seconds.toPrecision(2))}\u00a0s`;
}

/** Call at most once per frame, with the latest arguments. */
export function perFrame(act) {
  let latest = null;
  return (...given) => {
    if (latest === null) requestAnimationFrame(() => {
      const now = latest;
      latest = null;
      act(...now);
    });
    latest = given;
  };
}

/** Call once people have paused for some milliseconds. */
export function afterPause(milliseconds, act) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...given), milliseconds);
  };
}
