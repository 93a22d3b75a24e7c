// Sliders and menus for knobs. A move sets the value and triggers "input"; knobs that are not live are disabled during a run.
const box = element.querySelector(".ft-knobs");
let shown = ""; // owner of the current controls
let running = false;
let declared = { text: "[]", knobs: [] }; // declarations as JSON, and parsed

function declarations() {
  const text = props.value?.declarations ?? "[]";
  if (text !== declared.text) declared = { text, knobs: JSON.parse(text) };
  return declared.knobs;
}

const near = (number) => (Math.abs(number) < 0.001 ? number.toPrecision(2) : number.toFixed(3)); // τ may be 0.0001
const show = (number) => (Number.isInteger(number) ? String(number) : String(+near(number)));

function nearest(stops, value) {
  return stops.reduce((best, stop, i) => (Math.abs(stop - value) < Math.abs(stops[best] - value) ? i : best), 0);
}

function move(name, value) {
  props.value = { ...props.value, values: { ...props.value.values, [name]: value } };
  choose();
  sendValues();
  trigger("input");
}

function sendValues() {
  if (props.value) emit("knobs", { panel: __OWN__, ...props.value, declarations: declarations() });
}

// Another panel may show one of these knobs too.
window.addEventListener("foretoken:ask-knobs", sendValues);
window.addEventListener("foretoken:set", ({ detail }) => {
  if (detail.panel !== __OWN__) return;
  box.querySelector(`[data-knob="${detail.name}"] .ft-control`).put(detail.value);
  move(detail.name, detail.value);
});

function slider(knob, output) {
  const input = node("input", "", { type: "range", min: 0, max: knob.stops.length - 1, step: 1 });
  input.put = (value) => {
    input.value = nearest(knob.stops, value);
    tell(value);
  };
  const tell = (value) => {
    const text = knob.words[show(value)] || show(value);
    output.textContent = text;
    input.setAttribute("aria-valuetext", text);
    input.style.setProperty("--at", `${(100 * input.value) / (knob.stops.length - 1)}%`);
  };
  input.addEventListener("input", () => {
    tell(knob.stops[input.value]);
    move(knob.name, knob.stops[input.value]);
  });
  input.addEventListener("dblclick", () => { input.put(knob.default); move(knob.name, knob.default); });
  return input;
}

function menu(knob) {
  const select = node("select");
  knob.choices.forEach((choice, i) => select.add(new Option(knob.choice_labels[i], choice)));
  select.put = (value) => { select.value = value; };
  select.addEventListener("change", () => move(knob.name, select.value));
  return select;
}

function row(knob) {
  const line = node("div", "", { className: "ft-knob" });
  line.dataset.knob = knob.name;
  line.dataset.live = knob.live;
  line.innerHTML = '<span class="ft-name"></span><button type="button" class="ft-help">?</button><em></em><output></output>';
  const name = knob.symbol ? `${knob.label} (${knob.symbol})` : knob.label, help = line.querySelector(".ft-help");
  line.querySelector(".ft-name").textContent = name;
  help.dataset.tip = knob.help;
  help.setAttribute("aria-label", knob.help);
  help.hidden = !knob.help;
  const control = knob.choices.length ? menu(knob) : slider(knob, line.querySelector("output"));
  control.setAttribute("aria-label", name);
  control.className = "ft-control";
  line.append(control);
  return line;
}

function rest() {
  for (const line of box.querySelectorAll(".ft-knob")) {
    const live = line.dataset.live === "true";
    const { loops } = props.value; // the next run of a loop uses all current knobs
    line.querySelector(".ft-control").disabled = running && !live && !loops;
    line.querySelector("em").textContent = !running ? "" : live ? "live" : loops ? "next picture" : "next run";
  }
}

// Hides knobs without effect under the current value of an earlier knob.
function choose() {
  const line = (name) => box.querySelector(`[data-knob="${name}"]`);
  for (const knob of declarations()) {
    const [other, ...choices] = knob.when;
    line(knob.name).hidden = Boolean(other) && (line(other).hidden || !choices.includes(props.value.values[other]));
  }
}

function draw() {
  const v = props.value;
  if (!v) return;
  if (v.name !== shown) {
    shown = box.dataset.name = v.name;
    box.replaceChildren(...declarations().map(row));
  }
  for (const label of box.querySelectorAll(".ft-knob")) label.querySelector(".ft-control").put(v.values[label.dataset.knob]);
  choose();
  rest();
  sendValues();
}

scope.addEventListener("foretoken:running", (event) => { running = event.detail; rest(); });
watch("value", draw);
draw();
