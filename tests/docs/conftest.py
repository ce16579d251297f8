import os
import subprocess
import sys
from pathlib import Path

import filelock
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it, once for all processes of a session."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    folder, said = shared / "site", shared / "site.log"
    with filelock.FileLock(shared / "site.lock"):
        if not said.exists():
            done = subprocess.run(
                [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
                cwd=ROOT,
                env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
                capture_output=True,
                text=True,
                check=False,
            )
            said.write_text(f"{done.returncode}\n{done.stdout}{done.stderr}")
    code, _, words = said.read_text().partition("\n")
    assert code == "0", words
    assert "WARNING" not in words, words
    return folder
