"""The parts of the page, each against an obvious form of the same."""

from collections.abc import Callable
from typing import Any

import pytest

HELPERS = """
async (test) => {
  const [arrays, camera, colours, mesh, raster, state, webgl] = await Promise.all(
    ["arrays", "camera", "colours", "mesh", "raster", "state", "webgl"].map((name) => import(`/${name}.js`)));
  const bent = (n, m, dims) => {
    const positions = new Float32Array(n * m * dims);
    const values = new Float32Array(n * m);
    for (let i = 0; i < n; i += 1) for (let j = 0; j < m; j += 1) {
      const [x, y] = [i / (n - 1) + 0.1 * Math.sin(3 * j / m), j / (m - 1) + 0.05 * Math.cos(5 * i / n)];
      positions.set([x, y, 0.3 * Math.sin(4 * x) * y].slice(0, dims), dims * (i * m + j));
      values[i * m + j] = 2 * x - 3 * y + 1;
    }
    return [new mesh.Mesh(dims, positions, mesh.gridTriangles(n, m), [n, m]), values];
  };
  const pixels = (renderer, job) => {
    const canvas = document.createElement("canvas");
    Object.assign(canvas, { width: job.width, height: job.height });
    const context = canvas.getContext("2d");
    context.drawImage(renderer.draw(job), 0, 0, job.width, job.height, 0, 0, job.width, job.height);
    return context.getImageData(0, 0, job.width, job.height).data;
  };
  return await test({ ...arrays, ...camera, ...colours, ...mesh, ...raster, ...state, ...webgl, bent, pixels });
}
"""


@pytest.fixture
def run(visit: Callable[..., Any], static: str) -> Callable[[str], Any]:
    """Runs JavaScript among the modules of the page."""
    visitor = visit(static)
    visitor.page.route("**/blank", lambda route: route.fulfill(body="", content_type="text/html"))
    visitor.page.goto(f"{static}/blank")
    helpers = f"({HELPERS.strip()})"
    return lambda body: visitor.page.evaluate(f"() => {helpers}(async (m) => {{ {body} }})")


@pytest.mark.parametrize("dims", [2, 3])
def test_graphics_card_draws_what_plain_loops_draw(run: Callable[[str], Any], dims: int) -> None:
    differing, painted = run(f"""
      const [mesh, values] = m.bent(23, 17, {dims});
      const camera = new m.Camera(mesh);
      const job = {{ mesh, values, range: [-3, 3], table: m.sequential, matrix: camera.matrix(), width: 120, height: 100 }};
      const [card, loops] = [m.webglRenderer({{ evenSlow: true }}), new m.RasterRenderer()].map((r) => m.pixels(r, job));
      let [differing, painted] = [0, 0];
      for (let k = 0; k < card.length; k += 4) {{
        const apart = Math.max(...[0, 1, 2, 3].map((c) => Math.abs(card[k + c] - loops[k + c])));
        if (apart > 8) differing += 1;
        if (loops[k + 3]) painted += 1;
      }}
      return [differing, painted];
    """)
    assert painted > 2000
    # Edges are smooth on a graphics card; a surface turns away from the eye at its edges too.
    assert differing < 0.08 * painted


def test_point_clouds_are_drawn_by_both(run: Callable[[str], Any]) -> None:
    card, loops = run("""
      const [{ positions }, values] = m.bent(9, 9, 2);
      const mesh = new m.Mesh(2, positions);
      const job = { mesh, values, range: [-3, 3], table: m.sequential, matrix: new m.Camera(mesh).matrix(), width: 90, height: 90 };
      return [m.webglRenderer({ evenSlow: true }), new m.RasterRenderer()].map((r) => {
        const seen = m.pixels(r, job);
        return seen.filter((byte, k) => k % 4 === 3 && byte > 127).length;
      });
    """)
    assert loops > 2000
    assert card == pytest.approx(loops, rel=0.05)


def test_values_between_points_are_linear(run: Callable[[str], Any]) -> None:
    errors, outside = run("""
      const [mesh, values] = m.bent(31, 20, 2);
      const errors = [];
      for (let k = 0; k < 400; k += 1) {
        const [x, y] = [0.1 + 0.8 * (k % 20) / 19, 0.1 + 0.8 * Math.floor(k / 20) / 19];
        errors.push(Math.abs(mesh.at(values, x, y) - (2 * x - 3 * y + 1)));
      }
      return [Math.max(...errors), [mesh.at(values, -3, 0), mesh.at(values, 0.5, 9)].map(Number.isNaN)];
    """)
    assert errors < 1e-5
    assert outside == [True, True]


def test_numbers_survive_the_way_to_the_service_and_the_address(run: Callable[[str], Any]) -> None:
    same, unpacked, damaged = run("""
      const data = Float32Array.from({ length: 40000 }, (_, k) => Math.sin(k) * 10 ** (k % 30 - 15));
      const again = m.decode(m.encode(data, [200, 200]));
      const native = Uint8Array.prototype.toBase64;
      delete Uint8Array.prototype.toBase64;
      const older = m.encode(data).data === m.encode(data, [200, 200]).data;
      if (native) Object.defineProperty(Uint8Array.prototype, "toBase64", { value: native, configurable: true });
      const bytes = Uint8Array.from({ length: 999 }, (_, k) => (k * k) % 256);
      const unpacked = await m.unpack(await m.pack(bytes));
      return [older && again.data.every((v, k) => v === data[k]) && again.shape.join() === "200,200",
        unpacked.join() === bytes.join(), await m.unpack("%%nonsense")];
    """)
    assert same
    assert unpacked
    assert damaged is None


def test_colours_are_even_and_differences_balanced(run: Callable[[str], Any]) -> None:
    steps, ends, middle = run("""
      const light = (table, k) => {
        const [r, g, b] = [0, 1, 2].map((c) => (table[4 * k + c] / 255) ** 2.2);
        return Math.cbrt(0.2126 * r + 0.7152 * g + 0.0722 * b);
      };
      const steps = Array.from({ length: 255 }, (_, k) => light(m.sequential, k + 1) - light(m.sequential, k));
      return [steps, [light(m.diverging, 0), light(m.diverging, 255)], [...m.diverging.subarray(4 * 127, 4 * 127 + 3)]];
    """)
    assert min(steps) > -0.002
    assert sum(steps) > 0.6
    assert ends[0] == pytest.approx(ends[1], abs=0.05)
    assert min(middle) > 240


def test_relative_error(run: Callable[[str], Any]) -> None:
    assert run("return m.relativeError([3, 4, 0], [3, 0, 0]);") == pytest.approx(4 / 3)


@pytest.mark.full
def test_a_million_points_are_drawn_without_a_graphics_card(run: Callable[[str], Any]) -> None:
    seconds, painted = run("""
      const [mesh, values] = m.bent(1000, 1000, 2);
      const camera = new m.Camera(mesh);
      const job = { mesh, values, range: [-3, 3], table: m.sequential, matrix: camera.matrix(), width: 800, height: 700 };
      const renderer = new m.RasterRenderer();
      renderer.draw(job);
      const start = performance.now();
      const seen = m.pixels(renderer, job);
      return [(performance.now() - start) / 1000, seen.filter((byte, k) => k % 4 === 3 && byte).length];
    """)
    assert painted > 300_000
    # 0.08 s on an idle core; only a change of kind, such as work per point and pixel, takes this long.
    assert seconds < 5
