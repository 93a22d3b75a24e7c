"""The training loop that every recipe shares: resumable at any time, with averaged weights and a curve of held-out numbers.

A checkpoint is written once a minute and when the process receives SIGTERM or SIGINT, which stop it; it is written completely or not at
all, so a kill at any moment costs at most a minute. The time of a paused process (SIGSTOP) does not count. Batches are a function of the
step number; a resumed run goes on with fresh scenes. The learning rate is warmed up, held, and lowered linearly over the last third of the
given minutes (or follows another schedule); a later run warms up again.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from engine.errors import BadFile, BadKnob, BadOutput, NotSupported
from engine.files import clean, home, refusal, whole_file
from engine.machine import has_fast_bfloat16, keep_freed_memory, processor
from research.train.muon import StackedMuon

LossOf = Callable[[int], Tensor]  # the loss of a step
LONGEST = 600.0  # seconds that a step with its checkpoint and held-out numbers can take; anything longer was a pause


def checkpoints(root: Path) -> Path:
    """Returns the folder of checkpoints: in a checkout, one that git ignores; for an installed package, in the user's data."""
    return root / ".training" if (root / "launch.py").is_file() else home() / "training"


CHECKPOINTS = checkpoints(Path(__file__).resolve().parents[2])


class RecipeParser(argparse.ArgumentParser):
    """A parser whose errors are one sentence."""

    def error(self, message: str) -> NoReturn:
        """Raises BadKnob instead of ending the process."""
        raise BadKnob(f"{message[:1].upper()}{message[1:]}. See: python {self.prog} --help")


def argument(help: str | None = None, **how: Any) -> dict[str, Any]:
    """Returns the metadata of an options field. how : further arguments for argparse; `flag`, if it is not the field's name"""
    return {"help": help, **how}


def half_precision(device: str) -> torch.autocast:
    """Returns a context for passes in bfloat16 where that is fast."""
    return torch.autocast(device, torch.bfloat16, enabled=device == "cuda" or has_fast_bfloat16())


@dataclass
class RecipeOptions:
    """The command-line options of a recipe."""

    preset: str = field(default="cpu", metadata=argument(choices=["cpu", "gpu"]))
    minutes: float | None = field(default=None, metadata=argument("minutes of this training (default: the preset's)", type=float))
    fresh: bool = field(default=False, metadata=argument("start from random weights"))
    export: bool = field(
        default=False, metadata=argument("only write the newest checkpoint to assets/models, even if its numbers are worse")
    )
    out: Path | None = field(
        default=None, metadata=argument("write to this model folder instead of the shipped one", type=Path, metavar="DIR")
    )
    compiled: bool = field(default=False, metadata=argument("compile the loss; on a CPU this needs a C++ compiler", flag="--compile"))

    def __post_init__(self) -> None:
        if self.minutes is not None and not (math.isfinite(self.minutes) and self.minutes > 0):
            raise BadKnob(f"--minutes {self.minutes:g} is not a valid number of minutes. Give a number above 0, such as 30.")

    def minutes_of(self, preset: Mapping[str, Any]) -> float:
        """Returns the minutes of this run."""
        return preset["minutes"] if self.minutes is None else self.minutes

    @property
    def device(self) -> str:
        """The device of the preset; raises NotSupported if it needs a GPU and there is none."""
        if self.preset != "gpu":
            return "cpu"
        if not torch.cuda.is_available():
            raise NotSupported("--preset gpu needs an NVIDIA GPU, and PyTorch sees none here. Use --preset cpu, or see: launch.py doctor.")
        return "cuda"

    @classmethod
    def parser(cls, name: str) -> argparse.ArgumentParser:
        """Returns the parser of `launch.py train NAME`: an option for each field."""
        p = RecipeParser(f"launch.py train {name}")
        for each in fields(cls):
            how = {
                "flag": f"--{each.name.replace('_', '-')}",
                **({"action": "store_true"} if each.default is False else {}),
                **each.metadata,
            }
            p.add_argument(how.pop("flag"), dest=each.name, default=each.default, **how)
        return p


def trapezoid(elapsed: float) -> float:
    """Returns the learning rate's factor after a fraction 0..1 of the run: 1, then a linear decay over the last third."""
    return max(0.03, min(1.0, (1 - elapsed) * 3))


def straight_down(elapsed: float) -> float:
    """Returns the learning rate's factor after a fraction 0..1 of the run: a linear decay from the start. For short runs that continue a
    training: a rate held at its maximum would first undo the gain of the last decay."""
    return max(0.03, 1 - elapsed)


def cosine_to_a_tenth(elapsed: float) -> float:
    """Returns the learning rate's factor after a fraction 0..1 of the run: half a cosine from 1 to 0.1."""
    return 0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, elapsed)))


@dataclass
class Training:
    """A resumable optimisation of `model`; the recipe provides the loss of a step and the held-out numbers."""

    name: str
    model: nn.Module
    learning_rate: float
    minutes: float
    device: str
    warm_steps: int = 200
    average: float = 0.999
    weight_decay: float = 0.01
    muon: str | tuple[str, ...] = ""  # name prefixes of the matrices, and stacks of matrices, that Muon optimises; "" = none
    betas: tuple[float, float] = (0.9, 0.95)  # of AdamW
    schedule: Callable[[float], float] = trapezoid
    step: int = 0
    seconds: float = 0.0
    curve: list[dict] = field(default_factory=list)

    def __post_init__(self) -> None:
        torch.set_flush_denormal(True)  # denormals made CPU training eight times slower
        keep_freed_memory()
        self.model.to(self.device)
        self.optimizers = self._optimizers()
        self.rates = [[g["lr"] for g in o.param_groups] for o in self.optimizers]
        self.averaged = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
        self.path = CHECKPOINTS / f"{self.name}.pt"
        self.stopped = self.resumed = False
        self.first = self.step  # of this run

    def _optimizers(self) -> list[torch.optim.Optimizer]:
        """Returns Muon (Jordan et al. 2024) for the matrices named in `muon`, and AdamW for everything else."""
        named = [(n, p) for n, p in self.model.named_parameters() if p.requires_grad]
        matrices = [p for n, p in named if min(p.shape[-2:]) > 1 and p.ndim > 1 and self.muon and n.startswith(self.muon)]
        self.slices = [(nn.Parameter(m), p, i) for p in matrices if p.ndim == 3 for i, m in enumerate(p.data)]  # share their storage
        rest = [p for _, p in named if not any(p is m for m in matrices)]
        groups = [
            {"params": [p for p in rest if p.ndim > 1], "weight_decay": self.weight_decay},
            {"params": [p for p in rest if p.ndim <= 1], "weight_decay": 0.0},
        ]
        adam = torch.optim.AdamW(groups, lr=self.learning_rate, betas=self.betas)
        if not matrices:
            return [adam]
        single = [p for p in matrices if p.ndim == 2] + [piece for piece, _, _ in self.slices]
        return [StackedMuon(single, self.learning_rate, self.weight_decay, momentum=0.95), adam]

    def resume(self, fresh: bool) -> bool:
        """Loads the checkpoint if there is one, unless `fresh`; returns True if it did. Leaves one with other frozen weights alone. Raises
        BadFile for a checkpoint that is damaged or of another network."""
        clean(self.path.parent)
        if fresh or not self.path.exists():
            return False
        try:
            state = torch.load(self.path, map_location=self.device, weights_only=True)
            if state.get("recipe", self.name) != self.name:
                raise ValueError(f"it is a checkpoint of {state['recipe']}")
            frozen = [n for n, p in self.model.named_parameters() if not p.requires_grad]
            if any(not torch.equal(state["model"][n], self.model.get_parameter(n)) for n in frozen):
                print(f"{self.name}: the checkpoint belongs to other weights and is left alone", flush=True)
                return False
            self._restore(state)
        except (OSError, RuntimeError, ValueError, LookupError, TypeError, AttributeError, EOFError, UnpicklingError) as e:
            reason = (str(e) or type(e).__name__).splitlines()[0].rstrip(".:")
            raise BadFile(f"The checkpoint {self.path} cannot be resumed ({reason}). Move it away, or start over with --fresh.") from e
        self.first, self.resumed = self.step, True
        print(f"{self.name}: resumed at step {self.step}, {self.seconds / 60:.0f} minutes", flush=True)
        return True

    def _restore(self, state: dict[str, Any]) -> None:
        """Restores the state that `save` wrote."""
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.averaged = state["averaged"]
        self.step, self.seconds, self.curve = state["step"], state["seconds"], state["curve"]

    def warm_start(self, state: dict[str, Tensor], before: Mapping[str, Any]) -> None:
        """Starts from shipped weights; steps, minutes and curve continue from `before`, the summary in their card.

        Missing names keep their initial values; the optimisers start fresh.
        """
        self.model.load_state_dict(state, strict=False)
        self.averaged = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
        self.step, self.seconds, self.curve = before["steps"], before["minutes"] * 60, list(before.get("curve", []))
        self.first = self.step
        print(f"{self.name}: warm start from the shipped weights, step {self.step}", flush=True)

    def save(self) -> None:
        """Writes the checkpoint, completely or not at all; raises BadOutput if it cannot be written."""
        state = {"recipe": self.name, "model": self.model.state_dict(), "averaged": self.averaged}
        state["optimizers"] = [o.state_dict() for o in self.optimizers]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(self.path) as part:
                torch.save(state | {"step": self.step, "seconds": self.seconds, "curve": self.curve}, part)
        except (OSError, RuntimeError) as e:  # torch raises RuntimeError for a full disk
            raise refusal(self.path, e, "The previous checkpoint is untouched; free some space.") from e

    def run(self, loss_of: LossOf, held_out: Callable[[], dict], every: float = 300) -> None:
        """Trains until the minutes are over or a signal stops it; computes the held-out numbers every `every` seconds. Raises the signal
        again with the previous handler, which by default ends the process."""
        caught: list[int] = []

        def stop(number: int, _: object) -> None:
            self.stopped = True
            caught.append(number)

        before = {n: signal.signal(n, stop) for n in (signal.SIGTERM, signal.SIGINT)}
        try:
            self._loop(loss_of, held_out, every)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if caught:
            print(f"{self.name}: stopped at step {self.step}; run the same command to continue", flush=True)
            signal.raise_signal(caught[0])

    def _loop(self, loss_of: LossOf, held_out: Callable[[], dict], every: float) -> None:
        clock, seconds, first = time.monotonic(), self.seconds, self.step
        spent = saved = reported = 0.0
        running = None
        while not self.stopped and spent < self.minutes * 60:
            loss = self._advance(loss_of, self.step - first, spent / (self.minutes * 60))
            running = loss if running is None else 0.99 * running + 0.01 * loss
            clock, before = time.monotonic(), clock
            spent += min(clock - before, LONGEST)
            self.seconds = seconds + spent
            if spent - saved > 60:
                self._try_to_save()
                saved = spent
            if spent - reported > every:
                self.report(held_out, running)
                reported = spent
        if self.step == first:
            return
        if not self.stopped:
            self.report(held_out, running)
        self.save()

    def _try_to_save(self) -> None:
        """Saves the checkpoint; if that fails, prints the reason and continues, because a full disk may be temporary."""
        try:
            self.save()
        except BadOutput as e:
            print(f"{self.name}: {e} Training goes on.", flush=True)

    def _advance(self, loss_of: LossOf, since_start: int, elapsed: float) -> float:
        """Makes one optimiser step and returns its loss. elapsed : the fraction 0..1 of this run's time"""
        rate = min(1.0, (since_start + 1) / self.warm_steps) * self.schedule(elapsed)
        for optimizer, rates in zip(self.optimizers, self.rates, strict=True):
            for group, full in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = full * rate
        self.model.zero_grad(set_to_none=True)
        loss = loss_of(self.step)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for piece, stack, i in self.slices:
            piece.grad = stack.grad[i]
        for optimizer in self.optimizers:
            optimizer.step()
        self.step += 1
        decay = min(self.average, (1 + self.step) / (10 + self.step))
        live = {k: v for k, v in self.model.state_dict().items() if v.is_floating_point()}
        torch._foreach_lerp_([self.averaged[k] for k in live], list(live.values()), 1 - decay)
        return loss.item()

    def report(self, held_out: Callable[[], dict], loss: float | None) -> None:
        """Computes the held-out numbers with the averaged weights, prints them and adds them to the curve."""
        live = {k: v.clone() for k, v in self.model.state_dict().items()}
        self.model.load_state_dict(self.averaged)
        self.model.eval()
        with torch.no_grad():
            numbers = held_out()
        self.model.train()
        self.model.load_state_dict(live)
        row = {"step": self.step, "minutes": round(self.seconds / 60, 1), "loss": round(loss or 0.0, 4)} | numbers
        self.curve.append(row)
        print(json.dumps(row), flush=True)

    def summary(self, preset: str, recipe: str) -> dict:
        """Returns the card's entry for this training: command, steps, minutes, device, last held-out numbers and curve."""
        return {
            "command": f"python launch.py train {recipe} --preset {preset}",
            "steps": self.step,
            "minutes": round(self.seconds / 60, 1),
            "device": processor() if self.device == "cpu" else torch.cuda.get_device_name(0),
            "held_out": self.curve[-1] if self.curve else {},
            "curve": self.curve[:: max(1, len(self.curve) // 24)],
        }
