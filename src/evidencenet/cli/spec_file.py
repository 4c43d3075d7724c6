"""The user's Python file that defines `models`."""

import contextlib
import os
import sys
import traceback
from collections.abc import Generator
from pathlib import Path
from types import ModuleType

import evidencenet as en
from evidencenet._common.executors import sent_along
from evidencenet.cli.session import CommandError

_MODULE = "evidencenet_models"


@contextlib.contextmanager
def models_of(path: Path) -> Generator[list[en.Model]]:
    """Run the file and yield its models; while they are in use, errors name the line of the file.

    The file may import modules from its own folder, as a Python script may.
    """
    if not path.is_file():
        raise CommandError(f"there is no file {path}; wanted a Python file that defines `models`.")
    folder = str(path.resolve().parent)
    known = set(sys.modules)
    sys.path.insert(0, folder)
    try:
        module = _run(path)
        with sent_along(module):
            yield _models(module, path)
    except (CommandError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        place = _place(error, path)
        if place is None:
            raise
        raise CommandError(f"{place}\n{_words(error)}") from error
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)
        # Another file may have a module of the same name in its own folder.
        for name in set(sys.modules) - known:
            file = getattr(sys.modules[name], "__file__", None)
            if name == _MODULE or (file and os.path.dirname(file) == folder):
                del sys.modules[name]


def source_of(path: Path | None) -> str | None:
    """Return the text of the file, for the record of a run; None if there is no file."""
    if path is None or not path.is_file():
        return None
    return path.read_text(encoding="utf-8", errors="replace")


def _run(path: Path) -> ModuleType:
    module = ModuleType(_MODULE)
    module.__file__ = str(path.resolve())
    # Classes of the file are looked up here by name.
    sys.modules[_MODULE] = module
    try:
        code = compile(path.read_bytes(), str(path), "exec")
    except (SyntaxError, ValueError) as error:
        if getattr(error, "filename", None):
            raise
        raise CommandError(f"{path} is not a Python file: {error}.") from error
    exec(code, vars(module))
    return module


def _models(module: ModuleType, path: Path) -> list[en.Model]:
    models = getattr(module, "models", None)
    if isinstance(models, list | tuple) and models and all(isinstance(model, en.Model) for model in models):
        return list(models)
    loose = [name for name, value in vars(module).items() if isinstance(value, en.Model)]
    example = f"models = [{', '.join(loose or ['first', 'second'])}]"
    if models is None:
        raise CommandError(f"{path} does not define `models`. Add a line such as: {example}")
    raise CommandError(
        f"`models` in {path} is {models!r}; wanted a list of evidencenet.Model, such as: {example}"
    )


def _place(error: BaseException, path: Path) -> str | None:
    """Return the last line of the file that led to an error or its cause, if any did."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{path}, line {error.lineno}:\n    {(error.text or '').strip()}"
    cause: BaseException | None = error
    while cause is not None:
        lines = [frame for frame in traceback.extract_tb(cause.__traceback__) if frame.filename == str(path)]
        if lines:
            return f"{path}, line {lines[-1].lineno}:\n    {lines[-1].line}"
        cause = cause.__cause__
    return None


def _words(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}"
    if isinstance(error, en.SimulationError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
