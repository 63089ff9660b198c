import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuatlas.names import launch_key, normalise

# Nsight Compute's spelling, and the C++ ABI demangler's of the same mangled name, which is what
# torch.profiler shows: every distinct kernel of the recorded windows.
PAIRS = json.loads((Path(__file__).parent / "data/ncurep/name_pairs.json").read_text())


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair["ncu"][:60])
def test_both_spellings_of_a_recorded_kernel_become_one(pair):
    name = normalise(pair["ncu"])
    assert name == normalise(pair["cupti"])
    assert normalise(name) == name
    assert "(instance" not in name
    assert "<unnamed>" not in name


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
