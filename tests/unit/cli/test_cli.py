"""The command line's face: help, errors, exit codes."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hpcd import errors
from hpcd.__main__ import build_parser, main
from hpcd.cli.verbs import VERBS, load
from hpcd.elf.elf_file import ElfFile
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.identity import Host, Module, ModuleKind
from hpcd.model.unwind_status import UNWIND_LABELS, is_whole
from tests.support.paths import ROOT, let_all_users_reach
from tests.support.recorded import HPCD, hpcd


def rows(document: str) -> list[list[str]]:
    """The cells of a document's table, without its head."""
    lines = (ROOT / "docs" / document).read_text().splitlines()
    table = [line.strip("|").split("|") for line in lines if line.startswith("|")]
    return [[cell.strip() for cell in cells] for cells in table[2:]]


def test_every_error_has_its_documented_code() -> None:
    documented = {name: int(code) for code, name, _ in rows("exit-codes.md") if name}
    raised = {
        name: member.exit_code
        for name, member in inspect.getmembers(errors, inspect.isclass)
        if issubclass(member, errors.HpcdError)
    }
    assert documented == raised


def test_every_reason_of_a_truncated_path_is_documented() -> None:
    documented = [reason for reason, _, _ in rows("truncated.md")]
    incomplete = [label for status, label in UNWIND_LABELS.items() if not is_whole(status)]
    assert sorted(documented) == sorted(incomplete)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([verb, "--help"])
    assert exit_.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert (inspect.getdoc(load(verb)) or "").splitlines()[0] in text


def test_the_manual_page_has_every_environment_variable() -> None:
    pattern = re.compile(r'(?:os\.environ(?:\.get\(|\.pop\(|\[)|os\.getenv\()\s*"(\w+)"')
    read = {
        name
        for folder in ("hpcd", "bpf", "daemon", "analysis", "interchange", "viewer", "cli")
        for path in (ROOT / folder).rglob("*.py")
        for name in pattern.findall(path.read_text())
    }
    page = (ROOT / "docs/hpcd.1").read_text()
    terms = re.findall(r"\.TP\n\.B (.*)", page[page.index(".SH ENVIRONMENT") :])
    assert read == {name for term in terms for name in term.split(", ")}


def test_parser_of_all_verbs_builds() -> None:
    assert build_parser().format_help().count("\n") > len(VERBS)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 2, "required"),
        (["nonsense"], 2, "no verb nonsense; there are profile"),
        (["reprot"], 2, "did you mean report?"),
        (["report", "--prcent", "3", "db"], 2, "unknown option --prcent; did you mean --percent?"),
        (["attach", "1234"], 2, "unexpected argument 1234; did you mean --pid 1234?"),
        (["merge", "--sideways", "m", "-o", "x"], 2, "unknown option --sideways"),
        (["profile", "--pid", "1", "--", "true"], 2, "not both"),
        (["profile", "--name", "../x", "--", "true"], 2, "a result's name has letters"),
        (["results", "--delete", "no-such-result"], 8, "no result no-such-result"),
        (["attach"], 2, "--pid"),
        (["attach", "--pid", "x"], 2, "invalid int"),
        (["attach", "--pid", "4194305"], 3, "no process 4194305"),
        (["attach", "--pid", "-1"], 3, "no process -1"),
        (["attach", "--pid", "1", "--frequency", "0"], 2, "frequency"),
        (["merge", "/nonexistent", "-o", "/tmp/never"], 8, "/nonexistent"),
        (["report", "/nonexistent"], 8, "/nonexistent"),
        (["render", "/nonexistent", "-o", "x.png"], 8, "/nonexistent"),
        (["run"], 2, "no command"),
    ],
)
def test_bad_input_is_one_line_and_a_code(arguments: list[str], code: int, says: str) -> None:
    done = hpcd(*arguments, check=False)
    assert done.returncode == code, done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("hpcd: ") and says in lines[0]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("path", "code"), [("/nonexistent", 8), ("/etc/passwd", 7)])
def test_check_reports_what_is_no_measurement(path: str, code: int) -> None:
    done = hpcd("check", path, check=False)
    assert done.returncode == code
    assert path in done.stdout and done.stderr == ""


@pytest.mark.parametrize("arguments", ["doctor", "--help", "report --help"])
def test_a_closed_pipe_is_no_error(arguments: str) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*HPCD, *arguments.split()], stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("verb", "code"), [("results", 0), ("no-such-verb", 2), ("check", 2)])
def test_closed_pipes_of_both_streams_change_no_exit_code(verb: str, code: int) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*HPCD, verb], stdout=write, stderr=write)
    os.close(write)
    assert done.returncode == code


@pytest.mark.parametrize("arguments", ["doctor", "--help", "--version"])
def test_a_full_disk_under_the_output_is_one_line(arguments: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*HPCD, *arguments.split()], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == errors.StorageError.exit_code
    assert done.stderr == "hpcd: writing output: No space left on device\n"


def test_file_names_cannot_break_the_line() -> None:
    done = hpcd("report", "/no\nsuch\x1b[31m\udcff", check=False)
    assert done.returncode == errors.NotFoundError.exit_code
    assert done.stderr.startswith("hpcd: /no\\nsuch\\x1b[31m\\udcff: ")
    assert done.stderr.count("\n") == 1


def test_an_interruption_is_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: object, __: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(load("doctor")), "run", interrupted)
    assert main(["doctor"]) == 130
    assert capsys.readouterr().err == ""


def test_verbose_shows_where_an_error_comes_from() -> None:
    done = hpcd("-v", "report", "/nonexistent", check=False)
    assert done.returncode == errors.NotFoundError.exit_code
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1] == "hpcd: /nonexistent: no such database"


def test_a_missing_library_costs_only_the_verbs_that_need_it() -> None:
    script = (
        "import sys; sys.modules['bcc'] = sys.modules['iced_x86'] = sys.modules['psutil'] = None; "
        "from hpcd.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    done = {
        verb: subprocess.run(
            [sys.executable, "-c", script, verb, *options], capture_output=True, text=True
        )
        for verb, options in {"list": [], "report": ["--help"]}.items()
    }
    assert done["report"].returncode == 0
    assert done["list"].returncode == errors.PlatformError.exit_code
    assert done["list"].stderr.count("\n") == 1


def test_internal_errors_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: object, __: object) -> int:
        raise RuntimeError("boom")

    monkeypatch.delenv("HPCD_DEBUG", raising=False)
    monkeypatch.setattr(type(load("doctor")), "run", broken)
    assert main(["doctor"]) == 70
    output = capsys.readouterr().err
    assert output.startswith("hpcd: internal error: RuntimeError: boom") and output.count("\n") == 1


def test_doctor_says_what_and_why() -> None:
    done = hpcd("doctor", "--json", check=False)
    result = json.loads(done.stdout)
    assert done.returncode == (0 if result["can_record"] else 5)
    for feature in result["features"]:
        assert feature["detail"]
        assert feature["available"] or feature["remedy"]


@pytest.mark.root
def test_doctor_without_privilege_names_the_remedy() -> None:
    done = subprocess.run(
        ["setpriv", "--bounding-set=-all", "--inh-caps=-all",
         sys.executable, "-m", "hpcd", "doctor", "--json"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 5
    features = {feature["name"]: feature for feature in json.loads(done.stdout)["features"]}
    assert not features["capabilities"]["available"]
    assert "CAP_BPF" in features["capabilities"]["remedy"]


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("hpcd rep", "report"),
        ("hpcd report --pe", "--percent"),
        ("hpcd report db --view bot", "bottom-up"),
        ("hpcd render db --vi", "--view"),
    ],
)
def test_a_shell_completes_verbs_options_and_values(line: str, word: str) -> None:
    """As the shell functions that argcomplete makes ask: the answer is on descriptor 8."""
    environment = {
        **os.environ, "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": " ", "COMP_LINE": line,
        "COMP_POINT": str(len(line)), "COMP_TYPE": "9", "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
    }  # fmt: skip
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" 8>&1 9>/dev/null', "sh", *HPCD],
        env=environment, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == [word]


def test_a_result_is_found_beside_what_is_called_like_it(tmp_path: Path) -> None:
    """Neither a program nor a folder of its name hides a result; databases and measurements do."""
    hpcd("synth", "-o", tmp_path / "m", "--ranks", 1, "--records", 10)
    (tmp_path / "results").mkdir()
    hpcd("merge", tmp_path / "m/node-00000", "-o", tmp_path / "results/app")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/app").write_text("a program")
    (tmp_path / "src/app").mkdir(parents=True)
    environment = {**os.environ, "HPCD_RESULTS": str(tmp_path / "results")}
    for folder in ("bin", "src"):
        for verb in ("report", "check"):
            done = subprocess.run(
                [*HPCD, verb, "app"], env=environment, cwd=tmp_path / folder, capture_output=True,
                text=True,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            assert str(tmp_path / "results/app") in done.stdout
    for word in ("", "."):
        done = subprocess.run([*HPCD, "report", word], env=environment, capture_output=True,
                              cwd=tmp_path / "bin", text=True)  # fmt: skip
        assert (done.returncode, done.stderr) == (7, "hpcd: .: not an hpcd database\n")
    refused = hpcd("report", tmp_path / "m/node-00000", check=False)
    assert refused.stderr.endswith(": not an hpcd database; hpcd merge makes one of it\n")


def test_columns_are_heeded_into_a_pipe(tmp_path: Path) -> None:
    hpcd("synth", "-o", tmp_path / "m", "--ranks", 2, "--records", 1000)
    hpcd("merge", tmp_path / "m/node-00000", "-o", tmp_path / "db")
    widths = []
    for columns in ("64", "200"):
        environment = {**os.environ, "COLUMNS": columns}
        command = [*HPCD, "report", tmp_path / "db", "--no-fold"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        tree = done.stdout.partition("inclusive")[2].splitlines()[1:-1]
        widths.append(max(map(len, tree)))
    assert widths[0] <= 64 < widths[1]


def test_a_module_that_is_not_the_file_at_its_path_is_named(tmp_path: Path) -> None:
    """Unless the file was changed after the recording began."""
    library = tmp_path / "library.so"
    shutil.copy("/usr/bin/true", library)
    with library.open("rb") as file:
        build_id = ElfFile(file, "").build_id()
    changed = library.stat().st_ctime_ns
    for begun, named in ((changed - 10**9, []), (changed + 10**9, ["5e" * 20])):
        path = tmp_path / str(begun)
        host = Host(os.uname().nodename, "boot", "6.1", "x86_64", 2)
        writer = MeasurementWriter(path, host, options={})
        for number, recorded in enumerate(("5e" * 20, build_id), 1):
            writer.add_module(Module(number, ModuleKind.ELF, str(library), recorded))
        writer.add_clock_pair(10**9, begun)
        writer.close()
        text = hpcd("check", path).stdout
        assert re.findall(f"{library} was recorded with build id ([0-9a-f]+)", text) == named


@pytest.mark.parametrize("verb", ["report", "calls", "check"])
@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_a_closed_stream_is_no_internal_error(verb: str, closed: str, tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"$@" {closed}', "sh", *HPCD, verb, tmp_path / "none"], capture_output=True
    )
    assert done.returncode == 8


@pytest.mark.root
def test_what_another_user_keeps_is_denied_in_a_line(tmp_path: Path) -> None:
    hpcd("synth", "-o", tmp_path / "m", "--ranks", 1, "--records", 10)
    hpcd("merge", tmp_path / "m/node-00000", "-o", tmp_path / "db")
    for folder in ("m/node-00000", "db"):
        (tmp_path / folder).chmod(0o700)
    let_all_users_reach(tmp_path)
    user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    measurement, database = tmp_path / "m/node-00000", tmp_path / "db"
    for verb, path in (("check", database), ("check", measurement), ("merge", measurement),
                       ("report", database)):  # fmt: skip
        words = [verb, path, "-o", "/tmp/none"] if verb == "merge" else [verb, path]
        done = subprocess.run([*user, *HPCD, *words], capture_output=True, text=True)
        assert done.returncode == 8 and "permission denied" in (done.stdout + done.stderr).lower()


def test_an_error_ends_with_the_code_that_it_is_given_above_that_of_its_class() -> None:
    given = [errors.HpcdError("x", 9), errors.TargetError("x"), errors.HpcdError("x", -9)]
    assert [error.exit_code for error in given] == [9, errors.TargetError.exit_code, 1]
