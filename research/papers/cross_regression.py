"""Cross-Regression: Unifying Autoregressive and Discrete Diffusion Language Modeling, Abulkhanov et al.: tables 1 to 17, figures 1 to 3."""

from __future__ import annotations

from engine.methods.eagle import PUBLISHED
from research.papers.declaration import Arm, Claim, Drawing, Experiment, Paper, Pictures, not_run, setting_arms

NAME = "cross_regression"
TEXT = "it is about language models and benchmarks of text"
DIFFERS = "Pictures are not text, and one adapter serves all temperatures."
MEDUSA = "Medusa's heads are row heads of pictures (`launch.py train spatial-heads`); without them its row is left out."
DIFFUSION = (
    "LLaDA and Dream are other models, not other ways to decode this one: a masked-diffusion decoder would have to be trained from "
    "scratch for as long as pictogram, and its quality would differ. Nearest: `jacobi` and `sjd` also change many tokens at once."
)
KEY, BY_LAYER = "table-10", "decoding does not read an adapter layer by layer"
TABLE_12 = ((0.05, 0.0, 4.02), (0.05, 4.0, 4.34), (0.2, 4.0, 4.32), (0.5, 4.0, 4.16), (0.05, 8.0, 4.64), (0.2, 8.0, 4.63), (0.5, 8.0, 4.78),
            (0.05, 12.0, 4.92))  # fmt: skip
TABLE_13 = ((0.05, 0.0, 3.01), (0.2, 0.0, 3.01), (0.5, 0.0, 3.01), (0.05, 4.0, 3.10), (0.2, 4.0, 3.08), (0.5, 4.0, 2.99), (0.05, 8.0, 3.24),
            (0.2, 8.0, 3.24))  # fmt: skip
SMOOTHINGS = (0.05, 0.2, 0.5)


def tolerances(smoothing: float) -> tuple[Arm, ...]:
    """A line of the lossy regime: a sweep over Θ at one smoothing."""
    return tuple(
        Arm(f"β = {smoothing:g}", NAME, {"energy_tolerance": t, "energy_smoothing": smoothing}, x=t) for t in (0.0, 4.0, 8.0, 12.0)
    )


def acceptance(key: str, data: str) -> Experiment:
    """A table of acceptance lengths by language model on one benchmark."""
    return not_run(key, f"{key.replace('-', ' ').capitalize()}: {data}", "How many tokens per pass?", "2 to 5.", TEXT, KEY)


PAPER = Paper(
    name="cross_regression", title="Cross-Regression", method=NAME, tables=(1, 17), figures=(1, 3),
    illustrations={"table-2": "differences of frameworks in words", "table-6": "the training's settings",
                   "figure-2": "the decoding as a diagram"},
    experiments=(
        *(not_run(key, f"Table {key[6:]}: training cost", "What does training cost?", "20 GPU hours against 4,600 and more.",
                 "the costs are those of language models with 7 billion parameters", "the seconds in the cards of our models")
          for key in ("table-1", "table-5")),
        Experiment(
            key="table-3", title="Table 3: frameworks", asks="Which framework gives the best speed for its quality?",
            reports="Cross-Regression, lossy, keeps 99.8 % at 4.31 tokens per pass.", reported_on="LLaMA-3 8B, mean of GSM8K and HumanEval",
            runs=Pictures(count=60, arms=(
                Arm("plain", "ar"), Arm("PLD", "lookup"), Arm("Lookahead", "lookahead"), Arm("Medusa", "medusa"),
                Arm("EAGLE", "eagle", PUBLISHED),
                Arm("lossless", NAME), Arm("lossy", NAME, {"energy_tolerance": 14.0, "energy_smoothing": 0.05}),
            )),
            reported={"PLD": {"step_compression": 1.5}, "Lookahead": {"step_compression": 1.72}, "Medusa": {"step_compression": 2.37},
                      "EAGLE": {"step_compression": 3.69},
                      "lossless": {"step_compression": 3.46}, "lossy": {"step_compression": 4.31}},
            claims=(Claim("Lossy commits more tokens per pass", "lossy", "more", "lossless", "step_compression"),
                    Claim("Lossless beats prompt lookup", "lossless", "more", "PLD", "step_compression"),
                    Claim("Lossless beats Medusa", "lossless", "more", "Medusa", "step_compression"),
                    Claim("Lossy keeps the quality", "lossy", "alike", "plain", "objects", 0.05)),
            differs=f"{MEDUSA} {DIFFUSION} {DIFFERS}",
        ),
        not_run("table-4", "Table 4: Whisper", "Does it carry over to speech?", "1.3 to 2.7 times.", "there is no speech model", "table-3"),
        acceptance("table-7", "GSM8K"), acceptance("table-8", "MT-Bench"), acceptance("table-9", "HumanEval"),
        Experiment(
            key=KEY, title="Table 10: temperature", asks="Does acceptance hold at a higher temperature?",
            reports="It falls slightly.", reported_on="LLaMA-3 8B, GSM8K", differs=DIFFERS,
            runs=Pictures(arms=setting_arms("lossless", NAME, "temperature", (0.0, 0.6, 1.0))),
            drawing=Drawing(kind="curve", x="temperature"),
            reported={f"lossless, {t}": {"step_compression": v} for t, v in ((0.0, 3.95), (0.6, 3.83), (1.0, 3.52))},
            claims=(Claim("Acceptance falls with the temperature", "lossless, 1.0", "less", "lossless, 0.0", "step_compression"),),
        ),
        not_run("table-11", "Table 11: the original models", "How good are they?", "By benchmark.", TEXT),
        *(Experiment(
            key=key, title=f"Table {key[6:]}: tolerance and smoothing", asks="What do Θ and β buy?",
            reports="A higher tolerance commits more tokens per pass at nearly the same accuracy.", reported_on=f"LLaMA-3 8B, {data}",
            runs=Pictures(arms=tuple(arm for b in smooth for arm in tolerances(b)), count=12), differs=DIFFERS,
            drawing=Drawing(kind="plane", x="step_compression", y="mean_deviation"),
            reported={f"β = {b:g}, {t}": {"step_compression": v} for b, t, v in reported},
            claims=(Claim("Θ = 8 commits more than Θ = 0", "β = 0.05, 8.0", "more", "β = 0.05, 0.0", "step_compression"),),
        ) for key, data, smooth, reported in (
            ("table-12", "GSM8K", SMOOTHINGS, TABLE_12), ("table-13", "HumanEval", SMOOTHINGS, TABLE_13),
        )),
        Experiment(
            key="table-14", title="Table 14: other methods", asks="How do training-free methods compare?", reports="They accept less.",
            reported_on="Llama-2 7B, GSM8K",
            runs=Pictures(arms=(Arm("plain", "ar"), Arm("PLD", "lookup"), Arm("Lookahead", "lookahead"), Arm("Medusa", "medusa"),
                                Arm("Cross-Regression", NAME))),
            reported={"PLD": {"step_compression": 1.32}, "Lookahead": {"step_compression": 1.58}, "Medusa": {"step_compression": 1.60},
                      "Cross-Regression": {"step_compression": 3.47}},
            claims=(Claim("Lookahead commits more than prompt lookup", "Lookahead", "more", "PLD", "step_compression"),
                    Claim("Cross-Regression commits more than Lookahead", "Cross-Regression", "more", "Lookahead", "step_compression")),
            differs=f"CLLM retrains the whole model and is not here. {MEDUSA} {DIFFERS}",
        ),
        Experiment(
            key="table-15", title="Table 15: joint or sequential", asks="Is drafting and verifying in one pass better?",
            reports="Sequential drafts are accepted more, joint ones cost half.", reported_on="Llama-2 7B, GSM8K",
            differs=f"{DIFFERS} Tokens per pass count drafting passes, as in the paper; accepted drafts are per verifying pass.",
            runs=Pictures(arms=(Arm("sequential", NAME, {"mode": "sequential"}), Arm("joint", NAME, {"mode": "joint"}))),
            drawing=Drawing(y="speedup"), reported={"sequential": {"step_compression": 2.54}, "joint": {"step_compression": 3.47}},
            claims=(Claim("Sequential drafts are accepted more", "sequential", "more", "joint", "accepted_a_pass"),
                    Claim("Joint is faster", "joint", "more", "sequential", "speedup")),
        ),
        not_run("table-16", "Table 16: layers of the adapter", "Which layers need it?", "The middle and late ones.", BY_LAYER, KEY),
        not_run("table-17", "Table 17: model sizes", "Does acceptance grow with the model?", "It does.", "there is one size of model", KEY),
        not_run("figure-1", "Figure 1: scaling", "Does acceptance grow with the model?", "It does.", "there is one size of model", KEY),
        not_run("figure-3", "Figure 3: readout by layer", "What does each layer predict of the tokens ahead?",
               "With the adapter, middle layers already predict them.", BY_LAYER, "the held-out numbers in the adapter's card"),
    ),
)  # fmt: skip
