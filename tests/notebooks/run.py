"""Runs a notebook as Jupyter does, in its folder, and reads what its cells show."""

from __future__ import annotations

import base64
import html
import io
import os
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import matplotlib.image
import nbformat
import numpy as np
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode

from tests.support.stores import PROJECT

FOLDER = PROJECT / "notebooks"
VARIABLES = ("SPARK_MQ_STORE", "SPARK_MQ_BROKER_CONF")
"""The environment variables that name another store than the sample."""
_SECONDS_FOR_A_CELL = 300


def read(name: str) -> NotebookNode:
    """A notebook as it is in the project."""
    notebook: NotebookNode = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    return notebook


@cache
def _kernel(settings: str) -> AsyncKernelManager:
    """A kernel, for notebooks that start Spark with the same settings: the JVM of the first one stays for the others.

    It is this interpreter, whatever kernels Jupyter knows on this machine, and it ends with this process.
    """
    # Without folders to look for kernels in, there is only the one of this process.
    return AsyncKernelManager(kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))


@cache
def executed(name: str) -> NotebookNode:
    """The notebook after all its cells ran over the sample, without names of others. Raises `CellExecutionError`."""
    notebook = read(name)
    (settings,) = re.findall(r"quiet_spark\.start\([^,)]*(.*)\)", "\n".join(one.source for one in code_cells(notebook)))
    forget = nbformat.v4.new_code_cell("get_ipython().reset(); get_ipython().execution_count = 0")
    notebook.cells.insert(0, forget)
    client = NotebookClient(
        notebook,
        km=_kernel(settings),
        timeout=_SECONDS_FOR_A_CELL,
        record_timing=False,
        resources={"metadata": {"path": str(FOLDER)}},
    )
    client.execute(env={name: value for name, value in os.environ.items() if name not in VARIABLES})
    notebook.cells.remove(forget)
    notebook.metadata.language_info = {"name": "python"}
    return notebook


def keep(name: str, folder: Path) -> None:
    """Write the executed notebook, with its outputs, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(executed(name), folder / f"{name}.ipynb")


def plots_module() -> Any:
    """The module `notebooks/plots.py`. Notebooks and their modules are not type-checked."""
    return import_module("notebooks.plots")


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """The cells that run."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def text(cell: NotebookNode) -> str:
    """What the cell printed, and its result as text."""
    return "".join(output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in cell.outputs)


def rows(cell: NotebookNode) -> list[tuple[str, ...]]:
    """The rows of the tables, Spark's or pandas', that the cell shows."""
    page = "".join(output.get("data", {}).get("text/html", "") for output in cell.outputs)
    cells = (re.findall(r"<td>(.*?)</td>", row, re.DOTALL) for row in re.findall(r"<tr.*?</tr>", page, re.DOTALL))
    return [tuple(html.unescape(one) for one in row) for row in cells if row]


def printed_errors(cell: NotebookNode) -> str:
    """What the cell, or a process that it started, printed as errors and warnings."""
    return "".join(output.text for output in cell.outputs if output.get("name") == "stderr")


def plots(cell: NotebookNode) -> list[bytes]:
    """The PNG files that the cell shows."""
    found = (output.get("data", {}).get("image/png") for output in cell.outputs)
    return [base64.b64decode(png) for png in found if png is not None]


def drawn_part(png: bytes) -> float:
    """The part of a plot's pixels that have a colour: data have; axes, their labels and the ground are grey."""
    colours = matplotlib.image.imread(io.BytesIO(png))[:, :, :3]
    return float((np.ptp(colours, axis=2) > 0.1).mean())
