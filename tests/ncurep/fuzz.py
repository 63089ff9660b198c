"""A seeded fuzzer: damages reports, converts them, and sorts what comes out.

Run as ``python -m tests.ncurep.fuzz SEED COUNT FILE…`` (from the root of the project), it prints one JSON object.
A conversion ends in one of these ways:

* ``refused``: nothing is written, with one sentence why;
* ``equal``: every table is as without the damage (which hit what the tables do not hold);
* ``value``: a table differs, and every damaged byte is content of a value: a number, a text. The structure is valid
  and the format has no checksum, so nobody can see it;
* ``noted``: a table differs, and the conversion says that it met fields which it does not know;
* ``wrong``: a table differs and nothing was said.

Metrics are read by the compiled decoder and by the one in numpy, which must agree (``both.py``).
Unmutated files are in the run, and must be ``equal``: refusing everything would not do.
"""

import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tests.ncurep import both
from tests.ncurep.report_files import peak_mib, unpack

from gpuatlas import console
from gpuatlas.errors import InputRefused
from gpuatlas.ncurep import chunk, instep, messages
from gpuatlas.ncurep.blocks import walk
from gpuatlas.ncurep.check import check
from gpuatlas.ncurep.report import outline
from gpuatlas.ncurep.source import Reader
from gpuatlas.ncurep.wire import fields
from gpuatlas.tables.convert import convert

MUTATIONS = ("flip a bit", "random bytes", "cut", "insert", "delete", "zero", "swap blocks")
LENGTH_CHANGING = ("cut", "insert", "delete")
EVERY = 50  # each so many mutants an unmutated file
NESTED = {
    ("BlockHeader", "session"): "Session",
    ("BlockHeader", "strings"): "StringTable",
    ("Result", "rules"): "Rule",
    ("Result", "nvtx"): "Nvtx",
    ("Result", "metrics"): "Metric",
}
METRIC = {"Metric": {1: None, 2: "Value", 3: "Instance", 4: None}, "Instance": {1: "Value", 2: "Value"}}


class Base:
    """A report to damage."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.name = path.name
        self.data = unpack(path) if path.suffix in (".xz", ".ncu-repz") else path.read_bytes()
        self.tables = {instances: tables_of(self.data, folder, instances)[0] for instances in (False, True)}
        self.content = bytearray(len(self.data))  # 1 where a byte is content of a value
        self.blocks: list[tuple[int, int]] = []
        plain = folder / "base.ncu-rep"
        plain.write_bytes(self.data)
        with Reader(outline(plain).source) as reader:
            for block in walk(reader):
                begin = block.offset
                self.leaves("BlockHeader", block.raw_header, block.offset + 4)
                for data in block.result_entries():
                    self.leaves("Result", data, reader.offset - len(data))
                self.blocks.append((begin, reader.offset))

    def leaves(self, kind: str, data: bytes, offset: int) -> None:
        """Mark the content of the values of a message at `offset` of the report."""
        known = messages._CLASSES[kind].DESCRIPTOR.fields_by_number if kind in messages._CLASSES else {}
        for field in fields(data):
            inner = None
            if kind in METRIC:
                inner = METRIC[kind][field.number]
            elif field.number in known:
                declared = known[field.number]
                inner = (
                    declared.message_type.name if declared.message_type else NESTED.get((kind, declared.name))
                )
                if kind == "BlockHeader" and inner is None:
                    continue  # counts and sizes are structure
            if inner:
                self.leaves(inner, data[field.content : field.end], offset + field.content)
            else:
                for place in range(offset + field.content, offset + field.end):
                    self.content[place] = 1


def tables_of(data: bytes, folder: Path, instances: bool) -> tuple[dict[str, pa.Table], list[str]]:
    """Convert a report; return its tables without what differs with the file, and the conversion's notes."""
    path = folder / "mutant.ncu-rep"
    path.write_bytes(data)
    done = convert([path], folder / "out", instances=instances)
    tables = {}
    for name in ("launches", "metrics", "rules", *(["instances"] if instances else []), "session"):
        table = pq.read_table(folder / f"out/{name}.parquet").replace_schema_metadata(None)
        if name == "session":
            table = pa.table(
                [[value for key, value in zip(*[table[c].to_pylist() for c in ("key", "value")], strict=True)
                  if key not in ("source", "source_sha256")]], names=["value"],
            )  # fmt: skip
        tables[name] = table
    return tables, done.converted[0].notes


def mutate(base: Base, how: str, chance: random.Random) -> bytes:
    data = bytearray(base.data)
    at = chance.randrange(len(data))
    if how == "flip a bit":
        data[at] ^= 1 << chance.randrange(8)
    elif how == "random bytes":
        data[at : at + 8] = chance.randbytes(len(data[at : at + 8]))
    elif how == "cut":
        del data[at:]
    elif how == "insert":
        data[at:at] = chance.randbytes(chance.randint(1, 63))
    elif how == "delete":
        del data[at : at + chance.randint(1, 63)]
    elif how == "zero":
        size = chance.randint(1, 4096)
        data[at : at + size] = bytes(len(data[at : at + size]))
    else:
        one, other = sorted(chance.sample(range(len(base.blocks)), 2))
        (a, b), (c, d) = base.blocks[one], base.blocks[other]
        return bytes(data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:])
    return bytes(data)


def rows(table: pa.Table) -> list[str]:
    columns = [name for name in table.column_names if name != "launch_id"]
    return sorted(map(repr, table.select(columns).to_pylist()))


def same(a: dict[str, pa.Table], b: dict[str, pa.Table], *, ordered: bool) -> bool:
    if ordered:
        return all(
            same_column(a[name][column], b[name][column]) for name in a for column in a[name].column_names
        )
    return all(rows(a[name]) == rows(b[name]) for name in a)


def same_column(a: pa.ChunkedArray, b: pa.ChunkedArray) -> bool:
    return a.equals(b) or repr(a.to_pylist()) == repr(b.to_pylist())  # the latter where there are NaN


def outcome(base: Base, mutant: bytes, how: str, folder: Path, instances: bool) -> str:
    try:
        tables, notes = tables_of(mutant, folder, instances)
    except InputRefused as error:
        sentence = str(error)
        assert sentence.endswith("."), sentence
        assert "\n" not in sentence, sentence
        return "refused"
    if not instances:
        check(folder / "mutant.ncu-rep")  # refuses no more than a conversion does
    if same(base.tables[instances], tables, ordered=how != "swap blocks"):
        return "equal"
    if notes:
        return "noted"
    if len(mutant) == len(base.data) and how != "swap blocks":
        changed = [place for place, (a, b) in enumerate(zip(base.data, mutant, strict=True)) if a != b]
        if all(base.content[place] for place in changed):
            return "value"
    return "wrong"


def run(seed: int, count: int, files: list[Path]) -> dict[str, object]:
    console.settings.quiet = True
    chance = random.Random(seed)
    found: dict[str, Counter[str]] = {how: Counter() for how in ("nothing", *MUTATIONS)}
    slowest, wrong = 0.0, []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bases = [Base(path, folder) for path in files]
        large, few = chunk._LARGE, instep._FEW
        chunk.decode_metrics, chunk.metrics_end = both.decode_metrics, both.metrics_end
        for number in range(count):
            chunk._LARGE = 0 if number % 2 else large  # with the bodies of sections left out, and not
            instep._FEW = few if number % 8 < 4 else 0  # both ways in which numpy finds instances
            base = chance.choice(bases)
            how = "nothing" if number % EVERY == 0 else MUTATIONS[number % len(MUTATIONS)]
            mutant = base.data if how == "nothing" else mutate(base, how, chance)
            if how != "nothing" and mutant == base.data:
                how = "nothing"  # zeros over zeros
            begin = time.perf_counter()
            result = outcome(base, mutant, how, folder, instances=number % 4 < 2)
            slowest = max(slowest, time.perf_counter() - begin)
            found[how][result] += 1
            if result == "wrong" or (result != "equal" and how == "nothing"):
                changed = [i for i, (a, b) in enumerate(zip(base.data, mutant, strict=False)) if a != b]
                wrong.append([number, base.name, how, result, changed[:4]])
    return {
        "seed": seed,
        "mutants": count - found["nothing"].total(),
        "outcomes": {how: dict(sorted(counts.items())) for how, counts in found.items()},
        "wrong": wrong,
        "slowest_s": round(slowest, 3),
        "peak_mib": peak_mib(),
    }


if __name__ == "__main__":
    summary = run(int(sys.argv[1]), int(sys.argv[2]), [Path(name) for name in sys.argv[3:]])
    sys.stdout.write(json.dumps(summary, indent=2) + "\n")
