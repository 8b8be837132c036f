"""Names as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcd.analysis.symbols.short_names import short_names


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("std::vector<int, std::allocator<int> >::push_back(int const&)", "vector::push_back"),
        ("void f<int>(int)", "f"),
        ("decltype(auto) ns::f<int>(int)", "ns::f"),
        ("a::b::Ledger::book(int) const", "Ledger::book"),
        ("std::mersenne_twister_engine<unsigned long, 32ul>::operator()()",
         "mersenne_twister_engine::operator()"),
        ("std::ostream& std::operator<< <std::char_traits<char> >(std::ostream&, char const*)",
         "std::operator<<"),
        ("Foo::operator bool() const", "Foo::operator bool"),
        ("operator new(unsigned long)", "operator new"),
        ("(anonymous namespace)::f(int)", "f"),
        ("foo::bar(int)::{lambda(auto:1)#2}::operator()<int>(int) const", "bar::{lambda#2}"),
        ("non-virtual thunk to A::f()", "A::f"),
        ("std::string::_M_create[abi:cxx11](unsigned long&, unsigned long)", "string::_M_create"),
        ("f(int) [clone .constprop.0]", "f"),
        ("encoder.isra.0", "encoder"),
        ("<alloc::vec::Vec<T> as core::iter::FromIterator<T>>::from_iter", "Vec::from_iter"),
        ("<impl core::fmt::Display for my::Type>::fmt", "Type::fmt"),
        ("core::ops::function::FnOnce::call_once::h0123456789abcdef", "FnOnce::call_once"),
        ("my_app::main::{{closure}}", "my_app::main"),
        ("github.com/foo/bar/pkg.Func", "pkg.Func"),
        ("main.(*Server).handle", "main.(*Server).handle"),
        ("Worker.run.<locals>.inner", "Worker.run.<locals>.inner"),
        ("<module>", "<module>"),
        ("java.lang.Exception.<init>", "java.lang.Exception.<init>"),
        ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>"),
        ("do_work", "do_work"),
        ("[truncated: no unwind information]", "[truncated: no unwind information]"),
        ("loop at a.cpp:12", "loop at a.cpp:12"),
        ("loop at a.cpp:12 in ns::g::f<int>(int)", "loop at a.cpp:12 in g::f"),
        ("a.cpp:12 in f<int>(int)", "a.cpp:12 in f"),
        ("Worker.run  tasks.py:12", "Worker.run  tasks.py:12"),
        ("A.<locals>.f  b (2).py:12", "A.<locals>.f  b (2).py:12"),
        ("main  b (2).py:12", "main  b (2).py:12"),
        ("std::f<int>(int) [inlined]", "std::f [inlined]"),
        ("schedule.part.0 [k]", "schedule.part [k]"),
    ],
)  # fmt: skip
def test_of_a_name_the_function_and_its_owner_are_left(name: str, short: str) -> None:
    assert short_names([name]) == [short]


def test_names_that_would_be_alike_have_more() -> None:
    names = ["void f<int>(int)", "void f<double>(double)", "a::c::g()", "b::c::g()", "c::h(int)"]
    assert short_names(names) == ["f<int>", "f<double>", "a::c::g", "b::c::g", "c::h"]


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["std::engine<unsigned long, 32ul, 624ul>::gen()",
          "std::engine<unsigned long, 64ul>::gen()"],
         ["engine<unsigned long, 32ul, …>::gen", "engine<unsigned long, 64ul>::gen"]),
        (["f(int)", "f(std::vector<int, std::allocator<int> > const&)"], ["f(int)", "f(vector)"]),
        (["std::traits<std::allocator<int> >::f", "std::traits<std::allocator<A> >::f"],
         ["traits::f<int>", "traits::f<A>"]),
        (["<my::Vec<T> as my::A<T>>::next", "<my::Vec<T> as my::B<T>>::next"],
         ["<Vec as A>::next", "<Vec as B>::next"]),
        (["my_app::main", "my_app::main::{{closure}}"],
         ["my_app::main", "main::{{closure}}"]),
        (["void std::sort<std::It<float*, std::vector<float>>>(std::It<float*>)",
          "void std::sort<std::It<double*, std::vector<double>>>(std::It<double*>)",
          "void std::sort<std::It<float*, std::vector<float>>, Less>(std::It<float*>, Less)",
          "void std::sort<std::It<double*, std::vector<double>>, Less>(std::It<double*>, Less)"],
         ["std::sort<float>", "std::sort<double>",
          "std::sort<float, Less>", "std::sort<double, Less>"]),
        (["f(int*)", "f(int)"], ["f(int*)", "f(int)"]),
        (["f(int)", "f(double) [inlined]"], ["f(int)", "f(double) [inlined]"]),
        (["f(int)", "f(int) [inlined]"], ["f", "f [inlined]"]),
    ],
)  # fmt: skip
def test_they_have_no_more_than_tells_them_apart(names: list[str], short: list[str]) -> None:
    assert short_names(names) == short


_LETTERS = st.sampled_from("ab:<>()[]{} ,.~/#&*@0")


@given(st.lists(st.text(_LETTERS, max_size=30), max_size=6))
def test_names_that_differ_stay_so(names: list[str]) -> None:
    short = short_names(names)
    assert len({*short}) == len({*names})
    assert all(bool(one) == bool(name) for one, name in zip(short, names, strict=True))


@pytest.mark.parametrize("letter", ["<", "(", "{", "<(", "a<", "::", "operator", "  a:1"])
def test_hostile_names_end_no_reader(letter: str) -> None:
    assert len(short_names([letter * 5000, letter * 5001])) == 2
