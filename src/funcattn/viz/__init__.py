"""Pictures and reports."""

from funcattn.viz.canvases import Canvas, canvas, triangles
from funcattn.viz.cases import Case
from funcattn.viz.figures import (
    LabelRow,
    LineCase,
    Panel,
    Row,
    field_rows,
    frame_strip,
    label_rows,
    line_cases,
    point_gallery,
    point_rows,
)
from funcattn.viz.plots import (
    Chart,
    charts,
    histogram,
    layer_curves,
)
from funcattn.viz.report import Picture, Section, Table, write_report
from funcattn.viz.run_report import RunReport, statistics, write_run_report

__all__ = [
    "Canvas",
    "Case",
    "Chart",
    "LabelRow",
    "LineCase",
    "Panel",
    "Picture",
    "Row",
    "RunReport",
    "Section",
    "Table",
    "canvas",
    "charts",
    "field_rows",
    "frame_strip",
    "histogram",
    "label_rows",
    "layer_curves",
    "line_cases",
    "point_gallery",
    "point_rows",
    "statistics",
    "triangles",
    "write_report",
    "write_run_report",
]
