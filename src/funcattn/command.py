"""The entry point of the command: says what to install where its requirements are missing."""

import sys


def main() -> None:
    """Run `funcattn`."""
    try:
        from funcattn.cli import main as run
    except ModuleNotFoundError as error:
        sys.exit(
            f"funcattn: the command needs {error.name}, which is not installed: "
            "pip install 'funcattn[train]'"
        )
    except KeyboardInterrupt:
        sys.stderr.write("Stopped.\n")
        sys.exit(130)
    run()
