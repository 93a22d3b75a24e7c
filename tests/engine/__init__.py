"""Tests of the engine. The models here are so small that a second thread only waits for the first."""

import torch

torch.set_num_threads(1)
