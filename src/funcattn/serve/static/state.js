// The state of the page in its address, "#/darcy?r=2&d=...", so that a picture can be sent on.

import { fromBase64, toBase64 } from "./arrays.js";

/** What the address says: {name, ...rest}, all text. */
export function read() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { name: decodeURIComponent(path), ...Object.fromEntries(new URLSearchParams(query)) };
}

/** Write it without a new entry in the history; what is empty is left out. */
export function write({ name, ...rest }) {
  const kept = Object.entries(rest).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = new URLSearchParams(kept).toString();
  history.replaceState(null, "", `#/${encodeURIComponent(name)}${query ? `?${query}` : ""}`);
}

/** Bytes as short text for an address. */
export async function pack(bytes) {
  const packed = await through(bytes, new CompressionStream("deflate-raw"));
  return toBase64(packed).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** The bytes again; null where the text is damaged. */
export async function unpack(text) {
  try {
    const plain = text.replaceAll("-", "+").replaceAll("_", "/");
    return await through(fromBase64(plain.padEnd(Math.ceil(plain.length / 4) * 4, "=")), new DecompressionStream("deflate-raw"));
  } catch {
    return null;
  }
}

async function through(bytes, transform) {
  const stream = new Blob([bytes]).stream().pipeThrough(transform);
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
