// The bar that chooses the map and its opacity; canvases listen to its events on the window.
const MAPS = __MAPS__;
const VERDICTS = __VERDICTS__;
const GRADIENT = __GRADIENT__;
const select = element.querySelector("select"), range = element.querySelector("input"), legend = element.querySelector(".ft-legend");
let scales = { probability: 1 };
let missing = {}; // of the latest run: map -> why it has no data
let kinds = []; // kinds of verdicts in the latest run
const STROKES = { 2: "ft-crossed", 4: "ft-struck" }; // kinds with a mark in the map, see canvas.js
const USUAL = 3; // kinds always in the legend; others appear only if they occur

for (const [name, [label]] of Object.entries(MAPS)) select.add(new Option(label, name));

function greyOut() {
  for (const option of select.options) {
    const why = missing[option.value];
    option.disabled = Boolean(why);
    option.textContent = MAPS[option.value][0] + (why ? ` (${why})` : "");
  }
}

function drawLegend() {
  legend.title = MAPS[select.value][1];
  if (missing[select.value]) {
    legend.textContent = `No data: ${missing[select.value]}.`;
    return;
  }
  if (select.value === "accepted") {
    const known = Object.entries(VERDICTS).filter(([kind]) => kind <= USUAL || kinds.includes(Number(kind)));
    const marks = known.map(([kind, { colour, name }]) => swatch(`rgb(${colour})`, name, STROKES[kind]));
    legend.replaceChildren(...marks, swatch("#5a6678", "pale: not yet checked"));
    return;
  }
  if (select.value === "pass") {
    const marks = [["fast", "accelerated"], ["plain", "left side"]].map(([side, text]) => swatch(`var(--ft-${side})`, text));
    legend.replaceChildren(...marks, "committed by the latest pass, or by the pass of the token under the pointer");
    return;
  }
  const bar = node("b");
  bar.style.background = GRADIENT;
  const high = scales[select.value];
  const whole = { step: [1, high + 1], depth: [1, high] }[select.value]; // steps are shown from 1
  const [from, to] = high === undefined ? ["", ""] : whole || [0, high.toFixed(1)];
  const own = select.value === "depth" ? [swatch(`rgb(${VERDICTS[1].colour})`, "the model's own")] : [];
  legend.replaceChildren(...own, String(from), bar, String(to));
}

const [hold, keep, wipe] = ["hold", "keep", "wipe"].map((name) => element.querySelector(`[data-do=${name}]`));
const pressed = (button) => button.getAttribute("aria-pressed") === "true";
let held = false;

function tell() {
  const detail = { map: select.value, opacity: range.value / 100, kept: pressed(keep), wiped: pressed(wipe), held };
  emit("overlay", detail);
  element.closest(".ft-stage")?.querySelector(".ft-sides")?.classList.toggle("ft-wiped", detail.wiped);
  range.style.setProperty("--at", `${range.value}%`);
  drawLegend();
}

function press(button, on) {
  button.setAttribute("aria-pressed", on);
  remember({ map: select.value, opacity: range.value, kept: pressed(keep), wiped: pressed(wipe) });
  tell();
}

function grip(on) {
  if (on === held) return;
  held = on;
  tell();
}

select.addEventListener("change", () => press(keep, true)); // choosing a map also shows it
range.addEventListener("input", () => press(keep, true));
for (const button of [keep, wipe]) button.addEventListener("click", () => press(button, !pressed(button)));
hold.addEventListener("pointerdown", () => grip(true));
for (const name of ["pointerup", "pointerleave", "pointercancel", "blur", "keyup"]) hold.addEventListener(name, () => grip(false));
hold.addEventListener("keydown", (event) => { if (event.key === " " || event.key === "Enter") grip(true); });
window.addEventListener("foretoken:scales", (event) => { scales = event.detail; drawLegend(); });
window.addEventListener("foretoken:kinds", (event) => { kinds = event.detail; drawLegend(); });
window.addEventListener("foretoken:missing", (event) => { missing = event.detail; greyOut(); drawLegend(); });
const { map, opacity, kept, wiped } = recall({ map: select.value, opacity: range.value, kept: false, wiped: false });
if (map in MAPS) select.value = map;
range.value = opacity;
keep.setAttribute("aria-pressed", kept);
wipe.setAttribute("aria-pressed", wiped);
tell();
