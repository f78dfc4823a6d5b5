"""In and out: examples, labels and keys from and to numpy, pandas, Parquet, JSON lines and CSV."""

from __future__ import annotations

import base64
import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FORMATS = (".jsonl", ".parquet", ".npz", ".csv")


class Batch(NamedTuple):
    """Some examples: contents or None, labels, and keys (n, key_size) or None."""

    examples: list[Any] | None
    labels: list[Any]
    keys: Any


class Columns(NamedTuple):
    """What the columns, or the fields of a line, are called."""

    example: str = "example"
    label: str = "label"
    key: str = "key"


def batches(source: Any, labels: Any, examples: Any, columns: Columns, size: int) -> tuple[Iterator[Batch], int | None]:
    """Return what a source holds in batches, and how many examples there are where that is known.

    Args:
        source: a file; a pandas table; rows as dictionaries; or keys, (n, key_size), with `labels` and `examples`.
    """
    if isinstance(source, str | os.PathLike):
        return _of_file(Path(source), columns, size)
    if hasattr(source, "columns") and hasattr(source, "iloc"):  # pandas
        parts = (source.iloc[start : start + size] for start in range(0, len(source), size))
        return (_of_columns({name: part[name].tolist() for name in part.columns}, columns) for part in parts), len(
            source
        )
    if labels is not None:
        return _of_arrays(source, labels, examples, size), len(labels)
    if isinstance(source, Iterable):
        return _of_rows(iter(source), columns, size), len(source) if isinstance(source, Sized) else None
    raise TypeError(f"import_ got {type(source).__name__}; expected a file, a table, rows, or keys with labels=.")


def _of_file(path: Path, columns: Columns, size: int) -> tuple[Iterator[Batch], int | None]:
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    if path.suffix == ".jsonl":
        return _of_rows(_json_lines(path), columns, size), None
    if path.suffix == ".csv":
        return _of_rows(_csv_rows(path), columns, size), None
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        given = arrays.get("examples")
        labels = arrays["labels"].tolist()
        if bool(arrays.get("json", False)):
            labels = [json.loads(label) for label in labels]
            given = None if given is None else [_from_json(json.loads(each)) for each in given.tolist()]
        return _of_arrays(arrays["keys"], labels, given, size), len(labels)
    if path.suffix == ".parquet":
        return _of_parquet(path, columns, size)
    raise ValueError(f"{path.name} is of no format that is known; expected one of {', '.join(FORMATS)}.")


def _of_arrays(keys: Any, labels: Any, examples: Any, size: int) -> Iterator[Batch]:
    labels = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    keys = None if keys is None else np.asarray(keys)
    examples = None if examples is None else list(examples)
    for given in (keys, examples):
        if given is not None and len(given) != len(labels):
            raise ValueError(f"import_ got {len(labels)} labels for {len(given)} examples; expected one for each.")
    for start in range(0, len(labels), size):
        some = slice(start, start + size)
        yield Batch(None if examples is None else examples[some], labels[some], None if keys is None else keys[some])


def _of_columns(table: Mapping[str, list[Any]], columns: Columns) -> Batch:
    missing = columns.label not in table or not ({columns.example, columns.key} & set(table))
    if missing:
        raise ValueError(
            f"The columns are {', '.join(table)}; expected {columns.label!r}, and {columns.example!r} or "
            f"{columns.key!r}. "
            "Say which they are: import_(..., label=, example=, key=)."
        )
    keys = np.array(table[columns.key], np.float32) if columns.key in table else None
    return Batch(table.get(columns.example), table[columns.label], keys)


def _of_rows(rows: Iterator[Any], columns: Columns, size: int) -> Iterator[Batch]:
    while some := list(islice(rows, size)):
        names = [name for name in columns if name in some[0]]
        table = {name: [row.get(name) for row in some] for name in names}
        if columns.example in table:
            table[columns.example] = [_from_json(each) for each in table[columns.example]]
        yield _of_columns(table or {name: [] for name in some[0]}, columns)


def _json_lines(path: Path) -> Iterator[Any]:
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    yield json.loads(line)
                except json.JSONDecodeError as error:
                    raise ValueError(f"Line {number} of {path} is not JSON: {error}.") from error


def _csv_rows(path: Path) -> Iterator[dict[str, Any]]:
    with open(path, encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def _of_parquet(path: Path, columns: Columns, size: int) -> tuple[Iterator[Batch], int]:
    import pyarrow.parquet

    file = pyarrow.parquet.ParquetFile(path)
    there = [name for name in columns if name in file.schema_arrow.names]
    as_json = b"rarecall" in (file.schema_arrow.metadata or {})

    def read() -> Iterator[Batch]:
        for part in file.iter_batches(size, columns=there):
            table = {name: part.column(name).to_pylist() for name in there if name != columns.key}
            if as_json:
                table[columns.label] = [json.loads(label) for label in table[columns.label]]
                if columns.example in table:
                    table[columns.example] = [_from_json(json.loads(each)) for each in table[columns.example]]
            if columns.key in there:
                numbers = part.column(columns.key).flatten().to_numpy()
                table[columns.key] = numbers.reshape(part.num_rows, -1)
            yield _of_columns(table, columns)

    return read(), file.metadata.num_rows


@contextmanager
def progress_bar(total: int | None, shown: bool) -> Iterator[Callable[[int], object]]:
    """Yield what advances a bar; it is shown where there is a terminal and tqdm."""
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        shown = False
    if not shown:
        yield lambda count: None
        return
    with tqdm(total=total, unit=" examples", disable=None) as bar:
        yield bar.update


# ---- out ----


def write(path: Path, rows: Iterator[dict[str, Any]]) -> int:
    """Write rows of id, example, label, key, when and who; return how many."""
    if path.suffix not in FORMATS:
        raise ValueError(f"{path.name} is of no format that can be written; expected one of {', '.join(FORMATS)}.")
    beside = path.with_name(f".{path.name}.tmp")
    try:
        count: int = {".jsonl": _to_json_lines, ".csv": _to_csv, ".npz": _to_npz, ".parquet": _to_parquet}[path.suffix](
            beside, rows
        )
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    return count


def _to_json_lines(path: Path, rows: Iterator[dict[str, Any]]) -> int:
    count = 0
    with open(path, "w", encoding="utf-8") as file:
        for row in rows:
            shown = {"example": _to_json(row["example"]), "key": row["key"].tolist(), "when": row["when"].isoformat()}
            file.write(json.dumps(row | shown, ensure_ascii=False) + "\n")
            count += 1
    return count


def _to_csv(path: Path, rows: Iterator[dict[str, Any]]) -> int:
    """Without the keys: a table for people."""
    count = 0
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "label", "example", "when", "who"])
        for row in rows:
            shown = _to_json(row["example"])
            shown = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)
            writer.writerow([row["id"], row["label"], shown, row["when"].isoformat(), row["who"]])
            count += 1
    return count


def _to_npz(path: Path, rows: Iterator[dict[str, Any]]) -> int:
    given = list(rows)
    keys = np.stack([row["key"] for row in given]) if given else np.empty((0, 0), np.float32)
    labels = np.array([json.dumps(row["label"], ensure_ascii=False) for row in given], dtype=np.str_)
    examples = np.array([json.dumps(_to_json(row["example"]), ensure_ascii=False) for row in given], dtype=np.str_)
    with open(path, "wb") as file:
        np.savez(file, keys=keys, labels=labels, examples=examples, json=np.array(True))
    return len(given)


def _to_parquet(path: Path, rows: Iterator[dict[str, Any]]) -> int:
    import pyarrow
    import pyarrow.parquet

    names = ["id", "label", "example", "key", "when", "who"]
    kinds = [pyarrow.int64(), pyarrow.string(), pyarrow.string(), pyarrow.list_(pyarrow.float32())]
    kinds += [pyarrow.timestamp("us", "UTC"), pyarrow.string()]
    schema = pyarrow.schema(zip(names, kinds, strict=True), metadata={"rarecall": "labels and examples are JSON"})
    count = 0
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        while some := list(islice(rows, 8192)):
            for row in some:
                row["label"] = json.dumps(row["label"], ensure_ascii=False)
                row["example"] = json.dumps(_to_json(row["example"]), ensure_ascii=False)
            columns = [[row[name] for row in some] for name in names]
            writer.write_table(
                pyarrow.table([pyarrow.array(c, k) for c, k in zip(columns, kinds, strict=True)], schema=schema)
            )
            count += len(some)
    return count


def _to_json(example: Any) -> Any:
    """Return an example as JSON can hold it; `_from_json` is the way back."""
    if isinstance(example, bytes):
        return {"bytes": base64.b64encode(example).decode()}
    if isinstance(example, Path):
        return {"path": str(example)}
    if isinstance(example, np.ndarray):
        return {"array": example.tolist()}
    return example


def _from_json(example: Any) -> Any:
    if isinstance(example, dict) and len(example) == 1:
        [(kind, content)] = example.items()
        if kind == "bytes" and isinstance(content, str):
            return base64.b64decode(content)
        if kind == "path" and isinstance(content, str):
            return Path(content)
        if kind == "array" and isinstance(content, list):
            return np.array(content)
    return example
