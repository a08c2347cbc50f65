"""`kueuelib crds`."""

from __future__ import annotations

import sys
from pathlib import Path

from kueuelib.api.crd import all_crds, write_crds
from kueuelib.api.yaml_text import to_yaml
from kueuelib.errors import ConfigError


def run(output: Path | None) -> None:
    """Writes the CustomResourceDefinitions to a folder, or to standard output.

    Raises:
        ConfigError: the folder cannot be written.
    """
    if output is None:
        sys.stdout.write("---\n".join(to_yaml(crd) for crd in all_crds()))
        return
    try:
        write_crds(output)
    except OSError as error:
        problem = error.strerror or str(error)
        raise ConfigError(str(output), problem, "give a folder that can be written") from error
