"""The map of the code: who may import whom."""

import ast
import sys
from pathlib import Path

import pytest

import rarecall

PACKAGE = Path(rarecall.__file__).parent
ROOT = Path(__file__).parent.parent
OUTER = ("models", "demo", "cli", "integrations", "serve")
# The product: a classifier in a folder. It imports pyarrow, tqdm, matplotlib and the embedders when they are asked for.
PRODUCT = ("kept", "report.py", "store", "sklearn.py")


def imports(file: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(file.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def files_of(part: str) -> list[Path]:
    return sorted((PACKAGE / part).rglob("*.py"))


def test_the_core_imports_torch_numpy_and_safetensors_and_no_outer_part() -> None:
    core = [file for file in files_of(".") if file.relative_to(PACKAGE).parts[0] not in OUTER + PRODUCT]
    assert PACKAGE / "memory.py" in core
    allowed = {"torch", "numpy", "safetensors", "rarecall"} | set(sys.stdlib_module_names)
    for file in core:
        for name in imports(file):
            assert name.split(".")[0] in allowed, f"{file.name} imports {name}"
            assert not name.startswith(tuple(f"rarecall.{part}" for part in OUTER)), f"{file.name} imports {name}"


def test_the_product_knows_no_command_line_and_no_page() -> None:
    for file in (file for part in PRODUCT for file in (files_of(part) or [PACKAGE / part])):
        for name in imports(file):
            beyond = ("rarecall.cli", "rarecall.serve", "rarecall.demo", "rarecall.models")
            assert not name.startswith(beyond), f"{file.name} imports {name}"


@pytest.mark.parametrize(("part", "beyond"), [("models", ("demo", "cli")), ("demo", ("cli",))])
def test_models_know_the_core_and_the_demo_knows_both(part, beyond) -> None:
    for file in files_of(part):
        for name in imports(file):
            assert not name.startswith(tuple(f"rarecall.{other}" for other in beyond)), f"{file} imports {name}"


def test_what_is_installed_imports_nothing_of_the_checkout() -> None:
    for file in files_of("."):
        for name in imports(file):
            assert name.split(".")[0] not in {"experiments", "benchmarks", "tests"}, f"{file} imports {name}"


def test_experiments_do_not_know_the_command_line_or_the_benchmarks() -> None:
    files = sorted((ROOT / "experiments").rglob("*.py"))
    assert files
    for file in files:
        for name in imports(file):
            assert not name.startswith(("rarecall.cli", "benchmarks", "tests")), f"{file} imports {name}"


@pytest.mark.parametrize("name", ["pickle", "marshal", "shelve"])
def test_nothing_that_runs_code_from_a_file_is_imported(name) -> None:
    for file in [*files_of("."), *(ROOT / "experiments").rglob("*.py")]:
        assert name not in {module.split(".")[0] for module in imports(file)}
