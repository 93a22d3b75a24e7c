// Whether the chosen settings are exact, and why.
const mark = element.querySelector(".ft-badge"), why = element.querySelector(".ft-because"), scope = element.closest("[role=tabpanel]") || window;

function draw() {
  const v = props.value;
  if (!v) return;
  mark.textContent = v.word;
  mark.dataset.exact = v.exact;
  why.textContent = v.why;
  scope.dispatchEvent(new CustomEvent("foretoken:summary", { detail: { words: v.summary, exact: v.exact } }));
}

window.addEventListener("foretoken:ask-summary", draw);
watch("value", draw);
draw();
