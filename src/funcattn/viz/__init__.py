"""Pictures and reports."""

from funcattn.viz.figures import Panel, basis_gallery, curves, field_rows
from funcattn.viz.report import Picture, Section, Table, write_report

__all__ = [
    "Panel",
    "Picture",
    "Section",
    "Table",
    "basis_gallery",
    "curves",
    "field_rows",
    "write_report",
]
