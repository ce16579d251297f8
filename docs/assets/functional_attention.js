// Functional attention in one dimension, small enough to be computed while a slider moves.
// The same steps as funcattn.functional_attention with projection "average"; a test compares them.
"use strict";
(() => {
  const POINTS = 128, SHIFT = 0.2, WAVES = 7;

  const range = (n, f) => Array.from({ length: n }, (_, i) => f(i));
  const product = (a, b) => a.map(row => range(b[0].length, j => row.reduce((sum, x, k) => sum + x * b[k][j], 0)));
  const transposed = a => range(a[0].length, j => a.map(row => row[j]));

  // Keys are waves of x, queries the same waves of x - SHIFT: the map that carries one to the other is a shift.
  const waves = x => [1, ...range(WAVES, k => Math.sin(2 * Math.PI * (k + 1) * x)),
    ...range(WAVES, k => Math.cos(2 * Math.PI * (k + 1) * x))];
  const bump = (x, centre, width) => Math.exp((Math.cos(2 * Math.PI * (x - centre)) - 1) / width);
  const value = x => bump(x, 0.3, 0.05) - 0.6 * bump(x, 0.65, 0.15);

  // A softmax of a linear map of (cos, sin) over the temperature: at temperature 1 neighbours overlap well.
  function basisAt(x, bases, temperature) {
    const sharpness = (bases / (2 * Math.PI)) ** 2;
    const scores = range(bases, g => sharpness * Math.cos(2 * Math.PI * (x - (g + 0.5) / bases)) / temperature);
    const top = Math.max(...scores);
    const powers = scores.map(s => Math.exp(s - top));
    const total = powers.reduce((a, b) => a + b);
    return powers.map(p => p / total);
  }

  // The mean of a field under each function.
  function average(basis, field) {
    const mass = transposed(basis).map(column => column.reduce((a, b) => a + b));
    const floor = 1e-8 * mass.reduce((a, b) => a + b) / mass.length;
    return product(transposed(basis), field).map((row, g) => row.map(x => x / (mass[g] + floor)));
  }

  // The solution of A X = B for a symmetric positive A, by Cholesky's factor.
  function solved(a, b) {
    const n = a.length, l = range(n, () => new Array(n).fill(0)), x = b.map(row => [...row]);
    for (let i = 0; i < n; i++)
      for (let j = 0; j <= i; j++) {
        let sum = a[i][j];
        for (let k = 0; k < j; k++) sum -= l[i][k] * l[j][k];
        l[i][j] = i === j ? Math.sqrt(Math.max(sum, Number.MIN_VALUE)) : sum / l[j][j];
      }
    for (const column of b[0].keys()) {
      for (let i = 0; i < n; i++) {
        for (let k = 0; k < i; k++) x[i][column] -= l[i][k] * x[k][column];
        x[i][column] /= l[i][i];
      }
      for (let i = n - 1; i >= 0; i--) {
        for (let k = i + 1; k < n; k++) x[i][column] -= l[k][i] * x[k][column];
        x[i][column] /= l[i][i];
      }
    }
    return x;
  }

  function compute({ temperature, bases, ridge }) {
    const x = range(POINTS, i => i / POINTS);
    const basis = x.map(place => basisAt(place, bases, temperature));
    const given = x.map(place => [value(place)]);
    const q = average(basis, x.map(place => waves(place - SHIFT)));
    const k = average(basis, x.map(waves));
    const v = average(basis, given);
    const gram = product(k, transposed(k));
    const system = gram.map((row, i) => row.map((entry, j) => entry + (i === j ? ridge : 0)));
    const map = transposed(solved(system, product(k, transposed(q))));  // C = q~ k~' (k~ k~' + ridge)^-1
    const output = product(basis, product(map, v)).map(row => row[0]);
    const carried = x.map(place => value(place - SHIFT));
    const size = a => Math.sqrt(a.reduce((sum, e) => sum + e * e, 0));
    const error = size(output.map((o, i) => o - carried[i])) / size(carried);
    return { x, basis, value: given.map(row => row[0]), carried, map, output, error };
  }

  function line(x, y, low, high, attributes) {
    const path = x.map((place, i) => `${i ? "L" : "M"}${(place * 400).toFixed(2)},${(100 - 100 * (y[i] - low) / (high - low)).toFixed(2)}`);
    return `<path d="${path.join("")}" fill="none" vector-effect="non-scaling-stroke" ${attributes}/>`;
  }

  const frame = inside => `<svg viewBox="-4 -4 408 108" preserveAspectRatio="none" role="img">${inside}</svg>`;

  function draw(page, seen) {
    const shade = (g, n) => `stroke="hsl(${Math.round(300 * g / n)} 60% 50%)" stroke-width="1.5"`;
    const columns = transposed(seen.basis);
    page.querySelector("[data-show=basis]").innerHTML =
      frame(columns.map((column, g) => line(seen.x, column, 0, 1, shade(g, columns.length))).join(""));
    const most = Math.max(...seen.map.flat().map(Math.abs), 1e-12), n = seen.map.length;
    const squares = seen.map.flatMap((row, i) => row.map((entry, j) => {
      const colour = entry > 0 ? "#d1660a" : "#2463b0";
      return `<rect x="${j}" y="${i}" width="1.02" height="1.02" fill="${colour}" fill-opacity="${(Math.abs(entry) / most).toFixed(3)}"/>`;
    }));
    page.querySelector("[data-show=map]").innerHTML =
      `<svg viewBox="0 0 ${n} ${n}" role="img"><rect width="${n}" height="${n}" fill="none" stroke="currentColor" stroke-width="${n / 150}"/>${squares.join("")}</svg>`;
    page.querySelector("[data-show=output]").innerHTML = frame(
      line(seen.x, seen.value, -0.8, 1.2, 'stroke="currentColor" stroke-opacity="0.35" stroke-width="1.5"')
      + line(seen.x, seen.carried, -0.8, 1.2, 'stroke="currentColor" stroke-width="1.5" stroke-dasharray="4 4"')
      + line(seen.x, seen.output, -0.8, 1.2, 'stroke="#d1660a" stroke-width="2.5"'));
    page.querySelector("[data-show=error]").textContent = `${(100 * seen.error).toFixed(1)} %`;
  }

  function start(page) {
    const slider = name => page.querySelector(`input[name=${name}]`);
    const update = () => {
      const settings = {
        temperature: 10 ** Number(slider("temperature").value),
        bases: Number(slider("bases").value),
        ridge: 10 ** Number(slider("ridge").value),
      };
      for (const [name, amount] of Object.entries(settings))
        slider(name).parentElement.querySelector("output").textContent = amount < 0.01 ? amount.toExponential(0) : Number(amount.toPrecision(2));
      draw(page, compute(settings));
    };
    page.querySelectorAll("input").forEach(input => input.addEventListener("input", update));
    update();
  }

  window.functionalAttention = { compute };
  document.querySelectorAll(".functional-attention").forEach(start);
})();
