// Exactness of the chosen settings, with the reason.
const mark = element.querySelector(".ft-badge"), why = element.querySelector(".ft-because");

function draw() {
  const v = props.value;
  if (!v) return;
  mark.textContent = v.word;
  mark.dataset.exact = v.exact;
  why.textContent = v.why;
  emit("summary", { words: v.summary, exact: v.exact }, scope);
}

window.addEventListener("foretoken:ask-summary", draw);
watch("value", draw);
draw();
