"""Programs of other revisions of a repository, and programs that bring modules of the same name."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from timelapse.errors import RunError, UsageError
from timelapse.program.versions import _stays_inside, load_versioned, origin_of, split_revision
from timelapse.run import Run

RULES = """
import timelapse as tl
from helper_of_rules import LIMIT

class E(tl.Event):
    n: int

class Big(tl.Record, key="n"):
    n: int

class Rules(tl.Program):
    @tl.on(E)
    def go(self, e):
        if e.n > LIMIT:
            self.emit(Big(n=e.n))
"""


def git(folder: Path, *arguments: str) -> str:
    settings = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"]
    command = ["git", *settings, "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits (limit 1, tagged `one`, then 2), and a working tree with 3."""
    folder = tmp_path / "repo" / "sub"
    folder.mkdir(parents=True)
    git(tmp_path / "repo", "init", "-q", "-b", "main")
    for limit, tag in ((1, "one"), (2, "team/two")):
        (folder / "rules.py").write_text(RULES)
        (folder / "helper_of_rules.py").write_text(f"LIMIT = {limit}\n")
        git(folder, "add", ".")
        git(folder, "commit", "-qm", tag)
        git(folder, "tag", tag)
    (folder / "helper_of_rules.py").write_text("LIMIT = 3\n")
    (folder / "new.py").write_text(RULES)
    return folder


def found(program: type[tl.Program]) -> list[int]:
    event = sys.modules[program.__module__].__dict__.get("E") or program.__dict__
    events = program.go.__globals__["E"]  # type: ignore[attr-defined]
    assert event is not None
    run = tl.run_serial(program, [events(n=n, ts=n) for n in range(6)])
    return run.table("Big").column("n").to_pylist()  # type: ignore[no-any-return]


def test_each_version_has_its_own_helpers(repository: Path) -> None:
    """Modules of one name do not mix, whatever was loaded before."""
    file = repository / "rules.py"
    order = [(f"{file}:Rules@one", 1), (f"{file}:Rules", 3), (f"{file}@main", 2), (f"{file}:Rules@team/two", 2),
             (f"{file}:Rules@HEAD~1", 1), (f"{file}:Rules", 3)]  # fmt: skip
    programs = [(load_versioned(reference), limit) for reference, limit in order]
    for program, limit in programs:
        assert found(program) == list(range(limit + 1, 6))
    assert origin_of(programs[0][0]) == f"{file.resolve()}:Rules@{git(repository, 'rev-parse', 'one')}"
    assert origin_of(programs[1][0]) is None


def test_a_run_of_a_revision_finds_its_program_again(repository: Path, tmp_path: Path) -> None:
    """Its source names the commit, so that a moved branch does not matter."""
    program = load_versioned(f"{repository / 'rules.py'}:Rules@one")
    events = [program.go.__globals__["E"](n=n, ts=n) for n in range(4)]  # type: ignore[attr-defined]
    log = tl.Log.from_events(tmp_path / "log", events)
    tl.replay(program, log, out=tmp_path / "run", spark=False)
    opened = Run.open(tmp_path / "run")
    assert opened.manifest.source is not None
    assert opened.manifest.source.endswith(git(repository, "rev-parse", "one"))
    assert opened.verify().ok
    git(repository, "tag", "-d", "one")
    git(repository, "update-ref", "-d", "refs/heads/main")
    assert Run.open(tmp_path / "run").verify().ok
    git(repository.parent, "checkout", "-q", "--orphan", "other")
    (repository.parent / ".git").rename(repository.parent / "gone")
    with pytest.raises(RunError) as caught:
        Run.open(tmp_path / "run").verify()
    assert caught.value.code == "TL604"


def test_commands_take_revisions(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`replay` of a revision leaves a run that is looked into as any other; `sweep` and `explain` take one too."""
    monkeypatch.chdir(tmp_path)
    program = load_versioned(f"{repository / 'rules.py'}:Rules@one")
    events = [program.go.__globals__["E"](n=n, ts=n) for n in range(4)]  # type: ignore[attr-defined]
    tl.Log.from_events(tmp_path / "log", events)
    for revision, outputs in (("@one", 2), ("@main", 1), ("", 0)):
        reference = f"{repository / 'rules.py'}:Rules{revision}"
        done = cli("replay", reference, "log", "--local", "--json")
        assert done.json["outputs"] == {"Big": outputs}
        assert cli("explain", reference).code == 0
    assert "n=3 > LIMIT=1" in cli("why", "@1", "Big:3").out.replace("e.", "")
    assert cli("verify", "@2").code == 0
    assert cli("replay", f"{repository / 'rules.py'}:Rules@no", "log").err.startswith("TL817")


@pytest.mark.parametrize(
    ("reference", "plain", "revision"),
    [("a.py:B", "a.py:B", None), ("a.py:B@main", "a.py:B", "main"), ("a.py@HEAD@{1}", "a.py", "HEAD@{1}"),
     ("x@y/a.py:B", "x@y/a.py:B", None), ("x@y/a.py:B.C@o/b", "x@y/a.py:B.C", "o/b"), ("pkg.mod:B", "pkg.mod:B", None)],
)  # fmt: skip
def test_references(reference: str, plain: str, revision: str | None) -> None:
    """The revision stands after the class; an @ in the path is part of it."""
    assert split_revision(reference) == (plain, revision)


@pytest.mark.parametrize("revision", ["nowhere", "--output=x", "HEAD^{tree}", " "])
def test_no_such_revision(repository: Path, revision: str) -> None:
    """TL817, and nothing that looks like an option reaches git as one."""
    with pytest.raises(UsageError) as caught:
        load_versioned(f"{repository / 'rules.py'}:Rules@{revision}")
    assert caught.value.code == "TL817"
    assert not list(repository.glob("x"))


def test_no_such_file(repository: Path, tmp_path: Path) -> None:
    """A file that the revision does not have; a folder that is no repository; a folder that is not there."""
    for file, code in (
        (repository / "new.py", "TL817"),
        (tmp_path / "a.py", "TL817"),
        (tmp_path / "x" / "a.py", "TL803"),
    ):
        with pytest.raises(UsageError) as caught:
            load_versioned(f"{file}:Rules@main")
        assert caught.value.code == code


@pytest.mark.parametrize(
    ("name", "link", "inside"),
    [
        ("rules.py", "", True), ("a/b.py", "", True), ("../x", "", False), ("/etc/x", "", False), ("a/../../x", "", False),
        ("a/link", "../rules.py", True), ("a/link", "../../x", False), ("link", "/etc/passwd", False),
    ],
)  # fmt: skip
def test_nothing_is_unpacked_elsewhere(name: str, link: str, inside: bool) -> None:
    """What stands in for the standard library's filter, which Python has from 3.11.4 on."""
    member = tarfile.TarInfo(name)
    if link:
        member.type, member.linkname = tarfile.SYMTYPE, link
    assert _stays_inside(member) is inside
