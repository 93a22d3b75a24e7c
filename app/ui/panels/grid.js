// Nine pictures or meshes that grow together. Draws values from app/ui/panels/grid.py; a grid of two knobs triggers "input".
const box = element.querySelector(".ft-grid"), cells = box.querySelector(".ft-grid-cells");
const axes = box.querySelector(".ft-grid-axes"), [across, down] = axes.querySelectorAll("select");

function cellOf() {
  const button = node("button", "", { type: "button" });
  button.append(new Image(), node("span"));
  button.querySelector("span").append(node("span"), node("small"));
  button.addEventListener("click", () => {
    const { settings } = props.value.cells[[...cells.children].indexOf(button)];
    if (!settings) return;
    const lock = scope.querySelector("[id$='keep'] input");
    if (!lock.checked) lock.click(); // the race must have this seed
    emit("run-settings", settings, scope);
  });
  return button;
}

axes.querySelector("button").addEventListener("click", () => {
  props.value = { across: across.value, down: down.value };
  trigger("input");
});

function draw() {
  const v = props.value;
  if (v && !v.cells) return; // a request
  box.hidden = !v;
  if (!v) return;
  box.dataset.state = v.state;
  if (cells.childElementCount !== v.cells.length) cells.replaceChildren(...v.cells.map(cellOf));
  v.cells.forEach(({ label, seed, picture, words, settings }, i) => {
    const button = cells.children[i], image = button.querySelector("img"), best = i === v.best;
    button.dataset.seed = seed;
    button.dataset.best = best;
    button.disabled = !settings;
    if (picture && image.src !== picture) image.src = picture;
    image.hidden = !picture;
    image.alt = "";
    button.querySelector("span > span").textContent = label;
    button.querySelector("small").textContent = words;
  });
  box.querySelector(".ft-grid-hint").textContent = v.hint;
  axes.hidden = v.knobs.length < 2;
  [across, down].forEach((menu, i) => {
    menu.replaceChildren(...v.knobs.map(([name, text]) => node("option", text, { value: name })));
    menu.value = v.axes[i] || v.knobs[i]?.[0];
  });
}

watch("value", draw);
draw();
