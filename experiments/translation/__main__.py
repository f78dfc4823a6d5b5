"""python -m experiments.translation train | evaluate | words | text | pack | table

Translation with a memory: the paper's third table.
Every sub-command explains its options with --help.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.command import add_pack, add_table, command_of, count, run

if TYPE_CHECKING:
    from experiments.translation.networks import Trained
    from experiments.translation.text import Files, Text

PRESETS = ("paper", "cpu")
TEXTS = ("source", "target", "repeat")
BEAM = ("beam", "alpha", "beta", "bfloat16", "caution")
BFLOAT16 = "compute the network in bfloat16: faster where the processor has it"
CHOSEN = (
    "pieces",
    "units",
    "layers",
    "shortcut",
    "ask",
    "trust",
    "reattend",
    "select",
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the sub-command named by `arguments` (default: the command line)."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.translation", description="Translation with a memory: the paper's third table."
    )
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)

    training = commands.add_parser("train", help="train a network; run the same command again to resume")
    training.add_argument("--memory", action="store_true", help="use a memory")
    training.add_argument(
        "--preset", choices=PRESETS, default="cpu", help="the paper's network, or one that a CPU can train"
    )
    training.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the run, e.g. runs/a")
    training.add_argument(
        "--from", type=Path, dest="begin", metavar="FILE", help="initialise with these trained weights"
    )
    _add_text(training)
    training.add_argument("--steps", type=count, metavar="N", help="number of steps (default: the preset's)")
    training.add_argument("--pieces", type=count, metavar="N", help="vocabulary size")
    training.add_argument("--units", type=count, metavar="N", help="units per layer")
    training.add_argument("--layers", type=count, metavar="N", help="layers of the encoder and of the decoder")
    training.add_argument(
        "--shortcut", action=argparse.BooleanOptionalAction, help="add the embedded source to the encoder's output"
    )
    training.add_argument(
        "--ask",
        action=argparse.BooleanOptionalAction,
        help="learn the memory's query from more than the attention's output",
    )
    training.add_argument(
        "--trust",
        action=argparse.BooleanOptionalAction,
        help="mix the memory's distribution into the output, with learned weights",
    )
    training.add_argument(
        "--reattend",
        action=argparse.BooleanOptionalAction,
        help="let the decoder's last layer query the input once more",
    )
    training.add_argument(
        "--frozen",
        action=argparse.BooleanOptionalAction,
        help="train only the parameters that use the memory; keep the others as in --from",
    )
    training.add_argument("--capacity", type=count, metavar="N", help="slots of the memory")
    training.add_argument(
        "--select",
        type=float,
        metavar="S",
        help="of the files that are not repeated, use this share of the pairs: those most like the repeated files",
    )
    training.add_argument(
        "--passage",
        type=int,
        metavar="N",
        help="consecutive pairs that are kept together; 0: all pairs in random order",
    )
    training.add_argument(
        "--drawn", type=int, metavar="N", help="sampled pieces in a step's softmax besides those of its targets; 0: all"
    )
    training.add_argument("--tokens", type=count, metavar="N", help="maximum number of target pieces per step")
    training.add_argument("--longest", type=count, metavar="N", help="leave out training pairs with more pieces")
    training.add_argument("--rate", type=float, metavar="R", help="peak learning rate")
    training.add_argument("--dropout", type=float, metavar="P", help="dropout of the layers' inputs")
    training.add_argument("--seed", type=int, help="random seed (default: that of the preset)")
    training.add_argument(
        "--bfloat16",
        action=argparse.BooleanOptionalAction,
        help=BFLOAT16,
    )
    training.add_argument("--report-every", type=count, default=50, metavar="N", help="steps between lines of metrics")
    training.add_argument("--measure-every", type=count, default=1000, metavar="N", help="steps between BLEU scores")
    training.add_argument("--save-every", type=count, default=500, metavar="N", help="steps between checkpoints")
    training.add_argument("--tensorboard", action="store_true", help="also write metrics for TensorBoard")
    training.set_defaults(run=_train)

    evaluating = commands.add_parser("evaluate", help="measure BLEU before and after a context is shown to the memory")
    evaluating.add_argument("--weights", type=Path, required=True, metavar="FILE", help="weights of a trained network")
    evaluating.add_argument(
        "--baseline", type=Path, metavar="FILE", help="weights of a network without memory to compare with"
    )
    evaluating.add_argument(
        "--test", type=Path, nargs=2, metavar=("SOURCE", "TARGET"), help="test files (default: newstest2014)"
    )
    _add_text(evaluating)
    _add_beam(evaluating)
    evaluating.add_argument("--bfloat16", action="store_true", help=BFLOAT16)
    evaluating.add_argument(
        "--refill", type=count, metavar="N", help="first empty the memory and show it the last N training pairs"
    )
    evaluating.add_argument(
        "--capacity", type=count, metavar="N", help="slots of the memory that --refill fills (default: as in training)"
    )
    parts = evaluating.add_mutually_exclusive_group()
    parts.add_argument(
        "--odd",
        action="store_true",
        help="only the odd lines, before and after the even ones: a quarter of the work",
    )
    parts.add_argument("--full", action="store_true", help="only the full test, without a context")
    evaluating.add_argument("--translations", type=Path, metavar="DIR", help="write all translations to this folder")
    evaluating.add_argument("--out", type=Path, metavar="FILE", help="write the result to this file, as JSON")
    evaluating.set_defaults(run=_evaluate)

    wording = commands.add_parser("words", help="measure rare words before and after a dictionary's entries are taught")
    wording.add_argument("--weights", type=Path, default=Path("translation-memory"), metavar="FILE")
    wording.add_argument(
        "--dictionary",
        type=Path,
        required=True,
        metavar="FILE",
        help="lines of 'German :: English', e.g. /usr/share/trans/de-en of Debian's package trans-de-en",
    )
    wording.add_argument(
        "--test", type=Path, nargs=2, metavar=("SOURCE", "TARGET"), help="test files (default: newstest2014)"
    )
    _add_text(wording)
    _add_beam(wording)
    wording.add_argument("--bfloat16", action="store_true", help=BFLOAT16)
    wording.add_argument("--out", type=Path, metavar="FILE", help="write the result to this file, as JSON")
    wording.set_defaults(run=_words)

    saying = commands.add_parser("text", help="translate sentences, optionally after teaching others")
    saying.add_argument("sentence", nargs="+", metavar="SENTENCE")
    saying.add_argument("--weights", type=Path, default=Path("translation-memory"), metavar="FILE")
    saying.add_argument(
        "--teach", action="append", default=[], metavar="'SOURCE ||| TARGET'", help="a pair to teach first; repeatable"
    )
    saying.add_argument(
        "--word",
        action="append",
        default=[],
        metavar="'ENGLISH ||| GERMAN'",
        help="a word to teach in its place in the sentences first; repeatable",
    )
    saying.add_argument(
        "--explain", action="store_true", help="print the memory's answer for each piece, and its source"
    )
    saying.add_argument(
        "--save", type=Path, metavar="FILE", help="write the weights with the taught memory to this file"
    )
    _add_text(saying)
    _add_beam(saying)
    saying.set_defaults(run=_text)

    packing = add_pack(commands, "translation")
    packing.add_argument(
        "--on", type=Path, metavar="FILE", help="leave out the weights that this file, in the same folder, has"
    )
    add_table(commands, "translation")
    run(parser, arguments)


def _add_text(command: argparse.ArgumentParser) -> None:
    command.add_argument("--data", metavar="DIR", help="folder that contains ende/ (default: $RARECALL_DATA)")
    command.add_argument(
        "--source", type=Path, nargs="+", metavar="FILE", help="training text (default: Europarl, Tatoeba and news)"
    )
    command.add_argument("--target", type=Path, nargs="+", metavar="FILE", help="its translation, line by line")
    command.add_argument(
        "--repeat", type=count, nargs="+", metavar="N", help="how often each file is repeated in an epoch"
    )
    command.add_argument(
        "--development",
        type=Path,
        nargs=2,
        metavar=("SOURCE", "TARGET"),
        help="development text (default: newstest2013)",
    )


def _add_beam(command: argparse.ArgumentParser) -> None:
    command.add_argument("--beam", type=count, default=4, metavar="N", help="beam width")
    command.add_argument("--alpha", type=float, default=0.6, metavar="A", help="strength of the length normalisation")
    command.add_argument("--beta", type=float, default=0.2, metavar="B", help="strength of the coverage penalty")
    command.add_argument(
        "--caution", type=float, metavar="C", help="subtracted from the log-odds of trusting the memory (default: 0.5)"
    )


# Experiments are imported inside the functions that run them, so that --help does not import torch.


def _train(args: argparse.Namespace) -> None:
    from dataclasses import replace

    from experiments.training import Pace, steps_of
    from experiments.translation import networks
    from experiments.translation.presets import make_run
    from experiments.translation.text import DEVELOPMENT
    from experiments.translation.train import prepare, train

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
    import torch

    from experiments import results
    from experiments.translation import networks, table
    from experiments.translation.evaluate import BASELINE, MEMORY, Measured, evaluate
    from experiments.translation.text import DEVELOPMENT, TEST, read
    from rarecall.models.beam import Beam

    if args.capacity and not args.refill:
        raise ValueError("--capacity is of the memory that --refill fills. Use both.")
    trained = _read(args)
    baseline = None if args.baseline is None else networks.read(args.baseline)
    files = _files(args)
    measured = Measured(
        _pair(args.test, TEST, args.data),
        _pair(args.development, DEVELOPMENT, args.data),
        read(files.sources, files.targets),
    )
    # Without --data, which differs from machine to machine.
    names = ("weights", "baseline", "test", *TEXTS, "development", *BEAM, "refill", "capacity", "odd", "full", "out")
    origin = results.origin(command_of(args, "translation", names), trained.run["seed"])
    networks_of = {MEMORY: trained} if trained.network.memory is not None else {BASELINE: trained}
    networks_of |= {} if baseline is None else {BASELINE: baseline}
    training = {whose: of.run | {"commit": of.commit} for whose, of in networks_of.items()}
    beam = Beam(args.beam, args.alpha, args.beta)
    result = {"training": training}
    more = {"refill": args.refill or 0, "capacity": args.capacity}
    more |= {"odd_only": args.odd, "full_only": args.full, "translations": args.translations}
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.bfloat16):
        result |= evaluate(trained, baseline, measured, beam=beam, **more)
    print(table.lines_of(result))
    if args.out:
        results.write(args.out, result, origin)


def _words(args: argparse.Namespace) -> None:
    import torch

    from experiments import results
    from experiments.translation import table
    from experiments.translation.dictionary import read_entries
    from experiments.translation.text import TEST, read
    from experiments.translation.words import evaluate_words
    from rarecall.models.beam import Beam

    entries, trained, files = read_entries(args.dictionary), _read(args), _files(args)
    names = ("weights", "dictionary", "test", *TEXTS, *BEAM, "out")
    origin = results.origin(command_of(args, "translation", names), trained.run["seed"])
    test, training = _pair(args.test, TEST, args.data), read(files.sources, files.targets)
    beam = Beam(args.beam, args.alpha, args.beta)
    result = {"training": trained.run | {"commit": trained.commit}}
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.bfloat16):
        result |= evaluate_words(trained, test, training, entries, beam=beam)
    print(table.words_lines(result))
    if args.out:
        results.write(args.out, result, origin)


def _text(args: argparse.Namespace) -> None:
    from experiments.translation import networks
    from experiments.translation.dictionary import Asked
    from experiments.translation.text import read
    from experiments.translation.translator import Translator
    from experiments.translation.words import teach_in_place
    from rarecall.models.beam import Beam

    pairs, glossary = [_taught(pair) for pair in args.teach], [_taught(pair) for pair in args.word]
    trained = _read(args)
    text = None
    if args.explain:
        try:
            files = _files(args)
            text = read(files.sources, files.targets)
        except FileNotFoundError:
            print("The training text is not available: its sentences are named by their numbers.")
        else:
            if text.digest != trained.run["text"]:
                raise ValueError(f"The text is not what the network was trained on: {trained.run['trained_on']}.")
    beam = Beam(args.beam, args.alpha, args.beta)
    translator = Translator(trained.network, trained.vocabulary, trained.run["pairs"], text, beam)
    for source, target in pairs:
        translator.teach(source, target)
    if glossary:
        asked = [Asked(line, *pair) for line in range(len(args.sentence)) for pair in glossary]
        first_id = trained.run["pairs"] + len(pairs)
        teach_in_place(trained.network, trained.vocabulary, args.sentence, asked, first_id=first_id, beam=beam)
    for sentence in args.sentence:
        found = translator.translate(sentence)
        print(found)
        if args.explain:
            print(f"{'piece':>16}   {'memory says':>16} sure   from the sentence pair")
            for said in translator.explain(sentence):
                print(said.line())
    if args.save:
        networks.save(trained, args.save)


def _read(args: argparse.Namespace) -> Trained:
    """Load the network and set its caution."""
    from experiments.translation import networks

    trained = networks.read(args.weights)
    if args.caution is not None:
        trust = trained.network.decoder.trust
        if trust is None:
            raise ValueError("--caution is for a network that was trained with --trust; this one was not.")
        trust.caution = args.caution
    return trained


def _files(args: argparse.Namespace) -> Files:
    """Return the training files."""
    from dataclasses import replace

    from experiments.translation.text import Files, training_files

    if args.source is None and args.target is None:
        files = training_files(args.data)
        return files if args.repeat is None else replace(files, repeats=tuple(args.repeat))
    sources, targets = args.source or [], args.target or []
    repeats = args.repeat or [1] * len(sources)
    return Files(tuple(sources), tuple(targets), tuple(repeats), ", ".join(path.name for path in sources))


def _pair(given: list[Path] | None, name: str, folder: str | None) -> Text:
    """Read the text of two files, or of a news test if none are given."""
    from experiments.translation.text import news_test, read

    return news_test(name, folder) if given is None else read(given[:1], given[1:])


def _taught(pair: str) -> tuple[str, str]:
    source, between, target = pair.partition("|||")
    if not between or not source.strip() or not target.strip():
        raise ValueError(f"Got {pair!r} to teach; expected 'source ||| target', a text on each side.")
    return source.strip(), target.strip()


if __name__ == "__main__":
    main()
