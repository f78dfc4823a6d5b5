"""rarecall teach | ask | explain | forget | undo | report | import | export | check: a classifier in a folder."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import rarecall
from rarecall.kept import Answer, Evidence, KeptClassifier
from rarecall.store.check import check

BUILT_IN = {
    "rarecall.integrations.embedders:MiniLM": "minilm",
    "rarecall.integrations.embedders:EfficientNet": "efficientnet",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the sub-commands."""

    def command(name: str, run: Callable[[argparse.Namespace], object], text: str, embeds: bool = False) -> Any:
        parser = subparsers.add_parser(name, help=text, description=text)
        parser.add_argument("folder", help="the folder of the classifier")
        parser.add_argument("--json", action="store_true", help="print JSON")
        if embeds:
            parser.add_argument(
                "--embedder",
                metavar="NAME",
                help="minilm (text), efficientnet (images), or module:function (default: that of the folder)",
            )
            parser.add_argument("--files", action="store_true", help="examples are files, such as images")
        parser.set_defaults(run=run)
        return parser

    teach = command("teach", _teach, "teach examples; from standard input: one a line, after its label and a tab", True)
    teach.add_argument("label", nargs="?", help="the label of all examples")
    teach.add_argument("examples", nargs="*", help="texts, or files; by default one a line from standard input")
    _audited(teach)
    for name, text in (("ask", "answer questions"), ("explain", "answer questions, and say from which examples")):
        parser = command(name, _ask if name == "ask" else _explain, f"{text}; from standard input: one a line", True)
        parser.add_argument("questions", nargs="*", help="texts, or files; by default one a line from standard input")
    parser.add_argument("--count", type=int, default=5, help="examples for each question (default: 5)")
    forget = command("forget", _forget, "forget examples for good: those that fit all that is given", True)
    forget.add_argument("--label", type=_value, help="taught as this label")
    forget.add_argument("--example", help="this very example")
    forget.add_argument("--id", type=int, nargs="+", help="numbers of examples, as `teach --json` prints them")
    forget.add_argument("--taught-by", help="who taught them")
    forget.add_argument(
        "--before", type=datetime.fromisoformat, metavar="TIME", help="taught before this time (ISO 8601)"
    )
    forget.add_argument("--after", type=datetime.fromisoformat, metavar="TIME", help="taught at this time or later")
    _audited(forget)
    undo = command("undo", _undo, "take back the last entry of the history, or a given one")
    undo.add_argument(
        "entry", type=int, nargs="?", help="its number, as `report --history` shows it (default: the last)"
    )
    _audited(undo)
    report = command(
        "report", _report, "show the classes: how many examples, how old, how often right, what is confused"
    )
    report.add_argument("--plot", type=Path, metavar="FILE", help="draw it to an image")
    report.add_argument("--history", action="store_true", help="show what was done instead")
    imported = command("import", _import, "teach a file of examples: .jsonl, .parquet, .npz or .csv", True)
    imported.add_argument("file", type=Path, help="file to read")
    for column in ("example", "label", "key"):
        imported.add_argument(
            f"--{column}", default=column, metavar="COLUMN", help=f"column of the {column} (default: {column})"
        )
    _audited(imported)
    exported = command("export", _export, "write all examples to a file: .jsonl, .parquet, .npz or .csv")
    exported.add_argument("file", type=Path, help="file to write")
    checked = command("check", _check, "verify everything in the folder")
    checked.add_argument("--rebuild", action="store_true", help="make the snapshot anew, and do without what is lost")


def _audited(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--who", help="who does it; kept in the history")
    parser.add_argument("--reason", help="why; kept in the history")


def _open(args: argparse.Namespace, readonly: bool = False) -> KeptClassifier:
    """Open the folder with the embedder that was named, or that it was taught with."""
    if not readonly and args.command not in ("teach", "import") and not Path(args.folder, "journal.sqlite").is_file():
        raise FileNotFoundError(f"There is no journal in {args.folder}: nothing was taught there yet.")
    if "embedder" not in args or (args.command == "forget" and args.example is None):
        return rarecall.open(args.folder, readonly=readonly)
    name = args.embedder
    if name is None and Path(args.folder, "journal.sqlite").is_file():
        with rarecall.open(args.folder, readonly=True) as kept:
            taught_with = kept.settings.get("embedder")
        name = BUILT_IN.get(taught_with or "")
        if name is None and taught_with is not None:
            raise ValueError(f"{args.folder} was taught with {taught_with}: name it, --embedder module:function.")
    if name is None and args.command == "teach":
        raise ValueError(f"{args.folder} is new: name its embedder, for example --embedder minilm.")
    if name is None:
        return rarecall.open(args.folder, readonly=readonly)
    from rarecall.integrations import embedders

    if name == "efficientnet":
        args.files = True
    return rarecall.open(args.folder, embedders.load(name), readonly=readonly)


def _given(args: argparse.Namespace, texts: Sequence[str]) -> list[Any]:
    lines = list(texts) or [line.rstrip("\n") for line in sys.stdin if line.strip()]
    return [Path(line) for line in lines] if args.files else lines


def _teach(args: argparse.Namespace) -> None:
    with _open(args) as kept:
        if args.label is None:
            pairs = [line.rstrip("\n").split("\t", 1) for line in sys.stdin if line.strip()]
            if any(len(pair) != 2 for pair in pairs):
                raise ValueError(
                    "Each line has a label, a tab and an example; or name the label: rarecall teach FOLDER LABEL"
                )
            labels: Any = [_value(label) for label, _ in pairs]
            examples = _given(args, [example for _, example in pairs])
        else:
            labels, examples = _value(args.label), _given(args, args.examples)
        numbers = kept.teach(examples, labels, who=args.who, reason=args.reason)
        _print(args, {"examples": numbers}, f"taught {len(numbers)} examples")


def _ask(args: argparse.Namespace) -> None:
    with _open(args, readonly=True) as kept:
        questions = _given(args, args.questions)
        for question, answer in zip(questions, kept.ask(questions), strict=True):
            shown = f"{answer.label}\t{answer.probability:.3f}\t{'known' if answer.known else 'unknown'}\t{question}"
            _print(args, {"question": str(question)} | _answer(answer), shown)


def _explain(args: argparse.Namespace) -> None:
    with _open(args, readonly=True) as kept:
        questions = _given(args, args.questions)
        for question, answer in zip(questions, kept.ask(questions), strict=True):
            because = answer.explain(args.count)
            known = "" if answer.known else '; "I don\'t know" is likelier'
            lines = [f"Question  {question}", f"Answer    {answer.label} (probability {answer.probability:.3f}{known})"]
            width = max([len("label"), *(len(str(e.label)) for e in because)])
            lines += [f"  similarity  taught on   {'label':<{width}}  example"] if because else []
            for e in because:
                lines.append(f"  {e.similarity:10.3f}  {e.when:%Y-%m-%d}  {e.label!s:<{width}}  {_shown(e.example)}")
            lines.append("")
            found = {"question": str(question)} | _answer(answer) | {"because": [_evidence(each) for each in because]}
            _print(args, found, "\n".join(lines))


def _forget(args: argparse.Namespace) -> None:
    with _open(args) as kept:
        example = args.example if args.example is None or not args.files else Path(args.example)
        criteria = {"label": args.label, "example": example, "id": args.id, "who": args.taught_by}
        count = kept.forget(**criteria, before=args.before, after=args.after, by=args.who, reason=args.reason)
        _print(args, {"forgotten": count}, f"forgot {count} examples")


def _undo(args: argparse.Namespace) -> None:
    with _open(args) as kept:
        count = kept.undo(args.entry, who=args.who, reason=args.reason)
        _print(args, {"restored": count}, f"{count} examples are where they were before")


def _report(args: argparse.Namespace) -> None:
    with _open(args, readonly=True) as kept:
        if args.history:
            for line in kept.history():
                shown = f"{line.id:6d}  {line.when:%Y-%m-%d %H:%M:%S}  {line.kind:<8} {line.count:6d}"
                _print(args, asdict(line), f"{shown}  {line.who or '-'}  {line.reason or ''}".rstrip())
            return
        report = kept.report()
        if args.plot:
            report.plot(args.plot)
        _print(args, report.to_json(), str(report))


def _import(args: argparse.Namespace) -> None:
    with _open(args) as kept:
        columns = {"example": args.example, "label": args.label, "key": args.key}
        count = kept.import_(args.file, **columns, who=args.who, reason=args.reason)
        _print(args, {"examples": count}, f"taught {count} examples")


def _export(args: argparse.Namespace) -> None:
    with _open(args, readonly=True) as kept:
        count = kept.export(args.file)
        _print(args, {"examples": count}, f"wrote {count} examples to {args.file}")


def _check(args: argparse.Namespace) -> None:
    found = check(args.folder, rebuild=args.rebuild)
    figures = ", ".join(f"{count} {name}" for name, count in found.figures.items())
    lines: Iterable[str] = (*found.problems, *found.repaired, *([] if found.problems else [f"whole: {figures}"]))
    _print(args, asdict(found), "\n".join(lines))
    if found.problems:
        sys.exit(1)


def _print(args: argparse.Namespace, found: dict[str, Any], text: str) -> None:
    print(json.dumps(found, ensure_ascii=False, default=str) if args.json else text)


def _answer(answer: Answer) -> dict[str, Any]:
    names = ("label", "probability", "known", "familiarity")
    return {name: getattr(answer, name) for name in names} | {"alternatives": answer.alternatives[:5]}


def _evidence(each: Evidence) -> dict[str, Any]:
    return asdict(each) | {"example": _shown(each.example), "when": each.when.isoformat()}


def _shown(example: Any) -> Any:
    return f"{len(example)} bytes" if isinstance(example, bytes) else example


def _value(text: str) -> Any:
    """A label as JSON where it is a number, else as text."""
    try:
        number = json.loads(text)
    except json.JSONDecodeError:
        return text
    return number if type(number) in (int, float) and math.isfinite(number) else text
