// The menu of methods: the chosen card as a button that opens all cards. A click sets the value and triggers "input".
let cards = __CARDS__;
const box = element.querySelector(".ft-pick"), button = box.querySelector(".ft-picked"), list = box.querySelector(".ft-cards");
let smallest = ""; // the smallest size, if it is the chosen one: methods that draft at a smaller size cannot run then
const of = (name) => cards.find((card) => card.name === name);
// The side of a race that this menu is for; an empty side shows the title of its method.
const SIDE = { method: "right", other: "left" }[__OWN__.replace(/^mesh-/, "")];

function fill(place, card) {
  place.querySelector("b").textContent = card.title;
  const mark = place.querySelector(".ft-badge");
  mark.hidden = card.exact === null;
  mark.textContent = card.exact ? "exact" : "not exact";
  mark.dataset.exact = card.exact;
  const words = card.scaled && smallest ? `Needs a picture larger than ${smallest}.` : card.speed && `${card.speed}.`;
  place.querySelector("small").textContent = [card.about, words].filter(Boolean).join(" ");
}

function makeCard(card) {
  const place = node("button", "", { type: "button", className: "ft-method-card", onclick: () => choose(card.name) });
  place.dataset.name = card.name;
  place.innerHTML = '<b></b><span class="ft-badge"></span><small></small>';
  fill(place, card);
  place.disabled = card.scaled && Boolean(smallest);
  return place;
}

function section(group) {
  const place = node("section");
  place.append(node("h4", group), ...cards.filter((card) => card.group === group).map(makeCard));
  return place;
}

function fillList() {
  const focused = list.contains(document.activeElement) && document.activeElement.dataset.name;
  list.replaceChildren(...[...new Set(cards.map((card) => card.group))].map(section));
  if (focused) [...list.querySelectorAll("button")].find((card) => card.dataset.name === focused)?.focus(); // it went with the old cards
}

function open(shown) {
  list.hidden = !shown;
  button.setAttribute("aria-expanded", shown);
  if (!shown) return;
  list.querySelector('[aria-current="true"]')?.focus();
}

function choose(name) {
  open(false);
  button.focus();
  if (name === props.value) return;
  props.value = name;
  draw();
  trigger("input");
}

function draw() {
  const card = of(props.value);
  if (!card) return;
  fill(button, card);
  box.dataset.name = card.name;
  if (SIDE) {
    scope.foretokenTitles = { ...scope.foretokenTitles, [SIDE]: card.title };
    emit("titles", null, scope);
  }
  for (const each of list.querySelectorAll("button")) each.setAttribute("aria-current", each.dataset.name === card.name);
}

button.addEventListener("click", () => open(list.hidden));
box.addEventListener("focusout", (event) => { if (!box.contains(event.relatedTarget) && event.relatedTarget) open(false); });
document.addEventListener("pointerdown", (event) => { if (!box.contains(event.target)) open(false); });
box.addEventListener("keydown", (event) => {
  const all = [...list.querySelectorAll("button")], at = all.indexOf(document.activeElement);
  const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
  if (event.key === "Escape" && !list.hidden) {
    event.stopPropagation(); // Escape on the page cancels a run
    open(false);
    button.focus();
  } else if (next !== undefined && !list.hidden) {
    event.preventDefault();
    all[Math.max(0, Math.min(all.length - 1, next))].focus();
  } else if (event.key === "ArrowDown" && list.hidden) {
    event.preventDefault();
    open(true);
  }
});
window.addEventListener("foretoken:cards", ({ detail }) => { // of a model loaded in the background
  if (detail.panel !== __OWN__) return;
  cards = detail.cards;
  fillList();
  draw();
});
window.addEventListener("foretoken:knobs", ({ detail }) => {
  const size = detail.panel === "settings" && SIDE && !__OWN__.startsWith("mesh-") && detail.declarations.find((knob) => knob.name === "size");
  const now = size && size.choices[0] === detail.values.size ? detail.values.size : "";
  if (!size || now === smallest) return;
  smallest = now;
  fillList();
  draw();
});
watch("value", draw);
fillList();
draw();
