"""rarecall translate: see `rarecall.experiments.translation`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rarecall.cli.common import add_pack, add_table, command_of, count

if TYPE_CHECKING:
    from rarecall.experiments.translation.networks import Trained
    from rarecall.experiments.translation.text import Files, Text

PRESETS = ("paper", "cpu")
CHOSEN = (
    "pieces",
    "units",
    "layers",
    "shortcut",
    "ask",
    "trust",
    "frozen",
    "capacity",
    "passage",
    "drawn",
    "tokens",
    "rate",
    "dropout",
    "longest",
    "seed",
    "bfloat16",
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `rarecall translate` and its own sub-commands."""
    translating = subparsers.add_parser("translate", help="translation with a memory: the paper's third table")
    commands = translating.add_subparsers(dest="translate_command", metavar="command", required=True)

    training = commands.add_parser("train", help="train a network; the same command goes on where it was stopped")
    training.add_argument("--memory", action="store_true", help="with a memory")
    training.add_argument("--preset", choices=PRESETS, default="cpu", help="the paper's network, or one for a CPU")
    training.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the run, such as runs/a")
    training.add_argument("--from", type=Path, dest="begin", metavar="FILE", help="begin with these trained weights")
    _add_text(training)
    training.add_argument("--steps", type=count, metavar="N", help="of the whole run; the preset's by default")
    training.add_argument("--pieces", type=count, metavar="N", help="of the vocabulary")
    training.add_argument("--units", type=count, metavar="N", help="in a layer")
    training.add_argument("--layers", type=count, metavar="N", help="of the encoder, and of the decoder")
    training.add_argument(
        "--shortcut", action=argparse.BooleanOptionalAction, help="add the embedded source to the encoder's output"
    )
    training.add_argument(
        "--ask",
        action=argparse.BooleanOptionalAction,
        help="learn what to ask the memory, and not only by what the attention found",
    )
    training.add_argument(
        "--trust",
        action=argparse.BooleanOptionalAction,
        help="mix what the memory says into the output, as far as it is trusted",
    )
    training.add_argument(
        "--frozen",
        action=argparse.BooleanOptionalAction,
        help="train only what has to do with the memory; the rest stays as it is in --from",
    )
    training.add_argument("--capacity", type=count, metavar="N", help="slots of the memory")
    training.add_argument(
        "--passage", type=int, metavar="N", help="pairs in a row that are shown to the memory together; 0: random order"
    )
    training.add_argument(
        "--drawn", type=int, metavar="N", help="pieces in a step's softmax beside those of its targets; 0: all"
    )
    training.add_argument("--tokens", type=count, metavar="N", help="target pieces of a step at the most")
    training.add_argument("--longest", type=count, metavar="N", help="pairs with more pieces are left out of training")
    training.add_argument("--rate", type=float, metavar="R", help="the greatest learning rate")
    training.add_argument("--dropout", type=float, metavar="P", help="of what goes into a layer")
    training.add_argument("--seed", type=int)
    training.add_argument(
        "--bfloat16",
        action=argparse.BooleanOptionalAction,
        help="compute the network in bfloat16: faster where the processor has it",
    )
    training.add_argument("--report-every", type=count, default=50, metavar="N", help="steps between lines of metrics")
    training.add_argument("--measure-every", type=count, default=1000, metavar="N", help="steps between BLEU scores")
    training.add_argument("--save-every", type=count, default=500, metavar="N", help="steps between checkpoints")
    training.add_argument("--tensorboard", action="store_true", help="write the figures for TensorBoard as well")
    training.set_defaults(run=_train)

    evaluating = commands.add_parser("evaluate", help="BLEU before and after a context was shown to the memory")
    evaluating.add_argument("--weights", type=Path, required=True, metavar="FILE", help="of a trained network")
    evaluating.add_argument("--baseline", type=Path, metavar="FILE", help="of one without memory, to compare it with")
    evaluating.add_argument(
        "--test", type=Path, nargs=2, metavar=("SOURCE", "TARGET"), help="files to test with; newstest2014 by default"
    )
    _add_text(evaluating)
    _add_beam(evaluating)
    evaluating.add_argument(
        "--refill", type=count, metavar="N", help="empty the memory and show it the last N training pairs first"
    )
    evaluating.add_argument("--translations", type=Path, metavar="DIR", help="write all translations there")
    evaluating.add_argument("--out", type=Path, metavar="FILE", help="write the figures there, as JSON")
    evaluating.set_defaults(run=_evaluate)

    saying = commands.add_parser("text", help="translate a sentence, and learn others first")
    saying.add_argument("sentence", nargs="+", metavar="SENTENCE")
    saying.add_argument("--weights", type=Path, default=Path("translation-memory"), metavar="FILE")
    saying.add_argument(
        "--teach", action="append", default=[], metavar="'SOURCE ||| TARGET'", help="a pair to learn first; repeatable"
    )
    saying.add_argument("--explain", action="store_true", help="the memory's answer to each piece, and its origin")
    saying.add_argument("--save", type=Path, metavar="FILE", help="write the weights with what was taught there")
    _add_text(saying)
    _add_beam(saying)
    saying.set_defaults(run=_text)

    add_pack(commands, "translation")
    add_table(commands, "translation")


def _add_text(command: argparse.ArgumentParser) -> None:
    command.add_argument("--data", metavar="DIR", help="holds ende/; $RARECALL_DATA by default")
    command.add_argument(
        "--source", type=Path, nargs="+", metavar="FILE", help="training text; Europarl, Tatoeba and news by default"
    )
    command.add_argument("--target", type=Path, nargs="+", metavar="FILE", help="its translation, line by line")
    command.add_argument(
        "--repeat", type=count, nargs="+", metavar="N", help="how often each of these files is seen in an epoch"
    )
    command.add_argument(
        "--development", type=Path, nargs=2, metavar=("SOURCE", "TARGET"), help="newstest2013 by default"
    )


def _add_beam(command: argparse.ArgumentParser) -> None:
    command.add_argument("--beam", type=count, default=4, metavar="N", help="sentences that are followed at once")
    command.add_argument("--alpha", type=float, default=0.6, metavar="A", help="of the length normalisation")
    command.add_argument("--beta", type=float, default=0.2, metavar="B", help="of the coverage penalty")
    command.add_argument(
        "--caution", type=float, metavar="C", help="how sure the memory must be to be heard; 1 by default"
    )


# The experiments are imported where they run, so that the help of a command does not wait for torch.


def _train(args: argparse.Namespace) -> None:
    from dataclasses import replace

    from rarecall.experiments.training import Pace, steps_of
    from rarecall.experiments.translation import networks
    from rarecall.experiments.translation.presets import make_run
    from rarecall.experiments.translation.text import DEVELOPMENT
    from rarecall.experiments.translation.train import prepare, train

    begin = None if args.begin is None else networks.read(args.begin)
    files, chosen = _files(args), {name: getattr(args, name) for name in CHOSEN}
    run = make_run(args.preset, memory=args.memory, steps=args.steps or steps_of(args.out), **chosen)
    development = _pair(args.development, DEVELOPMENT, args.data)
    data, digest = prepare(files, development, run.pieces if begin is None else begin.vocabulary)
    run = replace(
        run,
        pieces=len(data.vocabulary),
        trained_on=files.name,
        text=digest,
        vocabulary=data.vocabulary.digest,
        repeats=files.repeats,
        begun_with="" if begin is None else networks.in_a_word(begin),
    )
    pace = Pace(args.report_every, args.measure_every, args.save_every, tensorboard=args.tensorboard)
    train(run, data, args.out, pace, begin)


def _evaluate(args: argparse.Namespace) -> None:
    from rarecall.experiments import results
    from rarecall.experiments.translation import networks, table
    from rarecall.experiments.translation.evaluate import BASELINE, MEMORY, Measured, evaluate
    from rarecall.experiments.translation.presets import preset_of
    from rarecall.experiments.translation.text import DEVELOPMENT, TEST, read
    from rarecall.models.beam import Beam

    trained = _read(args)
    baseline = None if args.baseline is None else networks.read(args.baseline)
    files = _files(args)
    measured = Measured(
        _pair(args.test, TEST, args.data),
        _pair(args.development, DEVELOPMENT, args.data),
        read(files.sources, files.targets),
    )
    # Where the data is differs from machine to machine.
    texts = ("test", "source", "target", "repeat", "development")
    names = ("weights", "baseline", *texts, "beam", "alpha", "beta", "caution", "refill", "out")
    origin = results.origin(command_of(args, ("translate", "evaluate"), names), trained.run["seed"])
    networks_of = {MEMORY: trained} if trained.network.memory is not None else {BASELINE: trained}
    networks_of |= {} if baseline is None else {BASELINE: baseline}
    training = {whose: of.run | {"commit": of.commit} for whose, of in networks_of.items()}
    result = {"preset": preset_of(trained.run), "training": training}
    beam = Beam(args.beam, args.alpha, args.beta)
    result |= evaluate(trained, baseline, measured, beam=beam, refill=args.refill or 0, translations=args.translations)
    print(table.lines_of(result))
    if args.out:
        results.write(args.out, result, origin)


def _text(args: argparse.Namespace) -> None:
    from rarecall.experiments.translation import networks
    from rarecall.experiments.translation.text import read
    from rarecall.experiments.translation.translator import Translator
    from rarecall.models.beam import Beam

    pairs = [_taught(pair) for pair in args.teach]
    trained = _read(args)
    text = None
    if args.explain:
        try:
            files = _files(args)
            text = read(files.sources, files.targets)
        except FileNotFoundError:
            print("The training text is not at hand: its sentences are named by their numbers.")
        else:
            if text.digest != trained.run["text"]:
                raise ValueError(f"The text is not what the network was trained on: {trained.run['trained_on']}.")
    beam = Beam(args.beam, args.alpha, args.beta)
    translator = Translator(trained.network, trained.vocabulary, trained.run["pairs"], text, beam)
    for source, target in pairs:
        translator.teach(source, target)
    for sentence in args.sentence:
        found = translator.translate(sentence)
        print(found)
        if args.explain:
            for said in translator.explain(sentence):
                print(said.line())
    if args.save:
        networks.save(trained, args.save)


def _read(args: argparse.Namespace) -> Trained:
    """The network that is asked for, as cautious as it is to be."""
    from rarecall.experiments.translation import networks

    trained = networks.read(args.weights)
    if args.caution is not None:
        trust = trained.network.decoder.trust
        if trust is None:
            raise ValueError("--caution is for a network that was trained with --trust; this one was not.")
        trust.caution = args.caution
    return trained


def _files(args: argparse.Namespace) -> Files:
    """The training text that is asked for."""
    from rarecall.experiments.translation.text import Files, training_files

    if args.source is None and args.target is None and args.repeat is None:
        return training_files(args.data)
    sources, targets = args.source or [], args.target or []
    repeats = args.repeat or [1] * len(sources)
    return Files(tuple(sources), tuple(targets), tuple(repeats), ", ".join(path.name for path in sources))


def _pair(given: list[Path] | None, name: str, folder: str | None) -> Text:
    """The text of two files, or of a news test where none are given."""
    from rarecall.experiments.translation.text import news_test, read

    return news_test(name, folder) if given is None else read(given[:1], given[1:])


def _taught(pair: str) -> tuple[str, str]:
    source, between, target = pair.partition("|||")
    if not between or not source.strip() or not target.strip():
        raise ValueError(f"--teach got {pair!r}; expected 'source ||| target', a sentence on both sides.")
    return source.strip(), target.strip()
