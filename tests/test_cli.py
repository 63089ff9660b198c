"""The command line finds its commands without importing those that nobody asked for."""

import json
import subprocess
import sys
from importlib import import_module

import pytest
import typer

from gpuatlas import cli, commands


def gpuatlas(*words: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "gpuatlas.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("module", commands.MODULES)
def test_each_module_has_the_commands_that_are_listed(module):
    app = typer.Typer()
    import_module(f"gpuatlas.commands.{module}").register(app)
    names = [entry.name for entry in (*app.registered_commands, *app.registered_groups)]
    assert sorted(names) == sorted(commands.MODULES[module])


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["--help", "convert"], ["-q", "-h", "train"]])
def test_help_lists_every_command(words):
    text = gpuatlas(*words).stdout
    for names in commands.MODULES.values():
        for name in names:
            assert f" {name} " in text


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["convert", "a"], "convert"),
        (["-q", "--debug", "convert"], "convert"),
        (["-qh", "convert"], None),
        (["--version", "convert"], None),
        (["--", "convert"], None),
        ([], None),
    ],
)
def test_the_command_that_is_asked_for(words, command):
    assert cli._command(words) == command


def test_a_misspelt_command_is_a_usage_error_that_names_the_nearest():
    done = gpuatlas("convrt")
    assert done.returncode == 2
    assert "convert" in done.stderr


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (KeyboardInterrupt(), 130, ""),
        (MemoryError(), 1, "gpuatlas: not enough memory; free some, or raise the job's limit.\n"),
        (
            RuntimeError("can't start new thread"),
            1,
            "gpuatlas: not enough memory; free some, or raise the job's limit.\n",
        ),
    ],
    ids=repr,
)
def test_what_ends_a_command_is_no_traceback(monkeypatch, capsys, error, status, words):
    def ends(**_: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", ends)
    monkeypatch.setattr(cli.commands, "register", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == status
    assert capsys.readouterr().err == words


def test_a_command_imports_no_other_stage_and_draws_nothing_unasked():
    script = (
        "import json, sys; sys.argv[1:] = ['convert', '/nowhere', '--out', '/nowhere']\n"
        "from gpuatlas.cli import main\n"
        "try: main()\n"
        "except SystemExit: print(json.dumps([*sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    imported = json.loads(done.stdout)
    assert "gpuatlas.commands.reports" in imported
    assert not {"gpuatlas.commands.training", "rich", "torch", "pandas", "concurrent.futures.process"} & {
        *imported
    }
