// Two buttons: pictures or meshes. A press is the value, and triggers "input"; they are disabled during a run.
const buttons = [...element.querySelectorAll("button")], scope = element.closest("[role=tabpanel]") || window;

function draw() {
  scope.dispatchEvent(new CustomEvent("foretoken:kind", { detail: props.value }));
  for (const button of buttons) button.setAttribute("aria-pressed", button.dataset.kind === props.value);
}

for (const button of buttons) {
  button.addEventListener("click", () => {
    if (button.dataset.kind === props.value) return;
    props.value = button.dataset.kind;
    draw();
    trigger("input");
  });
}
scope.addEventListener("foretoken:running", ({ detail }) => { for (const button of buttons) button.disabled = detail; });
watch("value", draw);
draw();
