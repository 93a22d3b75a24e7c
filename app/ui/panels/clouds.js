// Buttons with small pictures of point clouds. A press writes the name and triggers "input"; they are disabled during a run.
const box = element.querySelector(".ft-clouds"), scope = element.closest("[role=tabpanel]") || window;
const DOT = 2.6; // diameter, in cells of the picture

function paint(canvas, text) {
  const dots = Uint8Array.from(atob(text), (c) => c.charCodeAt(0)), pen = canvas.getContext("2d");
  canvas.width = canvas.height = __SIDE__;
  for (let i = 0; i < dots.length; i += 5) {
    pen.fillStyle = `rgb(${dots[i + 2]} ${dots[i + 3]} ${dots[i + 4]})`;
    pen.beginPath();
    pen.arc(dots[i], dots[i + 1], DOT / 2, 0, 7);
    pen.fill();
  }
}

function tile({ name, dots }) {
  const button = document.createElement("button"), canvas = document.createElement("canvas"), words = document.createElement("span");
  Object.assign(button, { type: "button", className: "ft-cloud" });
  button.dataset.cloud = words.textContent = name;
  canvas.setAttribute("aria-hidden", "true");
  paint(canvas, dots);
  button.append(canvas, words);
  button.addEventListener("click", () => {
    props.value = name;
    draw();
    trigger("input");
  });
  return button;
}

function draw() {
  for (const button of box.children) button.setAttribute("aria-pressed", button.dataset.cloud === props.value);
}

scope.addEventListener("foretoken:running", (event) => {
  for (const button of box.children) button.disabled = event.detail;
});
box.append(...__CLOUDS__.map(tile));
watch("value", draw);
draw();
