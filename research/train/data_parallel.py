"""Several processes on a CPU compute the gradient of a training step, each on its share of the batch.

Some of a step runs on one thread whatever the number: lessons are drawn, and small operators computed. Processes with a thread each divide
that too, as in data-parallel training on several GPUs (Li et al. 2020, arXiv 2006.15704). Parameters and gradients
lie in shared memory; the first process takes the mean of the gradients, makes the optimiser's step, and the others see its result.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType

import torch
import torch.multiprocessing  # teaches multiprocessing to send tensors as shared memory
from torch import Tensor, nn

from engine.machine import keep_freed_memory
from engine.tuning.threads import threads

FEWEST = 8  # sequences of a share; a choice: only 16 were measured (docs/training.md)
STOPPED_WITHIN = 60.0  # seconds that a process may take to finish its share after the end


@dataclass(frozen=True)
class Share:
    """The part of every batch that a process computes: number `index` of `count` equal ones."""

    index: int = 0
    count: int = 1


WHOLE = Share()
LossOf = Callable[[int], Tensor]  # the loss of a step
Lessons = Callable[[nn.Module, Share], LossOf]  # makes the loss of a share of each step; a function of a module, or a partial of one


def alone(loss_of: LossOf, step: int) -> float:
    """Adds the gradient of a step to the model's, and returns its loss."""
    loss = loss_of(step)
    loss.backward()
    return loss.item()


def processes(device: str, batch: int) -> int:
    """How many processes should train on a device: on a CPU one for each of PyTorch's threads, with FEWEST sequences each or more."""
    return max(1, min(torch.get_num_threads(), batch // FEWEST)) if device == "cpu" else 1


class Team:
    """The processes of a training, to be used in a `with` block: outside of it there is only this one.

    model : its parameters are moved to shared memory
    lessons : called in every process with its own share
    count : processes, with this one
    """

    def __init__(self, model: nn.Module, lessons: Lessons, count: int):
        self.share = Share(0, count)
        self._model, self._lessons = model, lessons
        self._helpers: list[Helper] = []

    def __enter__(self) -> Team:
        self._own = max(1, torch.get_num_threads() // self.share.count)
        if self.share.count > 1:
            self._model.share_memory()
            shares = [Share(index, self.share.count) for index in range(1, self.share.count)]
            self._helpers = [Helper(self._model, self._lessons, share, self._own) for share in shares]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for helper in self._helpers:
            helper.close()
        self._helpers = []

    def gradient(self, loss_of: LossOf, step: int) -> float:
        """Adds the gradient of a step to the model's: the mean over the shares. Returns the mean loss. loss_of : of this process's share"""
        for helper in self._helpers:
            helper.begin(step)
        with threads(self._own):  # the optimiser has them all
            losses = [alone(loss_of, step)]
        losses += [helper.loss() for helper in self._helpers]
        for helper in self._helpers:
            torch._foreach_add_(*helper.gradients_beside_own())
        if self._helpers:
            torch._foreach_mul_([p.grad for p in self._model.parameters() if p.grad is not None], 1 / len(losses))
        return sum(losses) / len(losses)


class Helper:
    """Another process that computes the gradient of its share of each step."""

    def __init__(self, model: nn.Module, lessons: Lessons, share: Share, threads: int):
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._gradients = [torch.zeros_like(p.data).share_memory_() for p in self._parameters]
        context = multiprocessing.get_context("spawn")  # a forked process may not use autograd
        self._line, its = context.Pipe()
        arguments = (model, self._gradients, lessons, share, threads, its)
        self._process = context.Process(target=serve, args=arguments, daemon=True)
        self._process.start()
        its.close()  # so that this process notices when the other one's end is closed

    def begin(self, step: int) -> None:
        """Tells the process to compute a step."""
        with suppress(BrokenPipeError):  # `loss` says why
            self._line.send(step)

    def loss(self) -> float:
        """Waits for the step's gradient, and returns its loss; raises RuntimeError if the process has ended."""
        try:
            return self._line.recv()
        except (EOFError, ConnectionResetError) as e:
            self._process.join(STOPPED_WITHIN)
            raise RuntimeError(f"A process of the training ended with exit code {self._process.exitcode}.") from e

    def gradients_beside_own(self) -> tuple[list[Tensor], list[Tensor]]:
        """The gradients of this process and those of the other one, of all parameters that the loss depends on."""
        pairs = [(p.grad, other) for p, other in zip(self._parameters, self._gradients, strict=True) if p.grad is not None]
        return [own for own, _ in pairs], [other for _, other in pairs]

    def close(self) -> None:
        """Ends the process, if need be in the middle of a step."""
        self._line.close()
        self._process.join(STOPPED_WITHIN)
        if self._process.is_alive():
            self._process.kill()


def serve(model: nn.Module, gradients: list[Tensor], lessons: Lessons, share: Share, threads: int, line: Connection) -> None:
    """Computes the gradient of each step that arrives on the line into `gradients`, until the line is closed."""
    for number in (signal.SIGINT, signal.SIGTERM):  # they reach all processes of a terminal; the first process then closes the line
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    keep_freed_memory()
    loss_of = lessons(model, share)
    for parameter, gradient in zip((p for p in model.parameters() if p.requires_grad), gradients, strict=True):
        parameter.grad = gradient
    with suppress(EOFError, BrokenPipeError):
        while True:
            step = line.recv()
            torch._foreach_zero_(gradients)
            line.send(alone(loss_of, step))
