"""People's own simulations: files and arrays in, cases out, and written back.

Plain numpy: nothing here needs torch. Meshes need the extra `mesh` (PyVista), Zarr the extra
`zarr`, Parquet tables the extra `tables`.
"""

from funcattn.data.cases.case import Case, Cells, grid_weights
from funcattn.data.cases.collection import Cases
from funcattn.data.cases.folder import Folder, open_folder
from funcattn.data.cases.from_arrays import from_arrays
from funcattn.data.cases.look import Finding, Report, look
from funcattn.data.cases.meshes import read_mesh
from funcattn.data.cases.tables import read_table
from funcattn.data.cases.writing import write_case

__all__ = [
    "Case",
    "Cases",
    "Cells",
    "Finding",
    "Folder",
    "Report",
    "from_arrays",
    "grid_weights",
    "look",
    "open_folder",
    "read_mesh",
    "read_table",
    "write_case",
]
