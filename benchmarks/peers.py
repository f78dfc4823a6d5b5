"""Other approximate searches: how each follows a key that moves, and the settings that it is tuned over."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, Any]
Setting = dict[str, Any]


class Peer(Protocol):
    """An index of keys that are numbered from 0 on."""

    @property
    def efforts(self) -> tuple[int, ...]:
        """What to try as the effort of a search, from the least on."""

    def set(self, effort: int) -> None:
        """How much a search does from now on."""

    def search(self, query: Array) -> Array:
        """(n, k): the keys nearest to each query."""

    def update(self, slots: Array, keys: Array) -> None:
        """Moves keys."""


class FaissIVF:
    """An inverted file, trained on the keys. `update_vectors` moves a key to another list; the centres stay.

    A query meets all centres, or, with `ef`, those that a graph of them leads to.
    """

    efforts = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512)

    def __init__(self, keys: Array, k: int, threads: int, setting: Setting) -> None:
        import faiss

        faiss.omp_set_num_threads(threads)
        self.k, key_size, nlist = k, keys.shape[1], setting["nlist"]
        inner_product = faiss.METRIC_INNER_PRODUCT
        self.index: Any
        self.centres: Any
        if setting["ef"]:
            self.centres = faiss.IndexHNSWFlat(key_size, 32, inner_product)
            self.centres.hnsw.efConstruction, self.centres.hnsw.efSearch = 80, setting["ef"]
        else:
            self.centres = faiss.IndexFlatIP(key_size)
        self.centres.add(_trained(keys, nlist))
        if setting["codes"] == "float32":
            self.index = faiss.IndexIVFFlat(self.centres, key_size, nlist, inner_product)
        else:
            eight_bits = faiss.ScalarQuantizer.QT_8bit
            self.index = faiss.IndexIVFScalarQuantizer(self.centres, key_size, nlist, eight_bits, inner_product, False)
        self.index.train(keys)  # the range of the codes; the centres are there already
        self.index.add(keys)
        self.index.make_direct_map(True)

    def set(self, effort: int) -> None:
        self.index.nprobe = effort

    def search(self, query: Array) -> Array:
        return self.index.search(query, self.k)[1]

    def update(self, slots: Array, keys: Array) -> None:
        self.index.update_vectors(slots, keys)


class Hnswlib:
    """A graph. A key that moves is marked as deleted, and one with a label of its own takes its place in the graph."""

    efforts = (1, 2, 4)  # times k, which is the least that it takes

    def __init__(self, keys: Array, k: int, threads: int, setting: Setting) -> None:
        import hnswlib

        self.k, size = k, len(keys)
        self.index = hnswlib.Index("ip", keys.shape[1])
        self.index.init_index(
            size, M=setting["M"], ef_construction=setting["ef_construction"], allow_replace_deleted=True
        )
        self.index.set_num_threads(threads)
        self.index.add_items(keys, np.arange(size))
        self.labels, self.slots, self.given = np.arange(size), np.arange(size + 1_000_000) % size, size

    def set(self, effort: int) -> None:
        self.index.set_ef(max(effort * self.k, 16))

    def search(self, query: Array) -> Array:
        return self.slots[self.index.knn_query(query, self.k)[0].astype(np.int64)]

    def update(self, slots: Array, keys: Array) -> None:
        # Labels that are deleted together cannot be given again together: hnswlib takes any of their places for any.
        for label in self.labels[slots].tolist():
            self.index.mark_deleted(label)
        self.labels[slots] = np.arange(self.given, self.given + len(slots))
        self.slots[self.labels[slots]] = slots
        self.given += len(slots)
        self.index.add_items(keys, self.labels[slots], replace_deleted=True)


class Usearch:
    """A graph. A key that moves is removed and added again."""

    efforts = (1, 2, 4)  # times k

    def __init__(self, keys: Array, k: int, threads: int, setting: Setting) -> None:
        from usearch.native_index import Index

        self.k, self.threads = k, threads
        self.index = Index(
            ndim=keys.shape[1],
            metric="ip",
            dtype=setting["dtype"],
            connectivity=setting["connectivity"],
            expansion_add=setting["expansion_add"],
        )
        self.index.add(np.arange(len(keys)), keys, threads=threads)

    def set(self, effort: int) -> None:
        self.index._compiled.expansion_search = max(effort * self.k, 16)

    def search(self, query: Array) -> Array:
        found = np.asarray(self.index.search(query, self.k, threads=self.threads).keys).astype(np.int64)
        return found.reshape(len(query), -1)

    def update(self, slots: Array, keys: Array) -> None:
        self.index.remove(slots, threads=self.threads)
        self.index.add(slots, keys, threads=self.threads)


_last: tuple[Array, int, Array] | None = None


def _trained(keys: Array, nlist: int) -> Array:
    """(nlist, key_size): centres by k-means, the same for all settings that have so many, since it takes minutes."""
    import faiss

    global _last
    if _last is None or _last[0] is not keys or _last[1] != nlist:
        means = faiss.Kmeans(keys.shape[1], nlist, niter=10, spherical=True, seed=1234)
        means.train(keys[:: max(len(keys) // (40 * nlist), 1)])
        _last = keys, nlist, np.asarray(means.centroids)
    return _last[2]


# Each is called with keys (size, key_size), k, the number of threads and a setting.
PEERS: dict[str, Callable[[Array, int, int, Setting], Peer]] = {
    "faiss IVF": FaissIVF,
    "hnswlib": Hnswlib,
    "usearch": Usearch,
}


def installed() -> list[str]:
    """Names of the peers whose package is there."""
    packages = {"faiss IVF": "faiss", "hnswlib": "hnswlib", "usearch": "usearch"}
    return [name for name in PEERS if importlib.util.find_spec(packages[name]) is not None]


def grid(name: str, size: int) -> Iterator[Setting]:
    """The settings that a peer is tuned over: many of FAISS, one graph of each other.

    A graph takes minutes to build, so there is time for one setting of each.
    """
    if name == "faiss IVF":
        root = 2 ** round(np.log2(size**0.5))  # 512 at 500 000 keys; the most lists first, which are the fastest
        for lists, codes, ef in product((16, 8, 4, 2), ("float32", "int8"), (0, 16, 32)):
            yield {"nlist": int(lists * root), "codes": codes, "ef": ef}
    elif name == "hnswlib":
        yield {"M": 16, "ef_construction": 64}
    else:
        yield {"connectivity": 16, "expansion_add": 64, "dtype": "i8"}
