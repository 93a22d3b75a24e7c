// Small pictures of the input in six orientations. A click sets the axis and triggers "input"; disabled during a run.
const box = element.querySelector(".ft-axes"), grid = box.querySelector(".ft-axes-grid"), auto = box.querySelector(".ft-auto");
const DOT = 3; // diameter, in cells of the picture
let running = false;

function choose(up) {
  props.value = { ...props.value, up };
  draw();
  trigger("input");
}

function axis(name) {
  const more = { className: "ft-axis", title: `The file's ${name} axis is up`, onclick: () => choose(name) };
  const button = tile(name.startsWith("-") ? `−${name[1]}` : name, more);
  button.dataset.up = name;
  button.setAttribute("aria-label", `${name} up`);
  return button;
}

const drawn = {}; // the current picture, by axis
function draw() {
  const v = props.value;
  if (!v) return;
  if (!grid.childElementCount) grid.append(...Object.keys(v.pictures).map(axis));
  for (const button of grid.children) {
    const name = button.dataset.up, text = v.pictures[name];
    if (drawn[name] !== text) paintDots(button.firstChild, text, DOT);
    drawn[name] = text;
    button.setAttribute("aria-pressed", v.up === name || (v.up === "auto" && v.taken === name));
    button.disabled = running || !text;
  }
  auto.setAttribute("aria-pressed", v.up === "auto");
  auto.disabled = running || !v.taken;
  box.dataset.taken = v.taken;
  box.dataset.asks = Boolean(v.asks) && v.up === "auto" && !running;
}

auto.addEventListener("click", () => choose("auto"));
scope.addEventListener("foretoken:running", (event) => { running = event.detail; draw(); });
watch("value", draw);
draw();
