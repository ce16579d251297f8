// The editor of each kind of input.

import * as curve from "./curve.js";
import * as handles from "./handles.js";
import * as paint from "./paint.js";
import * as points from "./points.js";
import * as sliders from "./sliders.js";
import * as stir from "./stir.js";
import * as upload from "./upload.js";

const KINDS = { curve, handles, paint, points, sliders, stir, upload };

export function createEditor(stage, tools, model, changed) {
  const { editor } = model;
  // Meshes of their own are what people bring to runs of their own.
  const kind = model.kind === "own" && editor.upload?.length ? upload : KINDS[editor.kind];
  if (!kind) throw new Error(`expected an editor of ${Object.keys(KINDS).join(", ")}, got ${editor.kind}`);
  return kind.create(stage, tools, model, changed);
}
