import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuatlas.names import launch_key, normalise
from gpuatlas.ncurep.chunk import decode_report
from gpuatlas.ncurep.report import outline

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"
# Nsight Compute's spelling, and the C++ ABI demangler's of the same mangled name, which is what
# torch.profiler shows: every distinct kernel of the recorded windows, and of reports by other versions.
PAIRS = json.loads((DATA / "ncurep/name_pairs.json").read_text())
OTHER_VERSIONS = json.loads((DATA / "ncurep/name_pairs_versions.json").read_text())
# Steps at 128³ that torch.profiler recorded on the GPU of the windows, with CUPTI's own spelling.
TIMELINES = sorted((DATA / "measured").glob("*/*/timeline.parquet"))


@pytest.mark.parametrize("pair", [*PAIRS, *OTHER_VERSIONS], ids=lambda pair: pair["ncu"][:60])
def test_both_spellings_of_a_recorded_kernel_become_one(pair):
    name = normalise(pair["ncu"])
    assert name == normalise(pair["cupti"])
    assert normalise(name) == name
    assert "(instance" not in name
    assert "<unnamed>" not in name


def test_the_pairs_are_what_cupti_really_writes():
    names = {name for path in TIMELINES for name in pq.read_table(path, columns=["name"])["name"].to_pylist()}
    assert len(names) > 700
    spelling = {normalise(name): name for name in names}
    assert len(spelling) == len(names), "no two kernels of a step become one"
    both = [pair for pair in PAIRS if normalise(pair["ncu"]) in spelling]
    assert len(both) == 61
    for pair in both:
        assert pair["cupti"] == spelling[normalise(pair["ncu"])]
    # The others are kernels that a step at 128³ does not launch, and not its kernels spelt otherwise.
    folded = {fold(name) for name in names}
    assert not folded & {fold(pair["ncu"]) for pair in PAIRS if pair not in both}


def test_both_profilers_tell_the_same_launches_of_the_recorded_steps():
    """What Nsight Compute measured of a step is, launch by launch, in the timeline that CUPTI made of it."""
    recorded = [path.parent for path in (ROOT / "resources/recordings").glob("*/*/timing")]
    recorded += (ROOT / "benchmarks/data/capture").glob("*/every")
    kernels = {}
    for folder in recorded:
        timing = folder / "timing" if (folder / "timing").is_dir() else folder.parent / "timing"
        table = pq.read_table(timing / "timeline.parquet", columns=["key", "name"])
        told = dict(zip(table["key"].to_pylist(), table["name"].to_pylist(), strict=True))
        for chunk in decode_report(outline(folder / "report.ncu-repz")):
            for one in chunk.infos:
                key = launch_key(one.demangled, one.grid, one.block)
                assert key in told, one.demangled
                kernels[one.demangled] = told[key]
    assert len(kernels) >= 190
    assert sum("triton" in name for name in kernels) > 50
    assert sum(ncu != cupti for ncu, cupti in kernels.items()) > 90


def fold(name: str) -> str:
    """Letters and digits of a name's template arguments and qualifiers, by brute force."""
    plain = re.sub(
        r"\((int|bool|unsigned int|unsigned long|long)\)(?=[-\d])|\(anonymous namespace\)|<unnamed>", "", name
    )
    plain = re.sub(r"\b(\d+)u?l*\b", r"\1", plain.replace("false", "0").replace("true", "1"))
    return "".join(re.findall(r"\w", plain.removeprefix("void ").split("(")[0]))


def test_the_keys_of_the_kept_timelines_are_today_s():
    for path in TIMELINES:
        for row in pq.read_table(path).to_pylist():
            grid, block = (
                (row[f"{what}_x"], row[f"{what}_y"], row[f"{what}_z"]) for what in ("grid", "block")
            )
            assert row["key"] == launch_key(row["name"], grid, block)


def test_distinct_recorded_kernels_stay_distinct():
    assert len(PAIRS) == 69
    assert len({normalise(pair["ncu"]) for pair in PAIRS}) == len({pair["cupti"] for pair in PAIRS})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("void f<(int)4, std::array<char *, (unsigned long)2>>(int, T2)", "f<4,std::array<char*,2>>"),
        ("void f<4, std::array<char*, 2ul> >(int, std::array<char*, 2ul>)", "f<4,std::array<char*,2>>"),
        ("void <unnamed>::g<(bool)1>(T1)", "{anonymous}::g<1>"),
        ("void (anonymous namespace)::g<true>(bool)", "{anonymous}::g<1>"),
        ("sm90_xmma_fprop_execute_kernel__5x_cudnn", "sm90_xmma_fprop_execute_kernel__5x_cudnn"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("k(const float *, unsigned long long)", "k"),
        ("void k<const float>(T1)", "k<float const>"),
        ("void k<float const>(float const)", "k<float const>"),
        ("void k<const ns::T<int> *, (E)3>(T1)", "k<ns::T<int> const*,3>"),
        ("void k<ns::T<int> const*, (E)3>(ns::T<int> const*)", "k<ns::T<int> const*,3>"),
        ("void k<unsigned int, long long, (int)-1>(T1)", "k<unsigned int,long long,-1>"),
        ("void k<unsigned int, long long, -1>(unsigned int)", "k<unsigned int,long long,-1>"),
        ("std::enable_if<!T7, void>::type ns::k<int>(T13)", "ns::k<int>"),
        ("std::enable_if<!(false), void>::type ns::k<int>(P<int>)", "ns::k<int>"),
        (
            "void e<void h<T<(int)4>>(I &, T1)::[lambda(char *, const char *) (instance 2)]>(int, T3)",
            "e<h<T<4>>::{lambda(char*,char const*)#2}>",
        ),
        (
            "void e<h<T<4> >(I&, T<4> const&)::{lambda(char*, char const*)#2}>(int, T<4>)",
            "e<h<T<4>>::{lambda(char*,char const*)#2}>",
        ),
        ("f(int)::[lambda() (instance 3)]::operator ()() const", "f::{lambda()#3}::operator()"),
    ],
)
def test_spelling(name, expected):
    assert normalise(name) == expected
    assert normalise(expected) == expected


def test_what_tells_kernels_apart_is_kept():
    names = [
        "f<4>(int)", "f<8>(int)", "f<4, float>(int)", "f<4, const float>(int)", "a::f<4>(int)",
        "f<g(int)::{lambda(float)#1}>()", "f<g(int)::{lambda(float)#2}>()", "f<g(int)::{lambda(double)#1}>()",
    ]  # fmt: skip
    assert len({normalise(name) for name in names}) == len(names)


@given(st.text(alphabet="abT1 <>(){}[]:,*&#_!-~const voidlambdaoperator", max_size=60))
def test_any_text_is_normalised_once_and_for_all(text):
    once = normalise(text)
    assert normalise(once) == once


def test_unbalanced_and_deep_names_are_kept_without_spaces():
    assert normalise("void f<(int") == "voidf<(int"
    deep = "a<" * 5000 + ">" * 5000
    assert normalise(deep) == deep


def test_key():
    key = launch_key("void f<(int)4>(T1)", (1, 2, 3), (32, 1, 1))
    assert key == launch_key("void f<4>(int)", (1, 2, 3), (32, 1, 1))
    assert len(key) == 16
    assert int(key, 16) >= 0
    others = {
        launch_key("void f<(int)5>(T1)", (1, 2, 3), (32, 1, 1)),
        launch_key("void f<(int)4>(T1)", (1, 3, 2), (32, 1, 1)),
        launch_key("void f<(int)4>(T1)", (1, 2, 3), (64, 1, 1)),
        launch_key("void f<(int)4>(T1)", (12, 3, 3), (2, 1, 1)),
    }
    assert len(others | {key}) == 5
