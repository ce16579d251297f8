"""The table of AirfRANS outside the range of the training data."""

from funcattn.experiments.engine.claims import First
from funcattn.experiments.engine.experiment import Column, Experiment
from funcattn.experiments.engine.trial import Trial
from funcattn.experiments.tables.paper import PAPER

_ROWS = {
    "mlp": "Simple MLP",
    "graphsage": "GraphSAGE",
    "pointnet": "PointNet",
    "graph_unet": "Graph U-Net",
    "meshgraphnet": "MeshGraphNet",
    "gno": "GNO",
    "galerkin": "Galerkin",
    "gnot": "GNOT",
    "gino": "GINO",
    "transolver": "Transolver",
    "funcattn": "Functional attention",
}
_SPLITS = {"reynolds": "reynolds", "incidence": "aoa"}
_COLUMNS = {
    f"{split}_{metric}": Column(
        f"{split.capitalize()}, {words}",
        path,
        larger_is_better=metric == "rank",
        quantity=words,
    )
    for split in _SPLITS
    for metric, words, path in (
        ("lift", "error of lift", "test.lift_error"),
        ("median", "median error of lift", "median.lift_error"),
        ("rank", "rank correlation", "test.lift_rank_correlation"),
    )
}


def _trial(row: str, column: str) -> Trial:
    return Trial("airfrans", row, {"data": {"split": _SPLITS[column.partition("_")[0]]}})


AIRFRANS = Experiment(
    name="airfrans",
    aliases=("table3",),
    title="AirfRANS out of distribution",
    unit="relative error of the lift and its rank correlation, both times 100",
    rows=_ROWS,
    columns=_COLUMNS,
    trials={(row, column): _trial(row, column) for column in _COLUMNS for row in reversed(_ROWS)},
    paper=PAPER["airfrans"],
    claims=tuple(
        First(f"functional attention first: {column.title}", "funcattn", name)
        for name, column in _COLUMNS.items()
        if not name.endswith("median")
    ),
    notes=(
        "The cases are made by a panel method, a proxy without boundary layer and stall.",
        "The error of lift is a mean that is dominated by cases with nearly no lift: "
        "so its median stands beside it, which the paper does not print.",
    ),
)
