"""Starts Foretoken on a machine with only Python: prepares .venv next to this file, then runs app.cli.

usage: python launch.py [--torch cpu|cuda|cu126|cu128|cu130|mps|skip] [--latest] [--dry-run] [COMMAND ...]

  COMMAND        studio (the default), image, mesh, verify, bench, train, models, space, doctor, test; each has its own --help
  --torch cpu    PyTorch for the processor (the default without an NVIDIA driver)
  --torch cuda   PyTorch for NVIDIA, in the build that fits the driver (the default where nvidia-smi is found)
  --torch cu126  one build for NVIDIA; also cu128 and cu130
  --torch mps    PyTorch for the graphics chips of Apple
  --torch skip   installs no PyTorch: uses yours, from the system or from .venv
  --latest       installs the newest versions that pyproject.toml allows instead of the tested ones in constraints.txt
  --dry-run      prints what would be installed and stops

Launcher options go before the command. The first start installs; later starts only compare a stamp in .venv with
pyproject.toml and constraints.txt, which takes milliseconds. Pass --latest at each start: a start without it reinstalls the
tested versions. Nothing is installed outside .venv, and no weights are ever downloaded.
"""

# Standard library only, in the syntax of Python 3.8, so that an old Python prints a message instead of a SyntaxError. Modules that
# only an installation needs are imported where they are used: most starts need none of them.

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import sys
import time
from typing import Callable, NamedTuple, Sequence

OLDEST = (3, 11)
ENTERED = "--entered"  # the first argument when launch.py has started itself again with the Python of .venv
TORCH_CHOICES = ("cpu", "cuda", "cu126", "cu128", "cu130", "mps", "skip")
BUILDS = ((580, "cu130"), (570, "cu128"), (525, "cu126"))  # oldest NVIDIA driver, and the build that it runs
LOG = ".venv-install.log"  # pip's output, next to .venv
SHOWN = 20  # lines of it printed after a failure
CONSTRAINTS = "constraints.txt"  # the tested versions; .ci/constraints.py writes it
# An extra index, tried once: if it cannot be reached, pip uses only the default index.
INDEX = "https://download.pytorch.org/whl/"
CPU_INDEX = ("--extra-index-url", INDEX + "cpu", "--timeout", "15", "--retries", "0")

Pip = Sequence[str]  # the arguments of one pip call


class Plan(NamedTuple):
    """Plan of one start. decide() builds it without side effects, so that tests can read it."""

    arguments: tuple[str, ...] = ()  # for app.cli
    steps: tuple[tuple[Pip, ...], ...] = ()  # in order; each is a pip call, followed by calls to try if it fails
    stamp: str = ""  # written once all steps have succeeded
    torch: str = ""
    isolated: bool = True  # False: .venv also sees the packages of the system
    dry_run: bool = False
    help: bool = False
    refusal: str = ""  # one sentence; exit code 2


def decide(
    python: Sequence[int],
    argv: Sequence[str],
    nvidia_seen: bool,
    driver: Callable[[], str],
    stamp: str,
    pyproject: str,
    constraints: str,
    system: str = sys.platform,
) -> Plan:
    """The plan for a Python version and the arguments of launch.py.

    nvidia_seen : nvidia-smi is installed; driver : reads the version of the NVIDIA driver, "" = none, and is called if it decides
    stamp, pyproject, constraints : contents of the files, "" = no file
    """
    if tuple(python[:2]) < OLDEST:
        version = ".".join(map(str, python[:2]))
        return Plan(refusal=f"Foretoken needs Python 3.11 or newer; this is {version}. Start launch.py with a newer one.")
    options, command, refusal = split_arguments(argv)
    if refusal or "help" in options:
        return Plan(refusal=refusal, help="help" in options)
    latest = "latest" in options
    if not constraints and not latest:
        return Plan(refusal=f"{CONSTRAINTS} is missing. Restore it with git, or install the newest versions with --latest.")
    old = read_stamp(stamp)
    choice = options.get("torch") or (old.get("torch", "") if old.get("torch_asked") else "")  # a choice is remembered until the next one
    torch = choice or ("cuda" if nvidia_seen else "cpu")
    if torch == "cuda" and is_cuda(old.get("torch", "")):
        torch = old["torch"]
    elif torch == "cuda":
        version = driver()
        torch = build_for(version) if version or choice else "cpu"
    if not torch:
        needed = f"PyTorch for NVIDIA needs driver {BUILDS[-1][0]} or newer; this machine has {version}"
        return Plan(refusal=f"{needed}. Update the driver, or use the processor: python launch.py --torch cpu.")
    extras = {"cuda"} if is_cuda(torch) and system == "linux" else set()
    extras |= {"test": {"test"}, "papers": {"research"}}.get(command[0], set())
    new = {
        "pyproject": hashlib.sha256(pyproject.encode()).hexdigest(),
        "constraints": "" if latest else hashlib.sha256(constraints.encode()).hexdigest(),
        "python": f"{python[0]}.{python[1]}",
        "torch": torch,
        "torch_asked": bool(choice),
        "extras": sorted(extras | (set(old.get("extras", ())) - {"cuda"})),  # tests stay installed
    }
    current = all(old.get(key) == new[key] for key in ("pyproject", "constraints", "python", "torch", "extras"))
    steps = () if current else install_steps(torch, old.get("torch", ""), new["extras"], pyproject, latest, system)
    return Plan(tuple(command), steps, json.dumps(new), torch, torch != "skip", "dry-run" in options)


def is_cuda(torch: str) -> bool:
    """True for a build of PyTorch for NVIDIA."""
    return torch.startswith("cu")


def build_for(driver: str) -> str:
    """The newest build of PyTorch that an NVIDIA driver runs; "" if none does. Without a driver, the newest of all."""
    major = int(driver.split(".")[0]) if driver.split(".")[0].isdigit() else BUILDS[0][0]
    return next((build for oldest, build in BUILDS if major >= oldest), "")


def split_arguments(argv: Sequence[str]) -> tuple[dict[str, str], list[str], str]:
    """(launcher options, command for app.cli, error message or "")."""
    options: dict[str, str] = {}
    rest = list(argv)
    while rest and rest[0].split("=")[0] in ("--torch", "--latest", "--dry-run", "-h", "--help"):
        name, equals, value = rest.pop(0).partition("=")
        if name == "--torch":
            value = rest.pop(0) if rest and not equals else value
            if value not in TORCH_CHOICES:
                return {}, [], f"--torch cannot be '{value}'. Choose one of: {', '.join(TORCH_CHOICES)}."
        options["help" if name in ("-h", "--help") else name[2:]] = value
    if not rest or rest[0].startswith("-"):
        rest.insert(0, "studio")
    return options, rest, ""


def read_stamp(text: str) -> dict:
    """The stamp as a dictionary; empty if it is absent or damaged."""
    try:
        stamp = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(stamp, dict):
        return {}
    return {**stamp, "torch": "cu130"} if stamp.get("torch") == "cuda" else stamp  # its name before there were several builds


def install_steps(
    torch: str, before: str, extras: Sequence[str], pyproject: str, latest: bool, system: str = sys.platform
) -> tuple[tuple[Pip, ...], ...]:
    """The pip calls: PyTorch first and alone, so that its index applies to nothing else; then the build tools; then the project, editable.

    The build uses the setuptools just installed: in isolation, pip would use the newest, untested one.
    """
    versions = ("--upgrade",) if latest else ("-c", CONSTRAINTS)
    tools = (("install", *versions, *build_tools(pyproject)),)
    editable = ("--no-build-isolation", "-e")
    if torch == "skip":  # upgrades only what is named, because the user's PyTorch has dependencies too
        return (tools, (("install", *versions, *without_torch(pyproject, extras)),), (("install", "--no-deps", *editable, "."),))
    pinned = re.search(r'"(torch==[^"]+)"', pyproject)
    if pinned is None:
        raise ValueError("pyproject.toml does not pin torch==")
    plain = ("install", *versions, pinned.group(1))
    if torch == "cpu":
        steps = [((*plain, *CPU_INDEX), plain)]
    elif torch == "mps" or (torch == "cu130" and system == "linux"):  # what the default index has
        steps = [(plain,)]
    else:  # the local version, because without this index pip would take the default one's build for the processor
        steps = [((*plain[:-1], f"{plain[-1]}+{torch}", "--extra-index-url", INDEX + torch),)]
    if before not in ("", "skip", torch):  # pip treats the same version from another index as installed
        steps.insert(0, (("uninstall", "-y", "torch"),))
    everything = ("--upgrade-strategy", "eager") if latest else ()
    project = f".[{','.join(extras)}]" if extras else "."
    return (*steps, tools, (("install", *versions, *everything, *editable, project),))


def build_tools(pyproject: str) -> list[str]:
    """The build requirements."""
    import tomllib  # Python 3.11

    return tomllib.loads(pyproject)["build-system"]["requires"]


def without_torch(pyproject: str, extras: Sequence[str]) -> list[str]:
    """The requirements of the project and its extras, without PyTorch and the Triton version that belongs to it."""
    import tomllib  # Python 3.11

    project = tomllib.loads(pyproject)["project"]
    wanted = project["dependencies"] + [r for extra in extras for r in project["optional-dependencies"][extra]]
    return [r for r in wanted if not r.startswith(("torch==", "triton"))]


def nvidia_driver() -> str:
    """Version of the NVIDIA driver, "" without one."""
    import subprocess

    if shutil.which("nvidia-smi") is None:
        return ""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        output = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        output = ""
    version = output.partition("\n")[0].strip()
    if version[:1].isdigit():
        return version
    say("nvidia-smi reports no driver. Mend it, then start with --torch cuda, or choose the processor with --torch cpu.")
    return ""


def route(inside: bool, venv_python_exists: bool, entered: bool) -> str:
    """The next action: "stay" in the Python of .venv, "enter" it, "make" it first, or "lost" if entering it failed."""
    if inside:
        return "stay"
    if entered:
        return "lost"
    return "enter" if venv_python_exists else "make"


def read(path: str) -> str:
    """Content of a small text file; "" if it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def say(sentence: str) -> None:
    """Prints one line to stderr; stdout belongs to the command, whose last line may be JSON."""
    print(sentence, file=sys.stderr, flush=True)


def pip(arguments: Pip, folder: str) -> bool:
    """Runs the current Python's pip and appends its output to LOG; True if it succeeded."""
    import subprocess

    with open(os.path.join(folder, LOG), "a", encoding="utf-8") as log:
        print("pip " + shlex.join(arguments), file=log, flush=True)
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
        return not subprocess.call(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)


def title_of(arguments: Pip) -> str:
    """The purpose of a pip call, for messages."""
    if arguments[0] == "uninstall":
        return "removing the other build of PyTorch"
    torch = next((name for name in arguments if name.startswith("torch==")), "")
    if torch:
        return f"PyTorch {torch[7:]}{' for the processor' if CPU_INDEX[1] in arguments else ''}"
    return "the tools that build packages" if any(name.startswith("setuptools") for name in arguments) else "Foretoken and its libraries"


def install_summary(output: str) -> str:
    """Number of installed packages and size of the downloads, from pip's output: "21 packages, 310 MB"."""
    units = {"kB": 1e-3, "MB": 1.0, "GB": 1e3}
    size = sum(float(number) * units[unit] for number, unit in re.findall(r"Downloading .*\(([\d.]+) (kB|MB|GB)\)", output))
    installed = re.findall(r"^Successfully installed (.*)", output, re.MULTILINE)
    count = len(installed[-1].split()) if installed else 0
    parts = [f"{count} package{'' if count == 1 else 's'}"] if count else []
    return ", ".join(parts + ([f"{size:,.0f} MB"] if size >= 0.5 else [])) or "nothing new"


def make_venv(venv: str, isolated: bool) -> bool:
    """Creates an empty virtual environment, clearing a broken one; True if it succeeded."""
    import subprocess

    say(f"First start: making {venv}")
    flags = [] if isolated else ["--system-site-packages"]
    return not subprocess.call([sys.executable, "-m", "venv", "--clear", *flags, venv], stdout=2)


def install(plan: Plan, folder: str, stamp: str) -> str:
    """Runs the steps and writes the stamp; returns an error message, "" if all succeeded."""
    import importlib.util
    import subprocess

    if os.path.exists(stamp):
        os.remove(stamp)  # an interrupted installation must not look finished
    if importlib.util.find_spec("pip") is None and subprocess.call([sys.executable, "-m", "ensurepip"], stdout=2):
        return "pip cannot be added to .venv. On Debian or Ubuntu: apt install python3-venv; then delete .venv and start again."
    if plan.torch == "skip" and importlib.util.find_spec("torch") is None:  # checked first: other packages would install a PyTorch
        return f"--torch skip leaves PyTorch to you, but .venv has none. Install yours: {sys.executable} -m pip install torch"
    log = os.path.join(folder, LOG)
    say(f"Installing what Foretoken needs into .venv; this takes some minutes, once. pip's output is in {LOG}.")
    open(log, "w").close()
    for number, attempts in enumerate(plan.steps, 1):
        began, before = time.monotonic(), len(read(log))
        say(f"  {number} of {len(plan.steps)}: {title_of(attempts[0])} ...")
        if not any(pip(arguments, folder) for arguments in attempts):
            say("\n".join(read(log).splitlines()[-SHOWN:]))
            way_out = " If a tested version does not suit this machine, add --latest." if CONSTRAINTS in attempts[-1] else ""
            return f"Installation failed at 'pip {shlex.join(attempts[-1])}'; see pip's message above. Start again to resume.{way_out}"
        say(f"          {install_summary(read(log)[before:])}, {time.monotonic() - began:.0f} s")
    importlib.invalidate_caches()  # so that this process finds what was just installed
    with open(stamp, "w", encoding="utf-8") as file:
        file.write(plan.stamp)
    return ""


def enter(python: str, script: str, arguments: Sequence[str]) -> int:
    """Restarts this file with another Python. Windows cannot replace a process, so there this process waits for the new one."""
    command = [python, script, ENTERED, *arguments]
    if os.name != "nt":
        os.execv(python, command)
    import subprocess

    return subprocess.call(command)


def print_plan(plan: Plan, fresh: bool) -> None:
    """Prints the commands that a start would run."""
    lines = ["python -m venv .venv"] if fresh else []
    for attempts in plan.steps:
        lines += ["pip " + shlex.join(attempts[0]), *("  or, if that fails: pip " + shlex.join(a) for a in attempts[1:])]
    print("\n".join(lines) if lines else "Nothing to install.")
    print("then: app.cli " + shlex.join(plan.arguments))


def main() -> int:
    """Prepares and enters .venv, then runs the command; returns the exit code."""
    folder = os.path.dirname(os.path.abspath(__file__))
    venv = os.path.join(folder, ".venv")
    python = os.path.join(venv, "Scripts", "python.exe") if os.name == "nt" else os.path.join(venv, "bin", "python")
    stamp = os.path.join(venv, "foretoken-stamp.json")
    entered = sys.argv[1:2] == [ENTERED]
    arguments = sys.argv[1 + entered :]
    pyproject, constraints = (read(os.path.join(folder, name)) for name in ("pyproject.toml", CONSTRAINTS))
    nvidia_seen = shutil.which("nvidia-smi") is not None
    plan = decide(sys.version_info, arguments, nvidia_seen, nvidia_driver, read(stamp), pyproject, constraints)
    if plan.refusal:
        say(plan.refusal)
        return 2
    if plan.help:
        print((__doc__ or "").strip())
        return 0
    where = route(os.path.realpath(sys.prefix) == os.path.realpath(venv), os.path.exists(python), entered)
    if plan.dry_run and where in ("stay", "make"):
        print_plan(plan, where == "make")
        return 0
    if where == "lost":
        say(f"{python} does not run inside .venv. Delete the folder .venv and start again.")
        return 1
    if where == "make" and not make_venv(venv, plan.isolated):
        say("Python could not make .venv: see its message above. On Debian or Ubuntu: apt install python3-venv.")
        return 1
    if where != "stay":
        return enter(python, os.path.abspath(__file__), arguments)
    failure = install(plan, folder, stamp) if plan.steps else ""
    if failure:
        say(failure)
        return 1
    from app.cli import main as run_command

    return run_command(list(plan.arguments))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
