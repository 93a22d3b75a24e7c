// Buttons with small pictures of point clouds. A click sets the name and triggers "input"; disabled during a run.
const box = element.querySelector(".ft-clouds");
const DOT = 2.6; // diameter, in cells of the picture

function cloud({ name, dots }) {
  const button = tile(name, { className: "ft-cloud", onclick: () => { props.value = name; draw(); trigger("input"); } });
  button.dataset.cloud = name;
  paintDots(button.firstChild, dots, DOT);
  return button;
}

function draw() {
  for (const button of box.children) button.setAttribute("aria-pressed", button.dataset.cloud === props.value);
}

scope.addEventListener("foretoken:running", (event) => {
  for (const button of box.children) button.disabled = event.detail;
});
box.append(...__CLOUDS__.map(cloud));
watch("value", draw);
draw();
