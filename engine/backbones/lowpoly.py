"""lowpoly: point cloud -> low-polygon mesh as BPT tokens. A small model, trained by this project and shipped with it.

The network is a small version of BPT's (`mesh_decoder.py`); tokens and grammar are in `bpt_tokens.py` and `bpt_grammar.py`. Points are
in the model's frame: bounding box centred at 0, longest side 1.9, +Y up, with unit normals (zeros where they are not known).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.backbones.trained import TrainedBackbone, trained_in
from engine.cache import KVCache
from engine.core import Bias, Prompt, Sampling, Suits
from engine.dispatch.choice import NATIVE
from engine.drafters.mesh_heads import SHORT, BoundHeads, HeadsByKind, MeshHeads
from engine.drafters.predictive_stream import read_config, read_pairs, scale_of
from engine.errors import BadPrompt, MissingWeights, NotSupported
from engine.kernels.cpu.blocks import RunRows
from engine.kernels.cpu.library import native, native_choice
from engine.kernels.cpu.packed_linear import can_pack, pack
from engine.layout import Line
from engine.mesh import classical
from engine.mesh.bpt_grammar import BPTGrammar
from engine.mesh.bpt_tokens import BPT, TokenParser, dequantize, mesh_of, parse
from engine.mesh.guide import Guide
from engine.mesh.repeats import RepeatCount
from engine.networks.card import has_card
from engine.networks.mesh_decoder import ConditionKV, MeshDecoder, MeshModel, MeshSettings, describe, face_level, settings_of
from engine.networks.native_blocks import quicken
from engine.networks.rows import AdapterRows, RowSplit
from engine.networks.sequence import TransformerSequence
from engine.networks.trunk import OwnTrunk, PassArguments
from engine.networks.weights import MODELS, build_network, hash_of, need, part_files, read_card, read_parts, read_tensors, refuse_stale

FOLDER = MODELS / "lowpoly"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTERS = {"lora": "cross", "lora-mlp": "mlp"}  # by option: the kind of heads that the merged adapter was trained with
POINTS = 1024  # for an encoder that does not read blocks
READ = 4096  # points that are counted in blocks; the encoder gets the first of them
DRAFT_ROWS = 64  # extra rows after the longest sequence, for the drafts of a pass
FEWEST_POINTS, MOST_FACES = 16, 10_000


def points_of(settings: MeshSettings) -> int:
    """The points that a lowpoly of this shape reads."""
    return READ if settings.contents else POINTS


class MaskedGrammar:
    """The BPT grammar with its masks as tensors."""

    def __init__(self, budget: int | None):
        self.rules = BPTGrammar(canonical=True, budget=budget)
        self.masks = torch.from_numpy(self.rules.masks.copy())
        self._rows = list(self.masks)  # a list, because indexing the tensor takes longer
        self.automaton = self.rules.automaton(self.masks)
        self.start = self.rules.start
        self.next = self.rules.next  # looked up once, because every token calls it

    def mask_index(self, state: int) -> int:
        """The row of `masks` for a state."""
        return self.rules.mask_index(state)

    def allowed_ids(self, state: int) -> Tensor:
        """The ids allowed next, bool [V]."""
        return self._rows[self.rules.mask_index(state)]


class _LowpolyTrunk(OwnTrunk):
    """MeshDecoder with one condition, as a trunk for TransformerSequence."""

    def __init__(self, model: MeshModel, table: Tensor, positions: Tensor, condition: Tensor):
        super().__init__(model.decoder)
        self.table, self.positions = table, positions
        self.condition_kv = model.decoder.keys_values(condition)

    def move_tensors(self, hold: Callable[[Tensor], Tensor]) -> Hashable:
        self.table = hold(self.table)
        self.condition_kv = ConditionKV((hold(keys), hold(values)) for keys, values in self.condition_kv)
        return None

    def embed(self, tokens: Tensor) -> Tensor:
        return torch.embedding(self.table, tokens)[None]

    def run(
        self, x: Tensor, slots: Tensor, mask: Tensor | None, kv_cache: KVCache, split: RowSplit | None = None,
        adapter_rows: AdapterRows | None = None,
    ) -> Tensor:  # fmt: skip
        return self.decoder(x + self.positions[slots], mask, self.condition_kv, kv_cache, split, adapter_rows)

    def head(self, hidden: Tensor) -> Tensor:
        return self.decoder.head(hidden)

    def rows(self, arguments: PassArguments) -> RunRows:
        """Returns this run's part of a pass that serves several runs."""
        cross_kv = self.decoder.quick.cross_kv(self.condition_kv)
        return RunRows(arguments.x + self.positions[arguments.slots], arguments.kv_cache, arguments.mask, cross=cross_kv)


@dataclass
class Mesh:
    """A mesh in the model's frame: vertices float32 [V, 3], faces int64 [F, 3], and the parsed tokens it was made from."""

    vertices: np.ndarray
    faces: np.ndarray
    parser: TokenParser


class Lowpoly(TrainedBackbone):
    """The backbone."""

    name = "lowpoly"
    end = BPT.eos  # the id that ends a mesh
    trainable = ("mesh_heads", "feature_draft", "predictive_stream")
    # BPT's, but for its temperature of 0.5: at 0.25 meshes of this model are nearer to their inputs (docs/models/lowpoly.md).
    sampling = Sampling(temperature=0.25, top_k=50, top_p=0.95, temperature_last=True, guide=16.0)

    # Chosen with `bench mesh --sweep`. Windows are short and drawn again, because a mesh draft is seldom right after a few others, and few
    # tokens are fixed points. Rows cost more than a picture's: each has a distribution of 5,121 numbers under a grammar.
    suits: Suits = MappingProxyType({
        "cross_regression": {"horizon": 4, "refresh": "redraw"},
        "sjdpp": {"window": 4},
        "adt_tree": {"row_cost": 0.4, "level_cost": 1.8, "children": "deterministic"},
        "eagle": {"depth": 2, "width": 3, "nodes": 3, "children": "deterministic"},
    })  # fmt: skip

    def __init__(
        self, model: MeshModel, card: dict[str, Any], folder: Path | None = None, grammar: bool = True, dtype: torch.dtype | None = None,
        option: str = "",
    ):  # fmt: skip
        """grammar: False decodes without the grammar, to measure what the model has learned by itself; dtype: of the products, None = the
        weights'; option: of the adapter that is merged into the weights"""
        if option:
            self.name, self.suffix = f"lowpoly:{option}", "_lora"
        self.known_as, self.draft_trunk = self.name, model.decoder
        self.model, self.card, self.folder, self.grammar = model.eval(), card, folder, grammar
        self.draft_dtype = dtype or model.decoder.start.dtype
        self.dtype, self.weights_hash = str(self.draft_dtype).removeprefix("torch."), None
        self.vocabulary, self.parameters = model.settings.vocabulary, sum(p.numel() for p in model.parameters())
        self.base_hash: str | None = None  # of the weights that heads were trained for: these, or these without the adapter
        self.device = next(model.parameters()).device
        trained = [ADAPTERS[option]] if option else [*SHORT.values()]  # the other heads were trained with another adapter
        self.kinds = [kind for kind, short in SHORT.items() if short in trained and folder and self._heads_file(kind).exists()]
        heads = {"mesh_heads"} if self.kinds else set()
        joined = {"joined"} if model.decoder.quick is not None else set()
        either = {"bfloat16"} if joined and native(torch.bfloat16) is not None else set()
        always = frozenset({"mesh", "points", "condition", "hidden", "vertices"})
        self.capabilities = always | heads | trained_in(folder, self.suffix) | joined | either

    @property
    def points(self) -> int:
        """The points of a prompt that the model reads."""
        return points_of(self.model.settings)

    @cached_property
    def tables(self) -> tuple[Tensor, Tensor]:
        """Embeddings of ids [V, width] and of slots [1 + length, width]; slot 0, the start, has none."""
        with torch.inference_mode():
            positions = self.model.decoder.positions
            return self.model.decoder.table(), torch.cat([torch.zeros_like(positions[:1]), positions])

    def start(self, prompt: Prompt) -> TransformerSequence:
        """Encodes the points; raises BadPrompt for too few points or an impossible number of faces, NotSupported for a target
        that the model was not trained for."""
        points = self.read_points(prompt)
        s, dtype = self.model.settings, self.model.decoder.start.dtype
        table, positions = self.tables
        reading = self.model.read(points[None], self.face_levels([prompt]))
        condition = reading.condition.to(dtype)
        kv_cache = KVCache(s.layers, 1, s.heads, 1 + s.length + DRAFT_ROWS, s.width // s.heads, self.device, dtype)
        trunk = _LowpolyTrunk(self.model, reading.table(table), positions, condition)
        return TransformerSequence(
            trunk, self.model.decoder.start[None, None], None, kv_cache,
            vocabulary=s.vocabulary, limit=s.length, layout=Line(), sampling=prompt.sampling or self.sampling, end=BPT.eos,
            grammar=MaskedGrammar(prompt.size) if self.grammar else None, condition=condition[0],
            levels=BPT, bias=self.bias(prompt), workspaces=self.workspaces, ends=RepeatCount().ends,
        )  # fmt: skip

    def bias(self, prompt: Prompt) -> Bias | None:
        """The bias of a run: its prompt's guide; None without one."""
        strength = (prompt.sampling or self.sampling).guide
        return Guide(*prompt.guide, strength) if strength and prompt.guide is not None else None

    def guided(self, prompt: Prompt) -> Prompt:
        """The prompt with a guide, if its sampling has a strength for one: the classical surface of its points. Takes about a second, and
        no time for points that had one lately.

        Raises NotSupported if this machine cannot make it, or the points span no surface.
        """
        if not (prompt.sampling or self.sampling).guide or prompt.guide is not None:
            return prompt
        return replace(prompt, guide=classical.reconstruct_once(prompt.points.cpu().float().numpy().tobytes(), prompt.about or prompt.size))

    def face_levels(self, prompts: Sequence[Prompt]) -> Tensor:
        """The numbers of faces that the model reads, float32 [B]: of each prompt its target, else its limit."""
        return torch.tensor([face_level(p.about or p.size) for p in prompts], device=self.device)

    def read_points(self, prompt: Prompt) -> Tensor:
        """As many of the prompt's points as the model reads, always the same ones; repeats points if there are fewer."""
        points = prompt.points
        if points is None:
            raise BadPrompt(f"{self.name} needs a point cloud or a mesh. Give a file: python launch.py mesh FILE.")
        if points.ndim != 2 or points.shape[1] != 6 or len(points) < FEWEST_POINTS:
            raise BadPrompt(f"{self.name} needs at least {FEWEST_POINTS} points with normals, [N, 6], not {list(points.shape)}.")
        for name, faces in (("limit", prompt.size), ("target", prompt.about)):
            if faces is not None and not 1 <= faces <= MOST_FACES:
                raise BadPrompt(f"A {name} of {faces} faces is out of range. Choose 1 to {MOST_FACES:,}.")
        if prompt.about is not None and not self.model.settings.budgets:
            raise NotSupported(f"{self.name} was not trained to aim at a number of faces. Leave the target out, or set a limit.")
        order = torch.randperm(len(points), generator=torch.Generator().manual_seed(0))
        chosen = order.repeat(-(-self.points // len(points)))[: self.points]
        return points[chosen].to(self.device, torch.float32)

    def render(self, tokens: list[int], positions: list[int], final: bool, size: int | None = None) -> Mesh:
        """The mesh of committed tokens. final=False: triangles in the order of the tokens; final=True: welded, without degenerate ones."""
        parser = parse(tokens)
        if final:
            cells, faces = mesh_of(parser.faces)
        else:
            soup = parser.triangles()
            cells, faces = soup.reshape(-1, 3), np.arange(3 * len(soup)).reshape(-1, 3)
        return Mesh(dequantize(cells).astype(np.float32), faces, parser)

    def _heads_file(self, kind: str) -> Path:
        return (self.folder or FOLDER) / f"heads_{SHORT[kind]}{self.suffix}.safetensors"

    def _read_heads(self, kind: str) -> BoundHeads:
        path = self._heads_file(kind)
        row = need(self.card, f"heads.{path.stem}", dict, path.parent)
        refuse_stale(path, row, self.base_hash, self.recipe("mesh_heads"))
        heads = build_network(MeshHeads, need(row, "settings", dict), read_tensors(path), path)
        head, dtype = self.model.decoder.head, self.model.decoder.start.dtype
        return BoundHeads(heads.to(self.device), lambda states: head(states.to(dtype)))

    def recipe(self, name: str) -> str:
        """See TrainedBackbone. The recipe of heads trains those of every adapter, with the adapter."""
        return super().recipe(name).partition(":")[0] if name == "mesh_heads" else super().recipe(name)

    def read_trained(self, name: str) -> Any:
        """See TrainedBackbone; "mesh_heads" are those of all kinds."""
        return HeadsByKind(self.kinds, self._read_heads, self.name) if name == "mesh_heads" else super().read_trained(name)


def load_model(folder: Path = FOLDER) -> MeshModel:
    """The shipped network; its shape is read from its weights."""
    card = read_card(folder)
    tensors, files = read_parts(folder, "model", need(card, "model.files", int, folder))
    need(card, "families", list, folder, of=str)
    try:
        settings = describe(settings_of(tensors))
    except (KeyError, IndexError, ValueError, TypeError) as e:
        raise MissingWeights(f"The weights in {folder} lack {e}. Restore them with git.") from e
    return build_network(lambda **sizes: MeshModel(MeshSettings(**sizes)), settings, tensors, files[0]).eval()


def untrained(folder: Path = FOLDER) -> MeshDecoder:
    """A decoder of the shipped one's shape, as its card describes it, with random weights."""
    return MeshDecoder(MeshSettings(**need(read_card(folder), "model.settings", dict, folder)))


def load(path: str | None = None, device: str = "cpu", dtype: str = "auto", option: str = "") -> Lowpoly:
    """The backbone from a model folder (default: the shipped one).

    dtype : of the products; "float32" (also "auto"), or "bfloat16", which needs a CPU that multiplies it and the compiled functions: by
    PyTorch's operations, passes as small as these gain nothing. Everything else is float32.
    option : a key of ADAPTERS: W + AB of XSpecMesh's second stage (section 3.5), easier to draft for, with a slightly different
    distribution. "Exact" then means exact with respect to these weights; the card records their divergence from lowpoly. Raises
    MissingWeights if there is no such adapter.
    """
    products = checked_dtype(device, dtype)
    folder = model_folder(path)
    model = load_model(folder)
    adapter = [merge(model, folder / f"lora_{ADAPTERS[option]}")] if option else []
    backbone = Lowpoly(prepare_model(model, device, products), read_card(folder), folder, dtype=products, option=option)
    backbone.base_hash = hash_of(part_files(folder, "model"))
    backbone.weights_hash = hash_of([*part_files(folder, "model"), *adapter])
    return backbone


def has_option(option: str) -> bool:
    """True if the adapter of an option ships."""
    return (FOLDER / f"lora_{ADAPTERS[option]}" / ADAPTER_CONFIG).exists()


@torch.no_grad()
def merge(model: MeshModel, adapter: Path) -> Path:
    """Adds an adapter to the weights; returns the file of its weights. Raises MissingWeights if there is none."""
    if not (adapter / ADAPTER_CONFIG).exists():
        raise MissingWeights(f"{adapter} holds no adapter. Train it: python launch.py train mesh-heads, or use --backbone lowpoly.")
    config = read_config(adapter)
    for name, (down, up) in read_pairs(adapter, config["r"], model.decoder.blocks).items():
        model.decoder.blocks.get_submodule(name).weight += (up @ down) * scale_of(config)
    return adapter / "adapter_model.safetensors"


def checked_dtype(device: str, dtype: str) -> torch.dtype:
    """The type of the products; raises NotSupported where there are none in bfloat16."""
    if dtype != "bfloat16":
        return torch.float32
    if torch.device(device).type != "cpu":
        raise NotSupported("On a GPU lowpoly runs in float32. Leave --dtype out.")
    if (choice := native_choice(torch.bfloat16)).name != NATIVE:
        raise NotSupported(f"lowpoly runs in bfloat16 by compiled functions only. {choice.reason} Leave --dtype out.")
    return torch.bfloat16


def model_folder(path: str | None) -> Path:
    """The given folder, or the shipped one; raises MissingWeights if the shipped one is empty."""
    folder = Path(path) if path else FOLDER
    if path is None and not has_card(folder):
        raise MissingWeights("lowpoly's weights are not in this checkout. Train them: python launch.py train lowpoly.")
    return folder


def prepare_model(model: MeshModel, device: str, dtype: torch.dtype = torch.float32) -> MeshModel:
    """The network on a device, ready to decode; its weights must not change afterwards. dtype : of the decoder's products"""
    torch.set_flush_denormal(True)
    if torch.device(device).type == "cpu":
        quicken(model.decoder, dtype)
        if can_pack():
            pack(model.encoder)
    return model.to(device)
