// The line above the results. Also tells the other panels of its tab whether a run is in progress.
const box = element.querySelector(".ft-verdict");
const write = (name, text) => {
  const part = box.querySelector(name);
  if (part.textContent !== text) part.textContent = text;
};

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
  write(".ft-costs", v.costs || "");
  emit("running", v.state === "running", scope);
}

watch("value", draw);
draw();
