"""Documents say what the program does."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import pytest

from hpcd.__main__ import build_parser
from hpcd.cli.verbs import VERBS
from hpcd.measurement.chunk import ChunkKind
from hpcd.viewer.server.answers import BINARY_ANSWERS, JSON_ANSWERS
from tests.support.paths import ROOT


@pytest.mark.parametrize(
    ("what", "page"),
    [([], "hpcd.1"), (["configuration"], "hpcd.toml.5"), (["options"], "recording-options.md")],
)
def test_pages_made_from_the_code_are_current(what: list[str], page: str) -> None:
    done = subprocess.run(
        [sys.executable, "setup/manpage.py", *what], cwd=ROOT, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout == (ROOT / "docs" / page).read_text(), "run: make man"


def test_the_page_of_commands_names_every_verb_and_no_other() -> None:
    text = (ROOT / "docs/commands.md").read_text()
    named = {line.split("hpcd ")[1].split()[0] for line in text.splitlines()
             if line.startswith(("hpcd ", "sudo hpcd ")) and " # " in line}  # fmt: skip
    assert named == set(VERBS)


def test_every_command_in_the_documents_is_understood() -> None:
    """Its verb and its options; what it does is tested where the verb is."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    parser_of = lru_cache(build_parser)
    count = 0
    for page in pages:
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.M | re.S):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True) if "<<" not in line else []
                if "hpcd" not in words[:2] or words[0] not in ("hpcd", "sudo"):
                    continue
                words = [re.sub(r"\$[\w!]+", "1", w) for w in words[words.index("hpcd") + 1 :]]
                ends = [at for at, word in enumerate(words) if word in ("|", "&", "&&", ">")]
                words = words[: min(ends, default=len(words))]
                if "--help" not in words:
                    _, unknown = parser_of(words[0]).parse_known_args(words)
                    assert not unknown, (page.name, line)
                    count += 1
    assert count > 50


def test_every_chunk_kind_is_documented() -> None:
    text = (ROOT / "docs/formats.md").read_text()
    for kind in ChunkKind:
        assert f"| {kind.value} | {kind.name} |" in text


def test_the_configuration_is_documented_as_it_is() -> None:
    from hpcd.daemon.service.configuration import Configuration, as_toml

    assert (ROOT / "docs/hpcd.toml").read_text() == as_toml(Configuration())


_FOLDERS = {
    "analysis", "benchmarks", "bpf", "cli", "daemon", "docs", "hpcd", "interchange", "setup",
    "systemd", "tests", "viewer",
}  # fmt: skip
_REFERENCE = re.compile(r"`([\w./*-]+?)(?::([\w.]+))?`")


def named_paths(page: str) -> list[tuple[str, str]]:
    """Return a page's references in backticks to this project's folders: path, and name in it or
    ""."""
    # Drawings are no references.
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.M | re.S)
    references = []
    for path, name in _REFERENCE.findall(text):
        pattern = "NAME" in path or "*" in path
        if path.split("/")[0] in _FOLDERS and "/" in path and not pattern:
            references.append((path, name))
    return references


def _words(path: Path) -> set[str]:
    if not path.is_file():
        return set()
    text = path.read_text()
    # A name that a module imports is in another file.
    imported = " ".join(re.findall(r"^from .* import (\([^)]*\)|.*)$", text, re.M))
    names = re.findall(r"\w+", re.sub(r"\w+ as ", "", imported))
    return set(re.findall(r"\w+", text)) - set(names)


# Pages that are mostly references: a test of these that finds none tests nothing.
_INDEXES = ("docs/architecture.md", "docs/glossary.md", "docs/contributing.md")
_PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("*/*.md")]
)


@pytest.mark.parametrize("page", _PAGES)
def test_what_documents_refer_to_exists(page: str) -> None:
    references = named_paths(page)
    assert len(references) > 10 or page not in _INDEXES
    missing = [path for path, _ in references if not (ROOT / path).exists()]
    assert not missing, f"{page} names what is not there: {', '.join(missing)}"
    unknown = [
        f"{path}:{name}"
        for path, name in references
        if not set(filter(None, name.split("."))) <= _words(ROOT / path)
    ]
    assert not unknown, f"{page} names what is not in that file: {', '.join(unknown)}"


# Of others: what a directory may hold, the kernel's headers.
_FOREIGN = {"numpy.py", "autoconf.h"}


_C_FOLDERS = {"bpf": "bpf/programs", "kernels": "hpcd/kernels/sources"}
_IN_COMMENT = re.compile(r"(?<![\w./-])([\w./-]*\w\.(?:py|c|h|md|js))\b(?::(?:struct )?(\w+))?")
# Of the kernel and of libbpf; one is written while bcc compiles.
_HEADERS = {"bpf.h", "bpf_core_read.h", "kernel_layouts.h", "page-flags-layout.h"}


@pytest.mark.parametrize("name", _C_FOLDERS)
def test_files_that_comments_in_c_name_exist(name: str) -> None:
    """By their path in this tree, or among the sources; other paths are the kernel's."""
    folder = ROOT / _C_FOLDERS[name]
    files = {path.name for top in _FOLDERS for path in (ROOT / top).rglob("*.*")}
    missing, count = [], 0
    for source in sorted(folder.rglob("*.[ch]")):
        comments = " ".join(re.findall(r"/\*.*?\*/", source.read_text(), re.S))
        for path, word in _IN_COMMENT.findall(comments):
            top = path.split("/")[0]
            if "/" not in path:
                exists = path in files | _HEADERS
            elif top in _FOLDERS:
                exists = (ROOT / path).is_file() and {*filter(None, [word])} <= _words(ROOT / path)
            else:
                exists = (folder / path).is_file() or top in {"arch", "include", "kernel"}
            count += 1
            if not exists:
                missing.append(f"{source.relative_to(ROOT)}: {path}{word and f':{word}'}")
    assert count > 10
    assert not missing, f"comments name what is not there: {', '.join(missing)}"


@pytest.mark.parametrize("page", _PAGES)
def test_source_files_in_documents_exist(page: str) -> None:
    """Source files named without their folder, too."""
    folders = (*_FOLDERS, "packaging")
    names = {path.name for folder in folders for path in (ROOT / folder).rglob("*.*")}
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.M | re.S)
    paths = re.findall(r"`([\w./-]+\.(?:py|c|h|js))(?::[\w.]+)?`", text)
    named = {Path(path).name for path in paths}
    missing = sorted(named - names - _FOREIGN - {"NAME.py"})
    assert not missing, f"{page} names files that are not there: {', '.join(missing)}"


def test_drawings_name_files_that_exist() -> None:
    drawings = re.findall(
        r"^```.*?^```", (ROOT / "docs/architecture.md").read_text(), flags=re.M | re.S
    )
    paths = re.findall(r"\b[\w/]+/[\w.]+\.(?:py|c|h|js|md)\b", drawings[0])
    assert len(paths) > 10
    missing = [path for path in paths if not (ROOT / path).exists()]
    assert not missing, f"docs/architecture.md draws what is not there: {', '.join(missing)}"


def test_glossary_terms_are_sorted_and_defined_once() -> None:
    text = (ROOT / "docs/glossary.md").read_text()
    paragraphs = text.split("\n\n")[2:]
    terms = []
    for paragraph in paragraphs:
        entry = re.fullmatch(r"\*\*([^*]+)\*\* — (.+)", paragraph.strip(), flags=re.S)
        assert entry, f"no term and definition: {paragraph[:60]}"
        terms.append(entry[1])
    assert len(terms) > 40
    folded = [term.casefold() for term in terms]
    assert folded == sorted(folded)
    assert len(set(folded)) == len(folded)


def test_the_readme_names_every_folder_of_code() -> None:
    table = (ROOT / "README.md").read_text().split("## Where things are")[1]
    named = set()
    for line in table.splitlines():
        if line.startswith("| `"):
            folders = re.findall(r"`([\w/]+)/`", line.split("|")[1])
            first = folders[0]
            # Further folders of a row lie beside the first, unless they say where they lie.
            named |= {
                folder if (ROOT / folder).is_dir() else f"{first.split('/')[0]}/{folder}"
                for folder in folders
            }
    missing = sorted(folder for folder in named if not (ROOT / folder).is_dir())
    assert not missing, f"README.md names folders that are not there: {', '.join(missing)}"
    tops = ("analysis", "bpf", "cli", "daemon", "interchange", "viewer", "hpcd")
    code = {
        str(folder.relative_to(ROOT))
        for top in tops
        for folder in (ROOT / top).iterdir()
        if any(file.suffix in (".py", ".c", ".js") for file in folder.rglob("*"))
    }
    assert code <= named, f"README.md leaves out {', '.join(sorted(code - named))}"


def test_every_option_is_on_a_page_of_the_documents() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    words = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", "\n".join(p.read_text() for p in pages)))
    missing = {
        f"{verb} {action.option_strings[-1]}"
        for verb in VERBS
        for action in verb_parser(verb)._actions
        if action.option_strings and not words & set(action.option_strings)
    }
    assert not missing, f"no page names {', '.join(sorted(missing))}"


def test_every_answer_of_the_viewer_is_documented() -> None:
    page = (ROOT / "docs/viewer-api.md").read_text()
    documented = set(re.findall(r"`db/NAME/([a-z/-]+)\b", page))
    missing = {*JSON_ANSWERS, *BINARY_ANSWERS} - documented
    assert not missing, f"docs/viewer-api.md has no {', '.join(sorted(missing))}"


def verb_parser(verb: str) -> argparse.ArgumentParser:
    """The parser of a verb's own options."""
    verbs = next(
        action
        for action in build_parser(verb)._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    parser: argparse.ArgumentParser = verbs.choices[verb]
    return parser
