"""Names and files that mean harm, or come from programs that do not care."""

from __future__ import annotations

import gzip
import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcd.__main__ import main
from hpcd.analysis.database import Database
from hpcd.analysis.merge.stages import merge
from hpcd.errors import FormatError, NotFoundError
from hpcd.interchange.fitted_names import MAX_NAME, readable
from hpcd.interchange.input import imported_tree
from hpcd.interchange.protobuf import integer, message
from hpcd.measurement.check import check_measurement
from hpcd.measurement.reader import open_measurement
from tests.support.hostile_databases import ask
from tests.support.imported import DATA, imported, sums
from tests.support.recording_mutants import import_mutants

TEMPLATE = "std::map<" + ", ".join(f"N{n}::T<int, {n}>" for n in range(4000)) + ">::find(K)"


_MESSAGES = 2 << 20
_HEAD = b"\x0a\x04\x08\x01\x10\x02\x32\x00\x32\x03cpu\x32\x0bnanoseconds"
_LOCATION, _SAMPLE, _FUNCTION = 4, 2, 5


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        # Two bytes each, and some hundred as objects.
        (lambda: b"\x12\x00" * _MESSAGES, "a sample has not one value of each kind"),
        (lambda: b"\x32\x02ab" * _MESSAGES, "no samples in it"),
        (lambda: message(_LOCATION, integer(1, 1), b"\x22\x00" * _MESSAGES), "more than 1,048,576"),
        (lambda: b"".join(message(_FUNCTION, integer(1, id)) for id in range(1_100_000)),
         "more than 1,048,576 functions, locations and lines"),
        # Numbers of fields that no message has.
        (lambda: message(_FUNCTION, *(integer(number, 1) for number in range(1, 1_100_000))),
         "no samples in it"),
        # A call path of 16 million frames, and one whose locations have a thousand calls.
        (lambda: message(_LOCATION, integer(1, 1))
         + message(_SAMPLE, message(1, b"\x01" * (16 << 20)), integer(2, 1)),
         "a sample of more than 4 MiB"),
        (lambda: message(_LOCATION, integer(1, 1), b"\x22\x00" * 1000)
         + message(_SAMPLE, message(1, b"\x01" * 1_000_000), integer(2, 1)),
         "a call path of more than 1,048,576 frames"),
    ],
)  # fmt: skip
def test_memory_for_a_profile_is_bounded(
    tmp_path: Path, contents: Callable[[], bytes], reason: str
) -> None:
    """Files of some 50 KiB, many of them, that took a gigabyte and more."""
    with gzip.open(tmp_path / "profile.pb.gz", "wb", 1) as file:
        file.write(_HEAD + contents())
    done = ask("import", tmp_path / "profile.pb.gz", "-o", tmp_path / "m", memory=400 << 20)
    assert done.returncode == FormatError.exit_code, done.stderr
    assert reason in done.stderr
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("line", ["f;" * 500 + "{} 1", "{}" + "x" * 60_000 + " 1"])
def test_memory_for_call_paths_and_names_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """A limit of a hundredth of the real one is met at a hundredth of its memory."""
    monkeypatch.setattr(imported_tree, "_MAX_BYTES", imported_tree._MAX_BYTES // 100)
    path = tmp_path / "stacks"
    path.write_text("".join(f"{n};" + line.format(n) + "\n" for n in range(300)))
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="its call paths and names take more than"):
            imported(path, tmp_path / "m")
        assert tracemalloc.get_traced_memory()[1] < (1 << 30) // 100 + (64 << 20)
    finally:
        tracemalloc.stop()
    assert not (tmp_path / "m").exists()


def test_names_are_kept_or_escaped_as_documented(tmp_path: Path) -> None:
    assert len(TEMPLATE) > 64_000
    huge = "x" * (MAX_NAME + 5)
    other = "x" * (MAX_NAME + 5) + "y"
    names: dict[bytes | str, str] = {
        "größe_函数_🎉": "größe_函数_🎉",
        "": "[no name]",
        "a\nb": r"a\nb",
        "a\x1b[31mb": r"a\x1b[31mb",
        "\u202eevil": r"\u202eevil",
        b"bad \xff\xfe utf-8 \xc3": r"bad \xff\xfe utf-8 \xc3",
        "\ud800": r"\ud800",
        "nul\x00": r"nul\x00",
        TEMPLATE: TEMPLATE,
        "operator<< <char>(a, b)": "operator<< <char>(a, b)",
    }
    for name, expected in names.items():
        assert readable(name) == expected
    assert readable(huge) != readable(other) and len(readable(huge)) < MAX_NAME
    assert readable(huge).startswith("x" * 65536 + "…[131,077 characters, ")


def test_odd_names_reach_the_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [
        "größe_函数",
        r"bad \xff",
        TEMPLATE,
        "[no name]",
        r"red \x1b[31m",
        "<b>&amp",
        "$(reboot)",
    ]
    raw = ["größe_函数".encode(), b"bad \xff", TEMPLATE.encode(), b"", b"red \x1b[31m", b"<b>&amp",
           b"$(reboot)"]  # fmt: skip
    (tmp_path / "stacks").write_bytes(b"".join(b"main;%s;leaf %d\n" % (name, 5) for name in raw))
    imported(tmp_path / "stacks", tmp_path / "m")
    assert check_measurement(tmp_path / "m") == []
    merge([tmp_path / "m"], tmp_path / "db", workers=1)
    with Database(tmp_path / "db") as db:
        assert set(names) <= set(db.procedures.name)
    assert main(["report", str(tmp_path / "db"), "--no-fold"]) == 0
    out = capsys.readouterr().out
    assert {letter for letter in out if not letter.isprintable()} == {"\n"}


def test_template_names_in_perf_script(tmp_path: Path) -> None:
    frames = "".join(f"\t561c {TEMPLATE}{n}+0x2b (/tmp/fp)\n" for n in range(100))
    assert len(frames) > 6 << 20
    text = "".join(f"fp 1/1 1.{n}: 5 cycles: \n{frames}\n" for n in range(3))
    (tmp_path / "perf.txt").write_text(text)
    imported(tmp_path / "perf.txt", tmp_path / "m")
    (totals,) = sums(tmp_path / "m").values()
    assert totals == {tuple(f"{TEMPLATE}{n}" for n in reversed(range(100))): 15}


def test_deep_recursion_is_kept_with_what_is_left_out_counted(tmp_path: Path) -> None:
    path = ";".join(["main", *["f"] * 20_000, "leaf"])
    (tmp_path / "stacks").write_text(f"{path} 3\n{path};inner 4\n")
    imported(tmp_path / "stacks", tmp_path / "m")
    merge([tmp_path / "m"], tmp_path / "db", workers=1)
    with Database(tmp_path / "db") as db:
        assert int(db.cct.depth().max()) == (1 << 14) + 1
        assert any("frames left out" in name for name in db.procedures.name)


def test_collisions_of_names_stay_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class OneHash:
        def __init__(self, *_: object, **__: object) -> None: ...

        def digest(self) -> bytes:
            return b"\xff" * 5

    monkeypatch.setattr(imported_tree.hashlib, "blake2b", OneHash)
    (tmp_path / "stacks").write_text("a;b;c 1\na;c;b 2\n")
    imported(tmp_path / "stacks", tmp_path / "m")
    (totals,) = sums(tmp_path / "m").values()
    assert totals == {("a", "b", "c"): 1, ("a", "c", "b"): 2}


SPEEDSCOPE = (
    b'{"$schema":"https://www.speedscope.app/file-format-schema.json","shared":{"frames":[]},'
    b'"profiles":[{"type":"sampled","name":"a","unit":"none","samples":%s}]}'
)


def refused(words: list[str], capsys: pytest.CaptureFixture[str], code: int) -> str:
    """The one line an import is refused with; nothing is left behind."""
    output = Path(words[0]).parent / "refused"
    capsys.readouterr()
    assert main(["import", *words, "-o", str(output)]) == code
    assert not output.exists()
    error = capsys.readouterr().err
    assert error.startswith("hpcd: ") and error.count("\n") == 1 and error[:-1].isprintable()
    return error


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"\x7fELF\x02\x01\x01" + bytes(100), "not recognised"),
        (os.urandom(20_000), "not recognised"),
        (b"hello world\nthis is text\n", "not recognised"),
        (b"MOJ\x03\x01mode\x00wall\x00", "no samples"),
        (b"MOJ\x63\x01mode\x00wall\x00", "version -35 of MOJO"),
        (b"MOJ\x03\x01mode", "does not end"),
        (b"MOJ\x03\x02\x81", "cut off"),
        (gzip.compress(b"main;a 5\n" * 10_000)[:-20], "cut off or damaged"),
        (b"main;a 99999999999999999999999999\n", "not recognised"),
        (b"# austin: 3.7.0\n\nnonsense\n" + b"more nonsense\n" * 20, "no sample of Austin"),
        (
            b"fp 1/1 1.5: 5 cycles: \n\t561c f (/x)\n\n" + b"garbage\n" * 50,
            "line 4 is no text of perf",
        ),
        (b"fp 1/1 999999999999.5: 5 cycles: \n\t561c f (/x)\n\n", "out of range"),
        (b"# austin: 3.7.0\n", "no samples"),
        (b"main;a 5 7\nmain;b 0 3\n", "two counts a line, as difffolded.pl"),
        (struct.pack("<5Q", 0, 3, 0, 10_000, 0) + bytes(80), "gperftools, which has no names"),
        (struct.pack(">5I", 0, 3, 0, 10_000, 0) + bytes(80), "gperftools, which has no names"),
        (SPEEDSCOPE % b'[[0]],"weights":[1]', "not follow speedscope's schema"),
        (SPEEDSCOPE % b'[[-1]],"weights":[1]', "not follow speedscope's schema"),
        (SPEEDSCOPE % b'[[]],"weights":[NaN]', "weight nan is out of range"),
        (SPEEDSCOPE % b'[[]],"weights":[1e300]', "out of range"),
        (SPEEDSCOPE % (b"[" * 100_000), "not follow speedscope's schema"),
        (
            b"".join(b"fp 1/1 %d.5: 5 cycles: \n\t561c f (/x)\n\n" % at for at in (1, 10**8)),
            "203 days apart",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_recording_gets_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, says: str
) -> None:
    (tmp_path / "file").write_bytes(content)
    assert says in refused([str(tmp_path / "file")], capsys, FormatError.exit_code)


def test_what_cannot_be_read_or_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused([str(tmp_path / "missing")], capsys, NotFoundError.exit_code)
    refused([str(tmp_path)], capsys, FormatError.exit_code)
    (tmp_path / "stacks").write_text("a;b 1\n")
    (tmp_path / "m").mkdir()
    (tmp_path / "m/kept").touch()
    assert main(["import", str(tmp_path / "stacks"), "-o", str(tmp_path / "m")]) == 6
    assert (tmp_path / "m/kept").exists()
    for words in (["--frequency", "nan"], ["--rank", "3", "--ranks", "2"], ["--format", "xml"]):
        assert main(["import", str(tmp_path / "stacks"), "-o", str(tmp_path / "x"), *words]) == 2


FILES = sorted(path for path in DATA.iterdir() if path.is_file())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_damaged_recordings_are_read_or_refused(tmp_path: Path, path: Path) -> None:
    """Cut off and mutated anywhere: an HpcdError, or a sound measurement; nothing else."""
    import_mutants(path, tmp_path, 60)


@pytest.mark.parametrize(
    "line",
    [b" " * 3_000_000, b"\t(" * 1_000_000, b"a " * 1_000_000, b"1" * 3_000_000, b"(a) " * 700_000,
     b"- 1/1 " * 500_000, b"a:" * 1_000_000, b"a (b:" * 500_000],
    ids=range(8),
)  # fmt: skip
@pytest.mark.parametrize("kind", ["perf-script", "collapsed", "py-spy", "austin"])
def test_long_lines_take_no_more_time_than_others(tmp_path: Path, line: bytes, kind: str) -> None:
    """Whatever backtracks takes hours on one of these; the suite's time limit ends it."""
    heads = {
        "perf-script": b"fp 1/1 1.5: 5 cycles: \n\t561c %s)\n\n%s\n\n",
        "collapsed": b"%s;%s 5\n",
        "py-spy": b"%s:3);%s (f:3) 5\n",
        "austin": b"P1;T1;%s;%s:3 5\n",
    }
    (tmp_path / "file").write_bytes(heads[kind] % (line, line))
    try:
        imported(tmp_path / "file", tmp_path / "m", format=kind)
    except FormatError:
        return
    with open_measurement(tmp_path / "m") as measurement:
        assert measurement.closed


@pytest.mark.parametrize(
    "line",
    [b"\t  401000 " + b"f+0x1 (" * 200_000, b"\t  401000 " + b"f (/" * 200_000,
     b"\t  1 " + b"(" * 200_000 + b")" * 100_000, b"401000 f+0x1 (" * 200_000,
     b"           401000 " * 200_000, b": 1 x" * 200_000, b"1.5: " * 200_000],
    ids=range(7),
)  # fmt: skip
def test_long_lines_of_perf_script_take_no_more_time_than_they_are_long(
    tmp_path: Path, line: bytes
) -> None:
    """The time grew with the square of their length."""
    header = b"app 7/7 1.5: 3 cycles: "
    (tmp_path / "perf.txt").write_bytes(header + (b"\n" if line[:1] == b"\t" else b"") + line)
    with (tmp_path / "perf.txt").open("ab") as file:
        file.write(b"\n\n")
    assert imported(tmp_path / "perf.txt", tmp_path / "m").samples >= 1
