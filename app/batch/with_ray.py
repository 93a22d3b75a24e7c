"""A batch through Ray Data: a pool of actors, each with a loaded model, on one machine or a cluster. Ray is an optional dependency.

Ray processes every input at least once: inputs of a dead actor are distributed again. Each result is stored once: an actor skips
finished inputs, and the first of two equal results wins (see folder.py).
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from app.batch.folder import BatchFolder, Row, failed_row, with_entry
from app.batch.inputs import BatchInput
from app.batch.plan import BatchPlan
from engine import errors
from engine.errors import BadFile, ForetokenError, NotSupported

ROOT = Path(__file__).resolve().parents[2]
LOCAL = "local"  # Ray started by this command, on this machine
AUTO = "auto"  # the cluster of this machine
PATIENCE = 10.0  # seconds for a cluster to answer; Ray itself would wait for minutes, uninterruptibly
NOT_THERE = "Ray cannot be used at {} ({}). Start it with `ray start --head`, or leave ADDRESS out."
BLOCKS = 2000  # maximum number of parts; an actor gets one part at a time
TRIES = 3  # retries of a part whose actor died; after that its inputs count as failed
OURS = re.compile(rf"^{re.escape(errors.__name__)}\.(\w+): (.+)$", re.MULTILINE)  # the last line of a traceback of an actor
KEEP = ("FORETOKEN_HOME", "FORETOKEN_KERNELS", "OMP_NUM_THREADS")  # environment variables passed on to actors


@dataclass(frozen=True)
class ActorPool:
    """Number of actors, and the resources of each."""

    actors: int
    cpus: int
    gpus: int


class Worker:
    """An actor with one loaded model. It decodes the inputs of a part together."""

    def __init__(self, plan: str, root: str, at_once: int = 1):
        """plan : as JSON; root : the batch's folder; raises BadFile if this machine does not see it

        at_once : inputs decoded together
        """
        from app.batch.making import Maker

        if not (Path(root) / "batch.json").exists():
            raise BadFile(f"This machine does not see {root}. Give --out a folder on a file system that all machines share.")
        values = json.loads(plan)
        self.maker = Maker(BatchPlan(**{**values, "formats": tuple(values["formats"])}), BatchFolder(Path(root)))
        self.at_once = at_once

    def __call__(self, part: dict[str, Any]) -> dict[str, list[str]]:
        """{"entries": lists of inputs as JSON} -> {"row": their rows as JSON, in the order in which they finished}."""
        entries = [BatchInput(**fields) for text in part["entries"] for fields in json.loads(str(text))]
        return {"row": [json.dumps(row, allow_nan=True) for row in self.maker.rows(entries, self.at_once)]}


class Cluster:
    """The actors of a batch; a context manager that disconnects from Ray, or stops it if it was started here."""

    def __init__(self, address: str, plan: BatchPlan, folder: BatchFolder, actors: int | None = None, at_once: int = 1):
        """address : "local" or the address of a cluster; actors : None: see `pool`; at_once : inputs that an actor decodes together.

        Raises NotSupported without Ray.
        """
        if find_spec("ray") is None or find_spec("pyarrow") is None:
            raise NotSupported("Ray Data is not installed. Install it: .venv/bin/python -m pip install 'ray[data]>=2.60,<2.64'")
        self.plan, self.folder, self.address, self.actors, self.at_once = plan, folder, address, actors, at_once

    def __enter__(self) -> Cluster:
        check_address(self.address)
        import ray

        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
        variables = {name: os.environ[name] for name in KEEP if name in os.environ}
        settings = {
            "runtime_env": {"env_vars": variables | {"PYTHONPATH": path_of_code()}},
            "log_to_driver": True,
            "configure_logging": False,
        }
        try:
            if self.address == LOCAL:
                ray.init(address="local", include_dashboard=False, num_cpus=max(self.actors or 0, os.cpu_count() or 1), **settings)
            else:
                ray.init(address=self.address, **settings)
        except (ConnectionError, ValueError, RuntimeError, TimeoutError) as e:
            reason = (str(e).strip().splitlines() or [type(e).__name__])[0].rstrip(".")
            raise NotSupported(NOT_THERE.format(self.address, reason)) from e
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        import ray

        ray.shutdown()

    def rows(self, entries: Sequence[BatchInput]) -> Iterator[Row]:
        """Yield rows as their parts finish. An input whose actor died at every attempt counts as failed.

        Raises ForetokenError if an actor cannot start.
        """
        import ray

        context = ray.data.DataContext.get_current()
        context.enable_progress_bars, context.max_errored_blocks = False, -1
        sized = pool(ray.cluster_resources(), len(entries), self.actors)
        items = [{"entries": json.dumps([asdict(entry) for entry in part])} for part in parts(entries, self.at_once, sized.actors)]
        results = ray.data.from_items(items, override_num_blocks=min(len(items), BLOCKS)).map_batches(
            Worker,
            fn_constructor_args=(json.dumps(self.plan.row()), str(self.folder.root.resolve()), self.at_once),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=sized.actors),
            num_cpus=sized.cpus,
            num_gpus=sized.gpus,
            max_task_retries=TRIES,
        )
        missing = {entry.number: entry for entry in entries}
        for row in rows_of(results):
            missing.pop(row["number"], None)
            yield row
        for entry in missing.values():
            yield with_entry(
                failed_row(entry, f"Its worker died {TRIES + 1} times. Check for lack of memory, and start the batch again."), entry
            )


def check_address(address: str) -> None:
    """Raises NotSupported unless a cluster answers at the address."""
    if address in (LOCAL, AUTO):
        return
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        if not parts.hostname or not parts.port:
            raise ValueError("it is not HOST:PORT")
        socket.create_connection((parts.hostname, parts.port), PATIENCE).close()
    except (OSError, ValueError) as e:
        raise NotSupported(NOT_THERE.format(address, str(getattr(e, "strerror", None) or e).rstrip("."))) from e


def rows_of(results: Any) -> Iterator[Row]:
    """Yield the rows of a Ray dataset. Re-raises a ForetokenError of an actor; Ray keeps only its text."""
    import ray

    try:
        for record in results.iter_rows():
            yield json.loads(record["row"])
    except ray.exceptions.RayError as e:
        if (ours := error_in(str(e))) is None:
            raise
        raise ours from e


def error_in(text: str) -> ForetokenError | None:
    """The ForetokenError at the end of a traceback; None if it ends with another error."""
    matches = OURS.findall(text)
    kind = getattr(errors, matches[-1][0], None) if matches else None
    return kind(matches[-1][1]) if kind else None


def parts(entries: Sequence[BatchInput], at_once: int, actors: int) -> list[Sequence[BatchInput]]:
    """Split the inputs into parts of at most `at_once`, smaller if some actors would get none."""
    size = max(1, min(at_once, -(-len(entries) // actors)))
    return [entries[i : i + size] for i in range(0, len(entries), size)]


def pool(resources: dict[str, float], inputs: int, actors: int | None) -> ActorPool:
    """One actor per GPU, or without GPUs one single-threaded actor per core; at most one per input.

    resources : of the cluster, as Ray counts them; actors : maximum set by the user, None: all that fit
    """
    gpus, cpus = int(resources.get("GPU", 0)), max(1, int(resources.get("CPU", 1)))
    fit = gpus or cpus  # for more, Ray would wait forever
    return ActorPool(max(1, min(fit, actors or fit, inputs)), 1, 1 if gpus else 0)


def path_of_code() -> str:
    """PYTHONPATH of the actors: this checkout or installation, then the current value."""
    return os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
