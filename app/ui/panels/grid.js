// Nine pictures that grow together. Draws values from app/ui/panels/grid.py.
const box = element.querySelector(".ft-grid"), cells = box.querySelector(".ft-grid-cells");

function cellOf(seed) {
  const button = node("button", "", { type: "button" });
  button.append(new Image(), node("span"));
  button.addEventListener("click", () => {
    const { settings } = props.value;
    if (!settings) return;
    const lock = document.querySelector("#keep input");
    if (!lock.checked) lock.click(); // the race must have this seed
    emit("run-settings", { ...settings, seed: Number(button.dataset.seed) }, scope);
  });
  return button;
}

function draw() {
  const v = props.value;
  box.hidden = !v;
  if (!v) return;
  box.dataset.state = v.state;
  if (cells.childElementCount !== v.cells.length) cells.replaceChildren(...v.cells.map(cellOf));
  v.cells.forEach(({ seed, picture, tokens, limit, words }, i) => {
    const button = cells.children[i], image = button.querySelector("img"), best = i === v.best;
    button.dataset.seed = seed;
    button.dataset.best = best;
    button.dataset.tokens = tokens;
    button.disabled = !v.settings;
    if (picture && image.src !== picture) image.src = picture;
    image.hidden = !picture;
    image.alt = "";
    button.querySelector("span").textContent = [`Seed ${seed}`, words || (v.settings || !limit ? "" : `${Math.round((100 * tokens) / limit)} %`), best ? "best" : ""].filter(Boolean).join(" · ");
  });
  box.querySelector(".ft-grid-hint").textContent = v.hint;
}

watch("value", draw);
draw();
