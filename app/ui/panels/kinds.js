// Two buttons: pictures or meshes. A click sets the value and triggers "input"; disabled during a run.
const buttons = [...element.querySelectorAll("button")];

function draw() {
  emit("kind", props.value, scope);
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
