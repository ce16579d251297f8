// The lines of a mesh, thin: what the geometry looks like that the service built from a drawing.

/** Draw into a canvas; toPicture: from space to fractions of the picture. */
export function drawLines(canvas, mesh, toPicture, colour) {
  const box = canvas.getBoundingClientRect();
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  Object.assign(canvas, { width: Math.round(box.width * ratio), height: Math.round(box.height * ratio) });
  const context = canvas.getContext("2d");
  const at = (k) => {
    const [u, v] = toPicture(mesh.positions[k * mesh.dims], mesh.positions[k * mesh.dims + 1]);
    return [u * canvas.width, v * canvas.height];
  };
  context.strokeStyle = colour;
  context.fillStyle = colour;
  context.lineWidth = 0.6 * ratio;
  if (mesh.grid?.length === 2) gridLines(context, mesh.grid, at);
  else if (mesh.triangles && mesh.triangles.length < 90000) edges(context, mesh.triangles, at);
  else dots(context, mesh.count, at, ratio);
}

/** At most about sixty lines per direction, the boundary among them and stronger. */
function gridLines(context, [rows, columns], at) {
  const line = (start, step, count) => {
    context.beginPath();
    for (let k = 0; k < count; k += 1) context.lineTo(...at(start + k * step));
    context.stroke();
  };
  const every = (count) => Math.max(1, Math.round(count / 60));
  context.globalAlpha = 0.5;
  for (let i = 0; i < rows; i += every(rows)) line(i * columns, 1, columns);
  for (let j = 0; j < columns; j += every(columns)) line(j, columns, rows);
  context.globalAlpha = 1;
  context.lineWidth *= 2.5;
  for (const i of [0, rows - 1]) line(i * columns, 1, columns);
  for (const j of [0, columns - 1]) line(j, columns, rows);
}

function edges(context, triangles, at) {
  context.globalAlpha = 0.6;
  context.beginPath();
  for (let t = 0; t < triangles.length; t += 3) {
    const corners = [0, 1, 2].map((c) => at(triangles[t + c]));
    context.moveTo(...corners[2]);
    for (const corner of corners) context.lineTo(...corner);
  }
  context.stroke();
  context.globalAlpha = 1;
}

function dots(context, count, at, ratio) {
  const every = Math.max(1, Math.ceil(count / 20000));
  for (let k = 0; k < count; k += every) {
    context.beginPath();
    context.arc(...at(k), 1.1 * ratio, 0, 2 * Math.PI);
    context.fill();
  }
}
