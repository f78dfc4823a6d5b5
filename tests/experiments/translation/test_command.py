from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

from experiments.translation import __main__ as command
from experiments.translation import bleu, networks, presets
from experiments.translation.__main__ import main
from tests.experiments.translation.conftest import sentences, write


def run(command: str) -> None:
    main(shlex.split(command))


def test_train_evaluate_text_pack_and_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bleu, "SAMPLES", 5)
    monkeypatch.setenv("RARECALL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for name, count in (("t", 60), ("d", 3), ("n", 4)):
        write(sentences(count, seed=count), tmp_path, name)
    (tmp_path / "results").mkdir()
    texts = "--source t.en --target t.de --development d.en d.de"
    small = "--pieces 310 --units 8 --layers 2 --no-shortcut --tokens 60 --steps 2 --capacity 500"
    run(f"train {texts} {small} --out runs/a")
    run(f"train {texts} {small} --out runs/b --memory --from runs/a/network.safetensors")
    evaluate = (
        "evaluate --weights runs/b/network.safetensors --baseline runs/a/network.safetensors "
        f"--test n.en n.de {texts} --beam 1 --alpha 0.6 --beta 0.2 --caution 50.0 --bfloat16 "
        "--refill 10 --capacity 20 --out results/b.json"
    )
    run(evaluate)
    result = json.loads((tmp_path / "results" / "b.json").read_text())
    assert set(shlex.split(result["command"])) == set(shlex.split(f"python -m experiments.translation {evaluate}"))
    told = {whose: of["full test"]["score"] for whose, of in result["figures"]["bleu"].items() if "full test" in of}
    assert told["with memory"] == told["with memory, emptied"]  # with so much caution it is never heard
    with pytest.raises(SystemExit):
        run("text a --weights runs/a/network.safetensors --caution 1")
    assert "--caution is for a network that was trained with --trust" in capsys.readouterr().err
    assert result["figures"]["slots"] == 20
    assert result["training"]["with memory"]["trained_on"] == "t.en"
    assert "2 steps without memory" in result["training"]["with memory"]["begun_with"]
    run("pack --weights runs/b/network.safetensors --slots 1 --out small.safetensors")
    assert "with 1 slots" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run("pack --weights runs/b/network.safetensors --slots 1 --out b.safetensors --on runs/a/network.safetensors")
    assert "was not trained with --frozen" in capsys.readouterr().err
    taught = "--teach 'zu sees dog then ||| KE sieht hund dann' --explain --save taught.safetensors"
    run(f"text 'zu likes fox now' --weights small.safetensors {taught} {texts} --beam 1")
    assert " |||" in capsys.readouterr().out  # an answer, and the pair it came from
    assert networks.read("taught.safetensors").network.memory.sources.max() == 60  # the first after those of training
    run("text 'zu likes fox now' --weights small.safetensors --word 'zu ||| KE' --beam 1")
    assert "KE" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run("text 'zu likes fox now' --weights runs/a/network.safetensors --word 'zu ||| KE' --beam 1")
    assert "no memory to teach" in capsys.readouterr().err
    run("text 'zu likes fox now' --weights taught.safetensors --explain --beam 1 --data nowhere")
    assert "named by their numbers" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run("text a --teach 'one | two'")
    assert "expected 'source" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run("text a --weights small.safetensors --explain --source n.en --target n.de")
    assert "not what the network was trained on" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run("table --results results --plots plots")
    assert "no metrics of a training" in capsys.readouterr().err
    for name in "ab":
        shutil.copy(f"runs/{name}/metrics.jsonl", f"results/translation-{name}-training.jsonl")
    run("table --results results --plots plots")
    assert "trained on t.en" in capsys.readouterr().out
    drawn = [Path("plots", f"translation-{name}-training.png") for name in "ab"]
    assert 1000 < drawn[0].stat().st_size < drawn[1].stat().st_size  # the memory has a panel of its own


def test_the_names_of_the_command_are_those_that_there_are() -> None:
    assert tuple(presets.PRESETS) == command.PRESETS
    assert set(command.CHOSEN) <= set(vars(presets.PRESETS["cpu"]))


def test_presets_make_runs() -> None:
    paper = presets.make_run("paper", memory=True)
    assert (paper.units, paper.layers, paper.pieces, paper.capacity) == (1024, 8, 32_000, 500_000)
    assert presets.make_run("cpu", memory=False).capacity == 0
    assert presets.make_run("cpu", memory=True, steps=7, seed=None).steps == 7


@pytest.mark.parametrize("words", [["train"], ["evaluate"], [], ["text"], ["train", "--out", "a", "--units", "0"]])
def test_wrong_arguments_are_told(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert "usage: python -m experiments.translation" in capsys.readouterr().err
