// The bar that chooses the map and its opacity; the canvases listen on the window.
const MAPS = __MAPS__;
const VERDICTS = __VERDICTS__;
const GRADIENT = __GRADIENT__;
const select = element.querySelector("select"), range = element.querySelector("input"), legend = element.querySelector(".ft-legend");
let scales = { probability: 1 };

for (const [name, [label]] of Object.entries(MAPS)) select.add(new Option(label, name));

function swatch(colour, text) {
  const item = document.createElement("span"), mark = document.createElement("i");
  mark.style.background = colour;
  item.append(mark, text);
  return item;
}

function drawLegend() {
  legend.title = MAPS[select.value][1];
  if (select.value === "accepted") {
    const marks = VERDICTS.map((v) => swatch(`rgb(${v.colour})`, v.name));
    legend.replaceChildren(...marks, swatch("#5a6678", "dim: still a draft"));
    return;
  }
  const bar = document.createElement("b");
  bar.style.background = GRADIENT;
  const offset = select.value === "step" ? 1 : 0; // people count steps from one
  const high = scales[select.value];
  const text = high === undefined ? "" : offset ? String(high + offset) : high.toFixed(1);
  legend.replaceChildren(offset ? "1" : "0", bar, text);
}

function tell() {
  window.dispatchEvent(new CustomEvent("foretoken:overlay", { detail: { map: select.value, opacity: range.value / 100 } }));
  range.style.setProperty("--at", `${range.value}%`);
  drawLegend();
}

select.addEventListener("change", tell);
range.addEventListener("input", tell);
window.addEventListener("foretoken:scales", (event) => { scales = event.detail; drawLegend(); });
tell();
