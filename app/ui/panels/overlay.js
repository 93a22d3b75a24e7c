// The bar that chooses the map and its opacity; the canvases listen to its events on the window.
const MAPS = __MAPS__;
const VERDICTS = __VERDICTS__;
const GRADIENT = __GRADIENT__;
const select = element.querySelector("select"), range = element.querySelector("input"), legend = element.querySelector(".ft-legend");
let scales = { probability: 1 };
let missing = {}; // of the newest run: map -> why it has none
let kinds = []; // kinds of verdicts in it
const USUAL = 3; // kinds that every method may have; the legend shows the others only when they occur

for (const [name, [label]] of Object.entries(MAPS)) select.add(new Option(label, name));

function swatch(colour, text) {
  const item = document.createElement("span"), mark = document.createElement("i");
  mark.style.background = colour;
  item.append(mark, text);
  return item;
}

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
    const marks = VERDICTS.filter((_, i) => i < USUAL || kinds.includes(i + 1)).map((v) => swatch(`rgb(${v.colour})`, v.name));
    legend.replaceChildren(...marks, swatch("#5a6678", "dim: still a draft"));
    return;
  }
  const bar = document.createElement("b");
  bar.style.background = GRADIENT;
  const high = scales[select.value];
  const whole = { step: [1, high + 1], depth: [1, high] }[select.value]; // the page counts steps from 1
  const [from, to] = high === undefined ? ["", ""] : whole || [0, high.toFixed(1)];
  const own = select.value === "depth" ? [swatch(`rgb(${VERDICTS[0].colour})`, "the model's own")] : [];
  legend.replaceChildren(...own, String(from), bar, String(to));
}

function tell() {
  window.dispatchEvent(new CustomEvent("foretoken:overlay", { detail: { map: select.value, opacity: range.value / 100 } }));
  range.style.setProperty("--at", `${range.value}%`);
  drawLegend();
}

select.addEventListener("change", tell);
range.addEventListener("input", tell);
window.addEventListener("foretoken:scales", (event) => { scales = event.detail; drawLegend(); });
window.addEventListener("foretoken:kinds", (event) => { kinds = event.detail; drawLegend(); });
window.addEventListener("foretoken:missing", (event) => { missing = event.detail; greyOut(); drawLegend(); });
tell();
