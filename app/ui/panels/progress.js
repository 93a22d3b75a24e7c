// Progress bar of a long run. Also tells the other panels of its tab whether a run is in progress.
const box = element.querySelector(".ft-going"), bar = box.querySelector(".ft-going-bar");

function draw() {
  const v = props.value;
  if (!v) return;
  box.dataset.state = v.state;
  box.dataset.done = v.done || 0;
  const text = box.querySelector(".ft-going-text");
  if (text.textContent !== v.text) text.textContent = v.text;
  box.querySelector(".ft-going-detail").textContent = v.detail || "";
  bar.hidden = v.state === "empty";
  bar.setAttribute("aria-valuemax", v.of || 1);
  bar.setAttribute("aria-valuenow", v.done || 0);
  bar.firstChild.style.width = v.of ? `${(100 * v.done) / v.of}%` : "0";
  emit("running", v.state === "running", scope);
}

watch("value", draw);
draw();
