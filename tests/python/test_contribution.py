"""What a rank of rill.torch.LocalUpdates sends in a round: tiles, places and values of few bits."""

import numpy as np
import pytest
import torch
from torch import nn

import rill
from rill import _codes
from rill.torch._contribution import Coding
from rill.torch._tiles import Layout, tiled, untiled


@pytest.mark.parametrize("shape", [(64, 64), (128, 192), (70, 65), (3, 200), (130, 1)])
def test_tiles(shape):
    matrix = torch.arange(shape[0] * shape[1], dtype=torch.float32).reshape(shape)
    there = tiled(matrix, 64)
    assert torch.equal(untiled(there, *shape, 64), matrix)
    first = matrix[: min(64, shape[0]), : min(64, shape[1])]
    if shape[0] >= 64 and shape[1] >= 64:
        assert torch.equal(there[:4096], first.reshape(-1))  # a chunk is a tile


@pytest.mark.parametrize("bits", _codes.VALUE_BITS)
def test_values(bits):
    noise = np.random.default_rng(1)
    values = (noise.uniform(1, 3, 2500) * noise.choice([-1, 1], 2500)).astype(np.float32)
    coded = _codes.encode_values(values, bits)
    seen = _codes.decode_values(coded, values.size, bits)
    assert len(coded) * 8 <= values.size * (bits or 32) * 1.03
    assert np.abs(seen - values).max() <= {0: 0, 16: 0.01, 8: 0.02, 4: 0.3, 2: 1.1}[bits]
    assert _codes.decode_values(_codes.encode_values(values[:0], bits), 0, bits).size == 0


@pytest.mark.parametrize("size", [1, 7, 1023, 1024, 1025, 5000])
def test_two_magnitudes(size):
    """Of the largest of many: all four levels are used, at less than two bits, and the error is a
    part of what one magnitude would leave. Groups without a spread, or with a huge one, are
    fine."""
    noise = np.random.default_rng(size)
    tail = ((4 + noise.exponential(1, size)) * noise.choice([-1, 1], size)).astype(np.float32)
    coded = _codes.encode_values(tail, 2)
    seen = _codes.decode_values(coded, size, 2)
    assert np.array_equal(np.signbit(seen), np.signbit(tail))
    if size >= 1023:
        assert len(np.unique(seen[:60])) == 4
        assert 8 * len(coded) < 1.65 * size + 100
        one = np.abs(tail).var()
        assert np.square(seen - tail).mean() < 0.55 * one
        halves = np.where(noise.random(size) < 0.5, 1, 3).astype(np.float32)
        assert 8 * len(_codes.encode_values(halves, 2)) < 1.65 * size + 100  # both as frequent
    for values in (
        np.zeros(size), np.full(size, -3.0), np.full(size, 3e38), np.arange(size) * 1e-44,
        np.where(np.arange(size) % 2, 1e38, 1e-38), np.arange(size) == size // 2,
    ):  # fmt: skip
        values = values.astype(np.float32)
        seen = _codes.decode_values(_codes.encode_values(values, 2), size, 2)
        assert np.isfinite(seen).all()
        assert np.abs(seen).max() <= np.abs(values).max() * 1.004 + 1e-40


def test_damaged_values_are_an_error():
    coded = _codes.encode_values(np.arange(3000, dtype=np.float32), 2)
    for wrong in (coded[:-1], coded + b"1"):
        with pytest.raises(rill.RillError):
            _codes.decode_values(wrong, 3000, 2)


def test_chunks_of_other_scales():
    """Each block has a factor of its own: the error is the same whatever the scales are."""
    noise = np.random.default_rng(3)
    tail = ((4 + noise.exponential(1, 64 * 64)) * noise.choice([-1, 1], 64 * 64)).astype(np.float32)
    scales = np.repeat(np.float32(2) ** noise.integers(-5, 3, 64), 64)
    errors = []
    for values in (tail, tail * scales):
        coded = _codes.encode_values(values, 2)
        assert 8 * len(coded) / values.size < 1.65
        seen = _codes.decode_values(coded, values.size, 2)
        errors.append(np.square((seen - values) / np.abs(values)).mean())
    assert errors[1] < 1.3 * errors[0] < 0.05


def test_the_identity_and_the_bits_of_an_entry():
    """e = decay e + D; send = Q(the largest); e = e - send, and others see what is sent."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(1024, 1024))
    layout = Layout([weight, nn.Parameter(torch.randn(10))], 4096, 4096, False)
    coding = Coding(layout, 64, 2)
    vector = layout.read(layout.parameters)
    sent = coding.encode(vector, 0, 1, torch.empty(0))
    seen = coding.decode(sent.message)
    there = torch.zeros(layout.size)
    there[seen.places], there[layout.chunked_size :] = seen.values, seen.rest
    assert torch.equal(there, sent.values)
    chunks = vector[: layout.chunked_size].view(-1, 4096).abs()
    counts = (sent.values[: layout.chunked_size].view(-1, 4096) != 0).sum(1)
    assert (counts == 64).all()
    least = torch.where(sent.values[: layout.chunked_size].view(-1, 4096) != 0, chunks, 9e9)
    most = torch.where(sent.values[: layout.chunked_size].view(-1, 4096) == 0, chunks, 0.0)
    assert (least.min(1).values >= most.max(1).values).all()
    bits = 8 * len(sent.message) / (64 * sum(layout.chunks))
    assert bits < 9.2 and 32 * layout.chunked_size / (8 * len(sent.message)) > 222


def by_sorting(coding, vector):
    """As on a device: torch.topk of each chunk."""
    chunks = vector.view(-1, coding.layout.chunk)
    places = chunks.abs().topk(coding.keep, dim=1).indices.sort(dim=1).values
    return (places + torch.arange(len(chunks))[:, None] * coding.layout.chunk).reshape(-1)


@pytest.mark.parametrize("chunk, keep", [(4096, 64), (64, 63), (64, 64), (16, 1), (100, 7)])
def test_the_largest_of_each_chunk(chunk, keep):
    """The selector of the host takes what sorting takes."""
    torch.manual_seed(1)
    layout = Layout([nn.Parameter(torch.randn(130, 70))], chunk, 1, False)
    coding = Coding(layout, keep, 2)
    for scale in (1.0, 1e-30, 1e30):
        vector = scale * torch.randn(layout.chunked_size)
        vector[::3] *= 100
        assert torch.equal(coding._largest(vector), by_sorting(coding, vector))


@pytest.mark.parametrize("nonzero", [0, 1, 5, 200])
def test_chunks_with_few_values(nonzero):
    """An embedding whose rows are seldom used: all that is not zero is sent, and each chunk has as
    many places. Also where all are alike."""
    layout = Layout([nn.Parameter(torch.zeros(64, 640))], 4096, 4096, False)
    coding = Coding(layout, 64, 2)
    vector = torch.zeros(layout.size)
    vector[torch.randperm(4 * 4096)[:nonzero]] = 1.5  # the other chunks have none
    alike = torch.full_like(vector, -2.0)
    for one in (vector, alike, vector.neg().index_fill_(0, torch.arange(4096, 8192), 3.0)):
        places = coding._largest(one)
        assert torch.equal(places, places.unique()) and len(places) == coding.count
        assert (places.view(-1, 64) // 4096 == torch.arange(10)[:, None]).all()
        chosen = torch.zeros(layout.size, dtype=torch.bool).index_fill_(0, places, True)
        sizes = one.abs().view(-1, 4096)
        least = torch.where(chosen.view(-1, 4096), sizes, torch.tensor(9.0)).min(1).values
        most = torch.where(chosen.view(-1, 4096), torch.tensor(0.0), sizes).max(1).values
        assert (least >= most).all()
    sent = coding.encode(vector, 0, 1, torch.empty(0))
    assert torch.equal(coding.decode(sent.message).places, coding._largest(vector))


def test_small_parameters_take_few_bits_and_nothing_of_them_is_lost():
    """A layer of width 128 has so many biases and norms that they count: at 16 bits a message would
    be 1/116 of the layer."""
    torch.manual_seed(0)
    shapes = [(384, 128), (128, 128), (512, 128), (128, 512)]
    shapes += [(384,), (128,), (512,), (128,)] + 4 * [(128,)]
    parameters = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    layout = Layout(parameters, 4096, 4096, False)
    coding = Coding(layout, 64, 2)
    vector = layout.read(layout.parameters)
    sent = coding.encode(vector, 0, 1, torch.tensor([3.0, 4.0]))
    seen = coding.decode(sent.message)
    assert torch.equal(seen.rest, sent.values[layout.chunked_size :])
    assert torch.equal(seen.buffers, torch.tensor([3.0, 4.0]))
    assert 4 * sum(p.numel() for p in parameters) / len(sent.message) > 200
    # What is sent is a good part of each value: in a few rounds nearly all of it has come.
    rest, came = vector[layout.chunked_size :], 0
    error = torch.zeros_like(vector)
    for number in range(12):
        error = error + (vector if number == 0 else 0)
        sent = coding.encode(error, number, 1, torch.empty(0))
        error, came = error - sent.values, came + sent.values[layout.chunked_size :]
    assert (came - rest).norm() < 0.02 * rest.norm()
