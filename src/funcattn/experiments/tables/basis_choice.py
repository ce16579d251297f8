"""The table of bases and mechanisms on Airfoil."""

from typing import Any

from funcattn.experiments.engine.claims import Below, First
from funcattn.experiments.engine.experiment import Column, Experiment
from funcattn.experiments.engine.trial import Trial
from funcattn.experiments.tables.paper import PAPER

_ROWS = {
    "fourier": "Fourier",
    "orthonormal": "Learned, orthonormal",
    "learned": "Learned",
}
_COLUMNS = {
    "funcattn": Column("Functional attention"),
    "softmax": Column("Softmax attention"),
    "galerkin": Column("Galerkin"),
}


def _trial(basis: str, mechanism: str) -> Trial:
    chosen: dict[str, Any] = {} if basis == "learned" else {"network": {"basis": basis}}
    if mechanism == "funcattn":
        return Trial("airfoil", changes=chosen)
    if (basis, mechanism) == ("learned", "softmax"):  # between coefficients, that is Transolver
        return Trial("airfoil", "transolver")
    between = {"network": {"basis": basis, "mechanism": mechanism}}
    return Trial("airfoil", "coefficient_attention", changes=between)


BASIS_CHOICE = Experiment(
    name="basis_choice",
    aliases=("table7",),
    title="Choice of basis and mechanism on Airfoil",
    unit="relative L2 error, times 100",
    rows=_ROWS,
    columns=_COLUMNS,
    trials={(row, column): _trial(row, column) for column in _COLUMNS for row in reversed(_ROWS)},
    paper=PAPER["basis_choice"],
    claims=(
        *(
            First(f"a freely learned basis is the best for {column.title}", "learned", name)
            for name, column in _COLUMNS.items()
        ),
        Below(
            "functional attention with a Fourier basis is below softmax attention with any",
            "fourier",
            "learned",
            ("funcattn",),
            than_columns=("softmax",),
        ),
    ),
    notes=(
        "Softmax attention between the coefficients of a learned basis is Transolver.",
        "Our Fourier functions are sines and cosines: their coefficients are real, and softmax "
        "attention between them is possible, where the paper has none.",
    ),
)
