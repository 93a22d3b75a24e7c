"""Tests of the engine. The models are so small that a second thread would not help."""

import torch

torch.set_num_threads(1)
