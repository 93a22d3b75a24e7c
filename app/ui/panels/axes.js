// Small pictures of the input in six orientations. A press writes the axis and triggers "input"; they are disabled during a run.
const box = element.querySelector(".ft-axes"), grid = box.querySelector(".ft-axes-grid"), auto = box.querySelector(".ft-auto");
const scope = element.closest("[role=tabpanel]") || window;
const DOT = 3; // diameter, in cells of the picture
let running = false;

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

function choose(up) {
  props.value = { ...props.value, up };
  draw();
  trigger("input");
}

function tile(name) {
  const button = document.createElement("button"), canvas = document.createElement("canvas"), words = document.createElement("span");
  Object.assign(button, { type: "button", className: "ft-axis", title: `The file's ${name} axis is up` });
  button.dataset.up = name;
  words.textContent = name.startsWith("-") ? `−${name[1]}` : name;
  canvas.setAttribute("aria-hidden", "true");
  button.setAttribute("aria-label", `${name} up`);
  button.append(canvas, words);
  button.addEventListener("click", () => choose(name));
  return button;
}

const drawn = {}; // by axis, the picture that is there
function draw() {
  const v = props.value;
  if (!v) return;
  if (!grid.childElementCount) grid.append(...Object.keys(v.pictures).map(tile));
  for (const button of grid.children) {
    const name = button.dataset.up, text = v.pictures[name];
    if (drawn[name] !== text) paint(button.querySelector("canvas"), text);
    drawn[name] = text;
    button.setAttribute("aria-pressed", v.up === name || (v.up === "auto" && v.taken === name));
    button.disabled = running || !text;
  }
  auto.setAttribute("aria-pressed", v.up === "auto");
  auto.disabled = running || !v.taken;
  box.dataset.taken = v.taken;
}

auto.addEventListener("click", () => choose("auto"));
scope.addEventListener("foretoken:running", (event) => { running = event.detail; draw(); });
watch("value", draw);
draw();
