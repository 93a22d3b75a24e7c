"""The folder for `custom_generate="folder"`: transformers loads it without our package, and it gives the tokens of `generate`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli import main
from engine.errors import BadOutput
from engine.transformers import hub

USE = """
import sys
import torch
from transformers import LlamaConfig, LlamaForCausalLM

sys.modules["engine"] = None  # whoever imports our package fails
torch.manual_seed(0)
shape = dict(vocab_size=40, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, eos_token_id=None)
model = LlamaForCausalLM(LlamaConfig(**shape, pad_token_id=0)).eval()
for weights in model.parameters():
    if weights.ndim == 2:
        torch.nn.init.normal_(weights, std=0.3)
got = []
class Stream:
    def put(self, value):
        got.extend(value.flatten().tolist())
    def end(self):
        got.append("end")
ids, how = torch.tensor([[3, 7, 9]]), dict(max_new_tokens=16, do_sample=False, guidance_scale=2.0)
plain = model.generate(ids, **how).tolist()
ours = model.generate(ids, custom_generate=sys.argv[1], trust_remote_code=True, window=6, streamer=Stream(), **how).tolist()
assert ours == plain, (ours, plain)
assert got == [*plain[0], "end"], got
try:
    model.generate(ids, custom_generate=sys.argv[1], trust_remote_code=True, method="eagle", **how)
except Exception as error:
    print(type(error).__name__, error)
"""


def test_transformers_loads_it_from_a_folder_without_our_package(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "foretoken"
    assert main(["models", "custom-generate", str(folder), "--json"]) == 0
    output = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert sorted(output["files"]) == sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    environment = os.environ | {"HF_MODULES_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", USE, str(folder)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("NotSupported eagle needs a drafter")


def test_its_files_import_nothing_of_ours_but_each_other(tmp_path: Path) -> None:
    names = hub.write(tmp_path / "foretoken")
    texts = [(tmp_path / "foretoken" / name).read_text(encoding="utf-8") for name in names if name.endswith(".py")]
    assert len(texts) > 20
    assert [node for text in texts for node in hub.imports(text)] == []


def test_its_requirements_are_what_the_files_import(tmp_path: Path) -> None:
    hub.write(tmp_path / "foretoken")
    lines = (tmp_path / "foretoken/custom_generate/requirements.txt").read_text(encoding="utf-8").split()
    assert {"torch", "transformers>=5", "numpy"} <= set(lines) <= {
        "torch", "transformers>=5", "numpy", "safetensors", "huggingface_hub", "scipy", "cffi",
    }  # fmt: skip


def test_a_folder_with_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(BadOutput, match="is not empty"):
        hub.write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_file_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("", encoding="utf-8")
    with pytest.raises(BadOutput, match="Cannot write"):
        hub.write(tmp_path / "taken")
