"""Our methods inside transformers: `model.generate(**inputs, custom_generate=foretoken("sjdpp"), window=32)`.

`foretoken` makes a callable for the `custom_generate` argument of transformers 5. The caller keeps the model, the tokenizer, the logits
processors and the stopping criteria; the engine replaces the decoding loop. See docs/transformers.md.
"""

from __future__ import annotations

from engine.transformers.call import Foretoken, foretoken

__all__ = ["Foretoken", "foretoken"]
