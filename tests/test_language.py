"""A language model of transformers with a memory: a small one of the library's own class, with random weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

from rarecall.integrations.transformers import Encoder, LanguageMemory, attach  # noqa: E402

FACTS = {
    "atlas": "the capital of quendor is zorblax and it lies by the sea",
    "cook": "a good soup needs salt and time and a slow fire",
}
WORDS = sorted({word for text in FACTS.values() for word in text.split()} | {"where", "what", "we", "go"})


@pytest.fixture
def tokenizer() -> Any:
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate(["<pad>", "</s>", "<unk>", *WORDS])}, "<unk>")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )


def causal(kind: str, words: int) -> Any:
    torch.manual_seed(0)
    if kind == "gpt2":
        config = transformers.GPT2Config(vocab_size=words, n_positions=64, n_embd=32, n_layer=2, n_head=2)
        return transformers.GPT2LMHeadModel(config).eval()
    config = transformers.LlamaConfig(
        vocab_size=words, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2
    )
    return transformers.LlamaForCausalLM(config).eval()


@pytest.fixture(params=["gpt2", "llama"])
def memory(request: Any, tokenizer: Any) -> Iterator[LanguageMemory]:
    model = causal(request.param, len(tokenizer))
    attached = attach(model, tokenizer, capacity=1000, k=4)
    yield attached
    attached.detach()


def continued(memory: LanguageMemory, tokenizer: Any, text: str, tokens: int = 1) -> str:
    inputs = tokenizer(text, return_tensors="pt")
    said = memory.model.generate(**inputs, max_new_tokens=tokens, do_sample=False, pad_token_id=0, eos_token_id=None)
    return tokenizer.decode(said[0, inputs["input_ids"].shape[1] :])


def test_what_was_taught_once_is_continued_and_what_was_forgotten_is_not(memory: Any, tokenizer: Any) -> None:
    before = continued(memory, tokenizer, "the capital of quendor is", 4)
    assert before != "zorblax and it lies"
    for source, text in FACTS.items():
        assert memory.teach(text, source=source) == source
    assert continued(memory, tokenizer, "the capital of quendor is", 4) == "zorblax and it lies"
    assert continued(memory, tokenizer, "a good soup needs") == "salt"
    assert memory.forget("atlas") == len(FACTS["atlas"].split()) - 1
    assert continued(memory, tokenizer, "a good soup needs") == "salt"
    memory.forget("cook")
    assert len(memory.memory) == 0
    assert continued(memory, tokenizer, "the capital of quendor is", 4) == before


def test_explain_names_the_text_behind_each_token(memory: Any) -> None:
    for source, text in FACTS.items():
        memory.teach(text, source=source)
    tokens = memory.explain("the capital of quendor is zorblax")
    assert [token.token for token in tokens] == ["capital", "of", "quendor", "is", "zorblax"]
    last = tokens[-1]
    assert last.source == "atlas"
    assert last.taught.endswith("quendor is zorblax")
    assert last.similarity == pytest.approx(1.0, abs=1e-4)
    assert last.memory > 0.9 > last.network
    assert 0 < last.trust < 1


def test_a_source_taught_again_is_replaced(memory: Any) -> None:
    memory.teach(FACTS["atlas"], source="note")
    memory.teach(FACTS["cook"], source="note")
    assert len(memory.memory) == len(FACTS["cook"].split()) - 1
    assert list(memory.sources) == ["note"]


def test_loss_of_the_model_is_that_of_the_mixture(memory: Any, tokenizer: Any) -> None:
    inputs = tokenizer(FACTS["atlas"], return_tensors="pt")
    alone = memory.model(**inputs, labels=inputs["input_ids"]).loss
    memory.teach(FACTS["atlas"])
    output = memory.model(**inputs, labels=inputs["input_ids"])
    assert output.loss < alone - 1
    assert torch.allclose(output.logits.exp().sum(-1), torch.ones(1), atol=1e-4)


def test_fit_learns_to_listen_where_texts_repeat(memory: Any) -> None:
    gain = memory.fit([f"{FACTS['atlas']} {FACTS['atlas']}", FACTS["cook"], f"{FACTS['cook']} {FACTS['atlas']}"])
    assert gain > 0.3
    assert len(memory.memory) == 0


def test_file_brings_all_of_it_back(memory: Any, tokenizer: Any, tmp_path: Path) -> None:
    memory.fit([FACTS["cook"], FACTS["cook"]])
    for source, text in FACTS.items():
        memory.teach(text, source=source)
    said = memory.explain("the capital of quendor is zorblax")
    memory.save(tmp_path / "memory.safetensors")
    memory.forget("atlas")
    memory.load(tmp_path / "memory.safetensors")
    assert memory.explain("the capital of quendor is zorblax") == said
    memory.forget("atlas")


def test_detached_model_is_as_it_was(memory: Any, tokenizer: Any) -> None:
    before = continued(memory, tokenizer, "the capital of quendor is", 4)
    memory.teach(FACTS["atlas"])
    memory.detach()
    assert continued(memory, tokenizer, "the capital of quendor is", 4) == before


def test_sequence_to_sequence_model(tokenizer: Any) -> None:
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=len(tokenizer), d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, decoder_start_token_id=0
    )
    model = transformers.T5ForConditionalGeneration(config).eval()
    memory = attach(model, tokenizer, capacity=100, k=4)
    memory.teach("where is zorblax", "by the sea </s>", source="atlas")
    said = model.generate(**tokenizer("where is zorblax", return_tensors="pt"), max_new_tokens=8, do_sample=False)
    assert tokenizer.decode(said[0], skip_special_tokens=True) == "by the sea"
    with pytest.raises(ValueError, match="pass target"):
        memory.teach("where is zorblax")


def test_bad_input_is_refused(memory: Any, tokenizer: Any) -> None:
    with pytest.raises(ValueError, match="at least two tokens"):
        memory.teach("zorblax")
    with pytest.raises(ValueError, match="no target"):
        memory.teach("zorblax is", "by the sea")
    with pytest.raises(KeyError, match="Nothing was taught as 'atlas'"):
        memory.forget("atlas")
    with pytest.raises(ValueError, match="2 or more"):
        memory.fit(["zorblax"])
    if memory.model.config.model_type == "gpt2":
        with pytest.raises(ValueError, match="in parts"):
            memory.teach("sea " * 65)
    encoder = transformers.BertModel(
        transformers.BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=1)
    )
    with pytest.raises(TypeError, match="no output embedding"):
        attach(encoder, tokenizer)
    assert len(memory.memory) == 0


@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
def test_encoder_embeds_a_text_as_by_itself(tokenizer: Any, pooling: str) -> None:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    encoder = Encoder(transformers.BertModel(config), tokenizer, pooling=pooling, batch=2)
    texts = ["where is zorblax", "we go", "a good soup needs salt"]
    with torch.no_grad():
        together = encoder(texts)
        alone = torch.cat([encoder([text]) for text in texts])
    assert together.shape == (3, 32)
    assert torch.allclose(together, alone, atol=1e-5)
    assert encoder([]).shape == (0, 32)
    with pytest.raises(ValueError, match="'middle'"):
        Encoder(encoder.model, tokenizer, pooling="middle")
