"""Few-shot: observations of a function, clicked one by one."""

from typing import Any, ClassVar

import numpy as np

from funcattn.serve.drawn.base import Drawing, Editor, Parameters, array, only, register_editor

END = 6.0
TOP = 5.0
MOST = 200
QUERIES = 200


@register_editor
class FewShotEditor(Editor):
    """The function is asked for along the whole line; nothing but a guess is its true answer."""

    task: ClassVar = "few_shot"

    @property
    def solver(self) -> bool:
        """Many functions pass through the same points."""
        return False

    def form(self) -> dict[str, Any]:
        """Points in a rectangle."""
        return {
            "kind": "points",
            "parameter": "observations",
            "x": [-END, END],
            "y": [-TOP, TOP],
            "min_count": 1,
            "max_count": MOST,
            "random": True,
        }

    def default(self) -> dict[str, Any]:
        """Values of one sinusoid, as many as in training: with fewer, bands promise nothing."""
        x = np.linspace(-5.5, 5.5, self._count)
        return {"observations": np.stack([x, 2.0 * np.sin(x - 1.0)], axis=-1)}

    def random(self, rng: np.random.Generator) -> dict[str, Any]:
        """Values of a sinusoid of the training set."""
        amplitude, phase = rng.uniform(0.1, TOP), rng.uniform(0.0, np.pi)
        x = rng.uniform(-END, END, self._count)
        return {"observations": np.stack([x, amplitude * np.sin(x - phase)], axis=-1)}

    @property
    def _count(self) -> int:
        return min(int(self.data.get("observations", 32)), MOST)

    def draw(self, parameters: Parameters, refine: int) -> Drawing:
        """The whole line, with the observations as context."""
        only(parameters, ["observations"])
        observed = array(parameters, "observations", 2)
        if observed.shape[1] != 2 or len(observed) > MOST:
            raise ValueError(
                f"parameters, observations: expected 1 to {MOST} pairs (x, y), got shape "
                f"{observed.shape}"
            )
        return Drawing(np.linspace(-END, END, QUERIES * refine)[:, None], context=observed)
