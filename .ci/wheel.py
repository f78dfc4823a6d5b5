"""Asks an installed wheel one question, and looks at what was installed: no experiments, and the extension."""

import importlib.util
import sys
from pathlib import Path

import torch

import rarecall
from rarecall.backend import extension

sys.path = [path for path in sys.path if Path(path or ".").resolve() != Path(__file__).resolve().parent]
memory = rarecall.Memory(key_size=3, capacity=10)
memory.update(memory(torch.eye(3)), torch.tensor([7, 8, 9]))
assert memory(torch.tensor([0.1, 0.9, 0.0])).value == 8
assert sys.platform == "win32" or extension() is not None, "the extension was not built"
folder = Path(rarecall.__file__).parent
assert folder.parent.name.endswith("-packages"), f"{folder} is not an installed package"
assert importlib.util.find_spec("experiments") is None
assert sum(path.stat().st_size for path in folder.rglob("*")) < 20e6
print(f"rarecall {rarecall.__version__} from {folder.parent.name}: right")
