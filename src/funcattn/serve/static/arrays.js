// Arrays of numbers as the service sends and takes them: base64 of little-endian float32.

/** An array of the service, as {data: Float32Array, shape}; null stays null. */
export function decode(array) {
  if (array === null || array === undefined) return null;
  if (Array.isArray(array)) return { data: Float32Array.from(array.flat(Infinity)), shape: shapeOf(array) };
  const bytes = fromBase64(array.data);
  const kinds = { float32: Float32Array, float64: Float64Array, int32: Int32Array, uint32: Uint32Array, int64: BigInt64Array };
  const data = new kinds[array.dtype](bytes.buffer, 0, bytes.length / kinds[array.dtype].BYTES_PER_ELEMENT);
  if (array.dtype === "int64") return { data: Uint32Array.from(data, Number), shape: array.shape };
  return { data, shape: array.shape };
}

export function encode(data, shape = [data.length]) {
  const floats = data instanceof Float32Array ? data : Float32Array.from(data);
  return { dtype: "float32", shape, data: toBase64(new Uint8Array(floats.buffer, floats.byteOffset, floats.byteLength)) };
}

function shapeOf(nested) {
  return Array.isArray(nested) ? [nested.length, ...(nested.length ? shapeOf(nested[0]) : [])] : [];
}

export function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let k = 0; k < raw.length; k += 1) bytes[k] = raw.charCodeAt(k);
  return bytes;
}

export function toBase64(bytes) {
  if (bytes.toBase64) return bytes.toBase64();
  const pieces = [];
  // fromCharCode takes its letters as arguments, of which there is a limit.
  for (let k = 0; k < bytes.length; k += 0x8000) pieces.push(String.fromCharCode(...bytes.subarray(k, k + 0x8000)));
  return btoa(pieces.join(""));
}

/** Smallest and largest finite value of all arrays, never the same. */
export function rangeOf(...arrays) {
  let low = Infinity;
  let high = -Infinity;
  for (const array of arrays) {
    for (const value of array ?? []) {
      if (value < low && value > -Infinity) low = value;
      if (value > high && value < Infinity) high = value;
    }
  }
  if (low > high) return [0, 1];
  if (high - low > 1e-9 * Math.max(Math.abs(low), Math.abs(high))) return [low, high];
  const by = 0.1 * Math.abs(high) || 1;
  return [low - by, high + by];
}

/** The smallest range round zero that holds all values. */
export function rangeAroundZero(array) {
  const [low, high] = rangeOf(array);
  const most = Math.max(Math.abs(low), Math.abs(high));
  return [-most, most];
}

/** |a - b| / |b| in the Euclidean norm. */
export function relativeError(a, b) {
  let apart = 0;
  let size = 0;
  for (let k = 0; k < b.length; k += 1) {
    apart += (a[k] - b[k]) ** 2;
    size += b[k] ** 2;
  }
  return Math.sqrt(apart / size);
}
