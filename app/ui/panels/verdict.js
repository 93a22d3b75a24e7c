// The line above the results. Also tells the other panels of its tab whether a run is in progress.
const box = element.querySelector(".ft-verdict");
const write = (name, text) => {
  const part = box.querySelector(name);
  if (part.textContent !== text) part.textContent = text;
};

// A surface of the mesh that the sentence offers: a button once the view has it, which also goes back.
const offer = box.querySelector(".ft-instead");
let surfaces = { known: [], shown: "" };
function drawOffer() {
  const name = props.value?.offer;
  offer.hidden = !surfaces.known.includes(name);
  offer.setAttribute("aria-pressed", surfaces.shown === name);
}
offer.addEventListener("click", () => {
  const { offer: name } = props.value;
  emit("surface", surfaces.shown === name ? surfaces.known[0] : name, scope);
});
scope.addEventListener("foretoken:surface-shown", ({ detail }) => { surfaces = detail; drawOffer(); });

function draw() {
  const v = props.value;
  if (!v) return;
  box.dataset.state = v.state;
  box.dataset.tone = v.tone || "";
  write(".ft-headline", v.headline || "");
  write(".ft-live", v.live || "");
  write(".ft-agreement", v.agreement || "");
  box.querySelector(".ft-agreement").dataset.same = Boolean(v.same);
  box.dataset.fit = v.fits || "";
  write(".ft-fit", v.fit || "");
  write(".ft-detail", v.detail || "");
  box.querySelector(".ft-detail").title = v.costs || "";
  write(".ft-note", v.note || "");
  offerPlaces(v.places, v.places?.map((place, i) => `${place}: ${v.ratios[i].toFixed(1)}×, computed`));
  drawOffer();
  emit("running", v.state === "running", scope);
}

window.addEventListener("foretoken:lost", () => {
  if (box.dataset.state !== "running") return;
  box.dataset.state = "stopped";
  write(".ft-live", "");
  write(".ft-headline", "Stopped");
  emit("running", false, scope);
});
watch("value", draw);
draw();
