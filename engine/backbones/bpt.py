"""bpt: point cloud -> mesh with the public checkpoint of BPT (Tencent Hunyuan), from its own file.

Paper: Scaling Mesh Generation via Compressive Tokenization, Weng et al., arXiv 2411.07025. The network is the one of `mesh_decoder.py`, in
which lowpoly is small: 24 layers of width 1,024, sequences of up to 10,000 tokens, 4,096 points. `bpt_names.py` says how the checkpoint
names its tensors; sizes are read from their shapes. The half of the point encoder that only reconstructs surfaces is not loaded.

The point encoder stays in float32 whatever the dtype: the checkpoint's authors run it in half precision and test for overflow. dtype "auto"
is float32 on a CPU: in bfloat16, this decoder's attention gives a row other bits in a window than alone, and `match seed` could drift.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from engine import memory
from engine.backbones.bpt_names import ENCODER, MEMORY, sources
from engine.backbones.lowpoly import DRAFT_ROWS, Lowpoly
from engine.backbones.originals import originals
from engine.checkpoints.reading import Checkpoint, Shapes
from engine.core import ANY_SUIT, Suits
from engine.drafters.mesh_heads import SHORT
from engine.errors import MissingWeights
from engine.kernels.compressed_linear import compress
from engine.kernels.cpu.steady_linear import make_steady
from engine.memory import FULL
from engine.networks.mesh_decoder import MeshModel, MeshSettings
from engine.networks.packing import count

CHECKPOINT = "bpt-8-16-500m.pt of huggingface.co/whaohan/bpt"
LICENCE = (
    "Code and weights: Tencent Hunyuan 3D 2.0 Community License (not in the EU, the UK and South Korea; permission above a million users a "
    "month; outputs may not train other models). The card of the weights says MIT; the point encoder's code is GPL-3.0."
)
POINTS = 4096
WIDTH_OF_A_HEAD = 64
VOCABULARY = 5121  # with special blocks, which open a patch; files without them hold another vocabulary


class Bpt(Lowpoly):
    """The backbone: lowpoly's code with BPT's weights. The grammar masks what no serialised mesh contains; BPT's own script has none."""

    name = "bpt"
    points = POINTS
    sampling = replace(Lowpoly.sampling, temperature=0.5, guide=0.0)  # as in BPT's own script
    suits: Suits = ANY_SUIT
    trainable = ("mesh_heads",)

    def __init__(self, model: MeshModel, grammar: bool = True):
        super().__init__(model, {"name": self.name, "licence": LICENCE}, None, grammar)
        self.known_as = ""

    def adopt(self, folder: Path, weights_hash: str | None) -> None:
        """See TrainedBackbone. Also adds the heads trained for these weights."""
        super().adopt(folder, weights_hash)
        self.base_hash, self.kinds = weights_hash, [kind for kind in SHORT if self._heads_file(kind).exists()]
        self.capabilities |= {"mesh_heads"} if self.kinds else set()


def configure(shapes: Shapes) -> MeshSettings:
    """The shape of a checkpoint's network, from the shapes of its tensors; raises MissingWeights if it is not BPT's."""
    try:
        settings = MeshSettings(
            layers=count(shapes, "decoder.layers.") // 3,
            width=shapes["sos_token"][0],
            heads=shapes["decoder.layers.1.1.mem_k"][0],
            inner=shapes["decoder.layers.2.1.ff.2.weight"][1],
            length=shapes["abs_pos_emb.weight"][0],
            vocabulary=shapes["token_embed.weight"][0],
            memories=shapes["decoder.layers.1.1.mem_k"][1],
            features=shapes[f"{ENCODER}input_proj.weight"][1],
            encoder_width=shapes[f"{ENCODER}query"][1],
            encoder_blocks=count(shapes, f"{ENCODER}self_attn.resblocks."),
            latents=shapes[f"{ENCODER}query"][0],
            budgets=0,
        )
    except (KeyError, IndexError, ValueError) as e:
        raise MissingWeights(f"These are not weights of bpt: {e} is missing or damaged. Download {CHECKPOINT} again.") from e
    if settings.vocabulary != VOCABULARY:
        raise MissingWeights(f"The checkpoint has {settings.vocabulary:,} tokens, and bpt has {VOCABULARY:,}. Download {CHECKPOINT}.")
    if settings.width != settings.heads * WIDTH_OF_A_HEAD:
        raise MissingWeights(f"A width of {settings.width} does not divide into {settings.heads} heads of 64. Download {CHECKPOINT} again.")
    return settings


def expected_shapes(settings: MeshSettings) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor that loading needs, by its name in the file."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in _our_shapes(settings).items():
        theirs = sources(name)
        part = shape[1:] if name.endswith(MEMORY) else (shape[0] // len(theirs), *shape[1:])
        shapes |= dict.fromkeys(theirs, tuple(part))
    return shapes


def size(s: MeshSettings) -> memory.Size:
    """The sizes that memory depends on."""
    numbers = sum(math.prod(shape) for shape in _our_shapes(s).values())
    slots = 1 + s.length + DRAFT_ROWS
    with torch.device("meta"):
        linear = sum(layer.weight.numel() for layer in MeshModel(s).decoder.modules() if isinstance(layer, nn.Linear))
    return memory.Size(numbers, s.layers, s.heads, s.width // s.heads, slots, s.vocabulary, branches=1, linear=linear)


def _our_shapes(settings: MeshSettings) -> dict[str, torch.Size]:
    with torch.device("meta"):
        return {name: tensor.shape for name, tensor in MeshModel(settings).state_dict().items()}


# --- files ------------------------------------------------------------------------------------------------------------


def load(path: str | None = None, device: str = "cpu", dtype: str = "auto", weights: str = FULL) -> Bpt:
    """The backbone from a local file or folder; downloads nothing. dtype "auto" is float32 on a CPU, else bfloat16.

    Raises MissingWeights for an absent, incomplete or damaged checkpoint, TooLittleMemory.
    """
    if dtype == "auto":
        dtype = "float32" if torch.device(device).type == "cpu" else "bfloat16"
    with originals(path, "bpt", CHECKPOINT) as checkpoint:
        settings = configure(checkpoint.shapes)
        checkpoint.need(expected_shapes(settings), "bpt")
        memory.check("bpt", size(settings), device, dtype, weights=weights)
        memory.check_host("bpt", size(settings), device, dtype, weights)
        model = _read(checkpoint, settings, getattr(torch, dtype))
    compress(model.decoder, weights, device)
    torch.set_flush_denormal(True)
    backbone = Bpt(model.requires_grad_(False).to(device))
    make_steady([backbone.model.decoder])
    return backbone


def _read(checkpoint: Checkpoint, settings: MeshSettings, dtype: torch.dtype) -> MeshModel:
    """The network with its weights, never allocated twice."""
    with torch.device("meta"):
        model = MeshModel(settings)
    tensors: dict[str, Tensor] = {}
    for name, place in model.state_dict().items():
        kind = torch.float32 if name.startswith("encoder.") else dtype
        tensors[name] = torch.cat([checkpoint.read_as(each, kind) for each in sources(name)]).view(place.shape)
    model.load_state_dict(tensors, assign=True)
    return model
