"""Many small GPTs that train side by side on one device, each on rows and at a rate of its own.

Their parameters lie in one matrix, a row for each replica, and each layer of all of them is one
batched product: so launches of kernels don't decide how long a step takes. A step of all replicas,
with AdamW, is one CUDA graph. On a CPU the same runs without a graph.
"""

from __future__ import annotations

import math
import sys
from contextlib import nullcontext

import torch
from torch.nn import functional

BETA1, BETA2, DECAY = 0.9, 0.95, 0.1


class Shape:
    """Of a GPT over bytes: names and sizes of its parameters."""

    def __init__(self, layers, width, heads, length, words=256):
        self.given = [layers, width, heads, length, words]
        self.layers, self.width, self.heads = layers, width, heads
        self.length, self.words = length, words
        self.sizes = {"words": (words, width), "places": (length, width)}
        for layer in range(layers):
            for name, size in (
                ("norm1_g", (width,)), ("norm1_b", (width,)),
                ("qkv", (3 * width, width)), ("qkv_b", (3 * width,)),
                ("out", (width, width)), ("out_b", (width,)),
                ("norm2_g", (width,)), ("norm2_b", (width,)),
                ("up", (4 * width, width)), ("up_b", (4 * width,)),
                ("down", (width, 4 * width)), ("down_b", (width,)),
            ):  # fmt: skip
                self.sizes[f"{layer}_{name}"] = size
        self.sizes |= {"norm_g": (width,), "norm_b": (width,), "scores": (words, width)}
        self.count = sum(math.prod(size) for size in self.sizes.values())
        self.stride = -(-self.count // 64) * 64  # of a replica's row

    def views(self, matrix):
        """{name: the replicas' parameters} of a matrix with a row for each replica"""
        found, at = {}, 0
        for name, size in self.sizes.items():
            found[name] = matrix[:, at : at + math.prod(size)].unflatten(1, size)
            at += math.prod(size)
        return found

    def start(self, seed):
        """A row of first weights."""
        draw = torch.Generator().manual_seed(seed)
        row = torch.zeros(1, self.stride)
        for name, part in self.views(row).items():
            if name.endswith("_g"):
                part.fill_(1)
            elif part.dim() > 2:
                deep = name.endswith(("out", "down"))
                scale = 0.02 / math.sqrt(2 * self.layers) if deep else 0.02
                part.copy_(scale * torch.randn(part.shape, generator=draw))
        return row[0]

    def forward(self, named, tokens, kind):
        """Scores of replicas x rows x places x words; matrix products are of that kind."""
        replicas, rows, length = tokens.shape
        width, heads = self.width, self.heads

        def linear(name, x):
            weights = named[name].to(kind).transpose(1, 2)
            return torch.baddbmm(named[name + "_b"].to(kind).unsqueeze(1), x, weights)

        def norm(name, x):
            plain = functional.layer_norm(x, (width,))
            scaled = torch.addcmul(
                named[name + "_b"].unsqueeze(1), plain, named[name + "_g"].unsqueeze(1)
            )
            return scaled.to(kind)

        known = torch.arange(self.words, device=tokens.device)
        one_of = (tokens.flatten(1).unsqueeze(2) == known).to(kind)
        x = torch.bmm(one_of, named["words"].to(kind)).float().view(replicas, rows, length, width)
        x = (x + named["places"][:, :length].unsqueeze(1)).flatten(1, 2)
        for layer in range(self.layers):
            parts = linear(f"{layer}_qkv", norm(f"{layer}_norm1", x))
            parts = parts.view(replicas * rows, length, 3, heads, width // heads)
            q, k, v = parts.permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            mixed = mixed.transpose(1, 2).reshape(replicas, rows * length, width)
            x = x + linear(f"{layer}_out", mixed)
            y = functional.gelu(linear(f"{layer}_up", norm(f"{layer}_norm2", x)))
            x = x + linear(f"{layer}_down", y)
        scores = torch.bmm(norm("norm", x), named["scores"].to(kind).transpose(1, 2))
        return scores.float()

    def losses(self, named, rows, kind):
        """The mean loss of each replica; rows: replicas x rows x (places + 1)"""
        scores = self.forward(named, rows[..., :-1], kind)
        each = functional.cross_entropy(
            scores.flatten(0, 1), rows[..., 1:].flatten(), reduction="none"
        )
        return each.view(len(rows), -1).mean(1)


class Replica(torch.nn.Module):
    """One of a stack as a module, in the same memory."""

    def __init__(self, shape, row):
        super().__init__()
        for name, part in shape.views(row.unsqueeze(0)).items():
            self.register_parameter("p" + name, torch.nn.Parameter(part[0]))


class Stack:
    """Replicas in training. seeds, rates: of each replica. starts: of its rows in the text, as
    steps x replicas x rows. factors: what the rates are multiplied by, for each step. beta1: of
    AdamW. between: is called with the gradients in place, before the weights change. urgent:
    before other stacks, on a device."""

    def __init__(
        self, shape, seeds, rates, text, starts, factors, beta1=BETA1, between=None, urgent=False
    ):
        self.shape, self.device, self.between = shape, text.device, between
        self.stream = self._done = None
        if text.is_cuda:
            self.stream = torch.cuda.Stream(text.device, priority=-1 if urgent else 0)
            self._done = torch.cuda.Event(blocking=True)  # a thread that waits needs no processor
        self.kind = torch.bfloat16 if text.is_cuda else torch.float32
        first = {seed: shape.start(seed) for seed in set(seeds)}
        self._first = torch.stack([first[seed] for seed in seeds]).to(self.device)
        self.weights = self._first.clone()
        self.gradients = torch.zeros_like(self.weights)
        self._leaves = {
            name: part.detach().requires_grad_() for name, part in shape.views(self.weights).items()
        }
        self._into = list(shape.views(self.gradients).values())
        self._text, self._starts, self._factors = text, starts, factors.to(self.device)
        self._places = torch.arange(shape.length + 1, device=self.device)
        self.steps = torch.zeros(1, dtype=torch.int64, device=self.device)  # done
        self.last = torch.zeros(len(seeds), device=self.device)
        self.rates = torch.tensor(rates, device=self.device)
        self._optimizer = self._adam(rates, beta1)
        self._calls = None

    def _adam(self, rates, beta1):
        groups = {}
        for number, rate in enumerate(rates):
            row = torch.nn.Parameter(self.weights[number])
            row.grad = self.gradients[number]
            groups.setdefault(rate, []).append(row)
        on_device = self.device.type == "cuda"
        self._rates = {
            rate: torch.tensor(rate, device=self.device) if on_device else rate for rate in groups
        }
        made = [{"params": rows, "lr": self._rates[rate]} for rate, rows in groups.items()]
        options = {"capturable": True, "fused": True} if on_device else {}
        return torch.optim.AdamW(made, betas=(beta1, BETA2), weight_decay=DECAY, **options)

    def running(self):
        """Where it is trained: stacks side by side, each in a thread, have streams of their own."""
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def synchronize(self):
        if self.stream is not None:
            self._done.record(self.stream)
            self._done.synchronize()

    def gradient(self):
        """Of the step that comes."""
        rows = self._text[self._starts[self.steps][0].unsqueeze(2) + self._places]
        losses = self.shape.losses(self._leaves, rows, self.kind)
        found = torch.autograd.grad(losses.sum(), list(self._leaves.values()))
        torch._foreach_copy_(self._into, list(found))
        self.last.copy_(losses.detach())

    def update(self):
        factor = self._factors[self.steps][0]
        for group, rate in zip(self._optimizer.param_groups, self._rates):
            if torch.is_tensor(group["lr"]):
                group["lr"].copy_(rate * factor)
            else:
                group["lr"] = rate * float(factor)
        self._optimizer.step()
        self.steps += 1

    def _step(self):
        self.gradient()
        self.update()

    def step(self):
        """Of all replicas; on a device it is only begun."""
        if self._calls is None:
            self.prepare()
        for call in self._calls:
            call()

    def prepare(self):
        """On a device: captures graphs. While it does, no other thread may use the device."""
        calls = [self._step] if self.between is None else [self.gradient, self.update]
        if self.device.type == "cuda":
            calls = self._captured(calls)
        self._calls = calls
        if self.between is not None:
            self._calls.insert(1, self.between)

    def _captured(self, calls):
        """What runs graphs of them. What their trial runs change is put back. They are captured on
        the stack's own stream: products of matrices have memory for each stream, which graphs that
        run side by side must not share."""
        torch.cuda.synchronize()
        with self.running():
            for _ in range(3):
                self._step()
        torch.cuda.synchronize()
        graphs = [torch.cuda.CUDAGraph() for _ in calls]
        try:
            for graph, call in zip(graphs, calls):
                with torch.cuda.graph(
                    graph, stream=self.stream, capture_error_mode="thread_local"
                ):
                    call()
            replays = [graph.replay for graph in graphs]
        except RuntimeError as error:  # slower, but it trains
            print(f"no graph: {error}", file=sys.stderr, flush=True)
            replays = calls
        torch.cuda.synchronize()
        self.start_again()
        torch.cuda.synchronize()
        return replays

    @torch.no_grad()
    def start_again(self, factors=None):
        """From the first weights, with other factors of as many steps or fewer."""
        self.weights.copy_(self._first)
        self.steps.zero_()
        if factors is not None:
            self._factors[: len(factors)] = factors.to(self.device)
        for of in self._optimizer.state.values():
            for value in of.values():
                if torch.is_tensor(value):
                    value.zero_()

    @torch.no_grad()
    def validate(self, replicas, text, rows):
        """Losses of some replicas on the first so many rows of a text."""
        own = self.weights[replicas]
        named, length = self.shape.views(own), self.shape.length
        total, at_once = torch.zeros(len(own), dtype=torch.float64, device=self.device), 32
        for first in range(0, rows, at_once):
            number = torch.arange(first, min(first + at_once, rows), device=self.device)
            part = text[number[:, None] * length + self._places].expand(len(own), -1, -1)
            total += self.shape.losses(named, part, self.kind).double() * len(number)
        return (total / rows).tolist()
