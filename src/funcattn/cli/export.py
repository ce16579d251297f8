"""`funcattn export`."""

from dataclasses import dataclass

from rich.console import Console

from funcattn.cli import commands
from funcattn.cli.terminal import check_output, refuse
from funcattn.export import axes_of, example_inputs, fixed_grid, to_onnx
from funcattn.serve import load


@dataclass(frozen=True)
class Export(commands.Export):
    """`funcattn export`."""

    def run(self, rest: list[str], console: Console) -> None:
        """Translate with a sign of life, as it takes a while."""
        refuse(rest)
        check_output(self.output)
        predictor = load(self.run_folder, accept_edited=self.accept_edited)
        weights = self.weights or predictor.task.weighted
        example = example_inputs(
            predictor.task, predictor.surrogate, mask=self.mask, weights=weights
        )
        grid = fixed_grid(predictor.task, predictor.surrogate)
        with console.status(f"{self.output}: translating, and comparing with the network"):
            to_onnx(predictor.surrogate, self.output, example, grid=grid)
        inputs = ", ".join(
            f"{name} ({' '.join(axes_of(name, tensor))})" for name, tensor in example.items()
        )
        console.print(f"{self.output}: takes {inputs}", markup=False, soft_wrap=True)
