"""A network small enough to enumerate every sequence, which runs as our own models run: in TransformerSequence, with its cache and
dispatches. The toy (toy.py) computes in float64 and has none of these. Its drafters are the toy's tables, and a random adapter.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from engine.cache import KVCache
from engine.core import Backbone, Prompt, Sampling
from engine.drafters.predictive_stream import PredictiveStream
from engine.kernels.cpu.blocks import RunRows
from engine.layout import Raster
from engine.networks.native_blocks import quicken
from engine.networks.sequence import TransformerSequence
from engine.networks.transformer import TransformerDecoder, rotary_table
from engine.networks.trunk import OwnTrunk, PassArguments
from engine.networks.workspace import WorkspacePool
from research.exactness.toy import HEADS, LEVELS, REACH, TableFeatures, TableHeads, TableSpatialHeads
from research.train.adapters import new_adapter

WIDTH, LAYERS, RESERVE = 32, 2, 256  # RESERVE : cache rows for drafts


class SmallNetwork(Backbone):
    """The backbone: `vocabulary` ids, `rows` x `columns` positions, two branches of guidance, float32."""

    name, dtype, parameters = "small network", "float32", 0
    capabilities = frozenset(
        {"raster", "wavefront", "hidden", "mesh_heads", "feature_draft", "predictive_stream", "codebook", "spatial_heads", "vertices"}
    )

    @torch.inference_mode(False)
    def __init__(self, vocabulary: int = 3, rows: int = 2, columns: int = 2, seed: int = 0, compiled: bool = False):
        """compiled : layers in C, which passes of several runs can share"""
        self.vocabulary, self.layout, self.sampling = vocabulary, Raster(rows, columns, 1), Sampling(1.0, 0, 1.0, 1.4)
        self.device, self.workspaces = torch.device("cpu"), WorkspacePool()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.decoder = TransformerDecoder(LAYERS, WIDTH, 2, 2 * WIDTH)
            for p in self.decoder.parameters():
                if p.ndim == 2:
                    nn.init.normal_(p, std=0.3)
            self.head = nn.Linear(WIDTH, vocabulary, bias=False)
            nn.init.normal_(self.head.weight, std=0.25)
            self.table, self.beginning = torch.randn(vocabulary, WIDTH), torch.randn(2, 1, WIDTH)
            self.codes = torch.randn(vocabulary, 2)
            lora = new_adapter(self.decoder, ("query_key_value", "attention_out", "gate_up", "feed_out"), 4, 8.0, 1)
            for up in lora.up:
                nn.init.normal_(up, std=0.2)
            tokens, out = torch.randn(vocabulary, WIDTH), torch.randn(WIDTH, vocabulary) / 4
            read, around = torch.randn(3, WIDTH, vocabulary) / 6, torch.randn(3, vocabulary, vocabulary) / 2
            self._drafters = {
                "mesh_heads": TableHeads(torch.randn(HEADS, WIDTH, vocabulary) / 4),
                "feature_draft": TableFeatures(torch.randn(WIDTH, WIDTH) / 6, tokens, out),
                "predictive_stream": PredictiveStream(lora.requires_grad_(False), True),
                "spatial_heads": TableSpatialHeads(read, around, torch.randn(2 * REACH + 1, vocabulary) / 2),
            }
        for module in (self.decoder, self.head):
            module.eval().requires_grad_(False)
        if compiled:
            quicken(self.decoder)
            self.capabilities = self.capabilities | {"joined"}

    def start(self, prompt: Prompt) -> TransformerSequence:
        """An empty sequence. Only the prompt's sampling is used."""
        limit, width = self.layout.rows * self.layout.columns, WIDTH // self.decoder.heads
        kv_cache = KVCache(LAYERS, 2, self.decoder.heads, 1 + limit + RESERVE, width, self.device, torch.float32)
        return TransformerSequence(
            _SmallTrunk(self, limit + 1), self.beginning, None, kv_cache, vocabulary=self.vocabulary, limit=limit, layout=self.layout,
            sampling=prompt.sampling or self.sampling, codebook=self.codes, levels=LEVELS, workspaces=self.workspaces,
        )  # fmt: skip

    def drafter(self, name: str) -> Any:
        """A random drafter."""
        return self._drafters[name]

    def codebook(self) -> Tensor:
        """The code vector of every id, [V, 2]: random."""
        return self.codes


class _SmallTrunk(OwnTrunk):
    def __init__(self, backbone: SmallNetwork, slots: int):
        super().__init__(backbone.decoder)
        self.table, self.head = backbone.table, backbone.head
        self.cos, self.sin = rotary_table(torch.arange(slots)[:, None], WIDTH // backbone.decoder.heads)

    def move_tensors(self, hold: Any) -> None:
        self.cos, self.sin = hold(self.cos), hold(self.sin)

    def embed(self, tokens: Tensor) -> Tensor:
        return torch.embedding(self.table, tokens)[None]

    def run(self, x: Tensor, slots: Tensor, mask: Any, kv_cache: Any, split: Any = None, adapter_rows: Any = None) -> Tensor:
        return self.decoder(x, self.cos[slots], self.sin[slots], mask, kv_cache, split, None, adapter_rows)

    def rows(self, arguments: PassArguments) -> RunRows:
        return RunRows(arguments.x, arguments.kv_cache, arguments.mask, self.cos[arguments.slots], self.sin[arguments.slots])
