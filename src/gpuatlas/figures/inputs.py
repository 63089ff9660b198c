"""What figures are drawn from: the study, and the tables that the comparison and the claims wrote."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gpuatlas.compare.rows import read_rows
from gpuatlas.compare.study import Cell, Study, load_study

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Inputs:
    """The results folder, read as far as a figure asks for it."""

    results: Path

    @cached_property
    def study(self) -> Study:
        """The study and its cells."""
        return load_study(self.results)

    def table(self, name: str) -> Rows:
        """Return a table of results/compare/."""
        return read_rows(self.results / "compare" / f"{name}.parquet")

    def claims(self, name: str) -> Rows:
        """Return a table of results/claims/."""
        return read_rows(self.results / "claims" / f"{name}.parquet")

    def captured(self) -> list[Cell]:
        """Return the cells that have a profile, in display order."""
        return self.study.captured()

    def of_captured(self, rows: Rows) -> Rows:
        """Return the rows of these cells."""
        names = {(cell.architecture, cell.target) for cell in self.captured()}
        return [row for row in rows if (row["architecture"], row["target"]) in names]


def of_cell(rows: Rows, cell: Cell, **where: str) -> Rows:
    """Return the rows of a cell whose columns have the given values."""
    return [
        row
        for row in rows
        if (row["architecture"], row["target"]) == (cell.architecture, cell.target)
        and all(row[key] == value for key, value in where.items())
    ]
