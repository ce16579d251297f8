// Fields on triangles or points by the graphics card: one context for all pictures of the page.

const VERTEX = `#version 300 es
in vec3 position;
in float value;
uniform mat4 matrix;
uniform vec2 range;
uniform float size;
out float colour;
out vec3 place;
void main() {
  gl_Position = matrix * vec4(position, 1.0);
  gl_PointSize = size;
  place = gl_Position.xyz;
  colour = (value - range.x) / (range.y - range.x);
}`;

// Texels have their colours at their middles; a surface is darker where it turns away from the eye.
const FRAGMENT = `#version 300 es
precision highp float;
in float colour;
in vec3 place;
uniform sampler2D table;
uniform float shade;
uniform float round;
out vec4 result;
void main() {
  if (round > 0.5 && length(gl_PointCoord - 0.5) > 0.5) discard;
  if (isnan(colour)) discard;
  vec3 own = texture(table, vec2((clamp(colour, 0.0, 1.0) * 255.0 + 0.5) / 256.0, 0.5)).rgb;
  if (shade > 0.5) {
    vec3 normal = normalize(cross(dFdx(place), dFdy(place)) + 1e-12);
    own *= 0.55 + 0.45 * abs(normal.z);
  }
  result = vec4(own, 1.0);
}`;

/** A renderer, or null where the browser has no WebGL 2; on request also where no graphics card is behind it. */
export function webglRenderer({ evenSlow = false } = {}) {
  const canvas = document.createElement("canvas");
  // Software that plays a graphics card is far slower than the loops of raster.js.
  const gl = canvas.getContext("webgl2", { antialias: true, failIfMajorPerformanceCaveat: !evenSlow });
  return gl && (evenSlow || !inSoftware(gl)) ? new WebglRenderer(canvas, gl) : null;
}

/** Whether a processor plays the graphics card; not all browsers refuse that by themselves. */
function inSoftware(gl) {
  const more = gl.getExtension("WEBGL_debug_renderer_info");
  return /swiftshader|llvmpipe|software|basic render/i.test(gl.getParameter(more ? more.UNMASKED_RENDERER_WEBGL : gl.RENDERER));
}

class WebglRenderer {
  constructor(canvas, gl) {
    Object.assign(this, { canvas, gl, lost: false });
    canvas.addEventListener("webglcontextlost", () => { this.lost = true; });
    this.program = link(gl);
    this.places = Object.fromEntries(
      ["matrix", "range", "size", "shade", "round", "table"].map((name) => [name, gl.getUniformLocation(this.program, name)]),
    );
    this.values = gl.createBuffer();
    this.tables = new Map();
    this.meshes = new WeakMap();
    this.kept = [];
  }

  /** Draw a field and return the canvas, whose upper left width x height pixels it fills. */
  draw({ mesh, values, range, table, matrix, width, height }) {
    const { gl, canvas, places } = this;
    if (canvas.width < width || canvas.height < height) {
      canvas.width = Math.max(canvas.width, width);
      canvas.height = Math.max(canvas.height, height);
    }
    gl.viewport(0, canvas.height - height, width, height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    gl.useProgram(this.program);
    const surface = mesh.dims === 3;
    (surface ? gl.enable : gl.disable).call(gl, gl.DEPTH_TEST);
    gl.bindVertexArray(this.#buffers(mesh));
    gl.bindBuffer(gl.ARRAY_BUFFER, this.values);
    gl.bufferData(gl.ARRAY_BUFFER, values, gl.STREAM_DRAW);
    gl.enableVertexAttribArray(1);
    gl.vertexAttribPointer(1, 1, gl.FLOAT, false, 0, 0);
    gl.bindTexture(gl.TEXTURE_2D, this.#texture(table));
    gl.uniform1i(places.table, 0);
    gl.uniformMatrix4fv(places.matrix, false, matrix);
    gl.uniform2f(places.range, ...range);
    gl.uniform1f(places.shade, surface && mesh.triangles ? 1 : 0);
    gl.uniform1f(places.round, mesh.triangles ? 0 : 1);
    gl.uniform1f(places.size, pointSize(mesh, width, height));
    if (mesh.triangles) gl.drawElements(gl.TRIANGLES, mesh.triangles.length, gl.UNSIGNED_INT, 0);
    else gl.drawArrays(gl.POINTS, 0, mesh.count);
    return canvas;
  }

  /** The mesh on the graphics card; the few that were drawn last stay there. */
  #buffers(mesh) {
    const { gl } = this;
    if (!this.meshes.has(mesh)) {
      const [array, points, corners] = [gl.createVertexArray(), gl.createBuffer(), gl.createBuffer()];
      gl.bindVertexArray(array);
      gl.bindBuffer(gl.ARRAY_BUFFER, points);
      gl.bufferData(gl.ARRAY_BUFFER, mesh.positions, gl.STATIC_DRAW);
      gl.enableVertexAttribArray(0);
      gl.vertexAttribPointer(0, mesh.dims, gl.FLOAT, false, 0, 0);
      gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, corners);
      gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, mesh.triangles ?? new Uint32Array(0), gl.STATIC_DRAW);
      this.meshes.set(mesh, { array, points, corners });
      this.kept.push(mesh);
      if (this.kept.length > 8) this.#forget(this.kept.shift());
    }
    return this.meshes.get(mesh).array;
  }

  #forget(mesh) {
    const { array, points, corners } = this.meshes.get(mesh);
    this.gl.deleteVertexArray(array);
    this.gl.deleteBuffer(points);
    this.gl.deleteBuffer(corners);
    this.meshes.delete(mesh);
  }

  #texture(table) {
    const { gl } = this;
    if (!this.tables.has(table)) {
      const texture = gl.createTexture();
      gl.bindTexture(gl.TEXTURE_2D, texture);
      gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, 256, 1, 0, gl.RGBA, gl.UNSIGNED_BYTE, table);
      for (const side of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) gl.texParameteri(gl.TEXTURE_2D, side, gl.LINEAR);
      for (const side of [gl.TEXTURE_WRAP_S, gl.TEXTURE_WRAP_T]) gl.texParameteri(gl.TEXTURE_2D, side, gl.CLAMP_TO_EDGE);
      this.tables.set(table, texture);
    }
    return this.tables.get(table);
  }
}

/** Discs that nearly touch when the points fill the picture evenly. */
export function pointSize(mesh, width, height) {
  return Math.min(24, Math.max(1.5, 1.1 * Math.sqrt((width * height) / mesh.count)));
}

function link(gl) {
  const program = gl.createProgram();
  for (const [kind, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader));
    gl.attachShader(program, shader);
  }
  gl.bindAttribLocation(program, 0, "position");
  gl.bindAttribLocation(program, 1, "value");
  gl.linkProgram(program);
  return program;
}
