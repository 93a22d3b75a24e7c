// The chooser of app/ui/panels/elsewhere.py. The choice stays from value to value.
const elsewhere = element.querySelector(".ft-elsewhere"), machines = elsewhere.querySelector("select");
let wanted = ""; // the chosen place; "" = this machine
machines.addEventListener("change", () => { wanted = machines.value; });

// Offers places. An unchanged menu stays as it is, because it may be open.
function offerPlaces(places = [], texts = places.map((place) => `${place}, computed`)) {
  const [here, ...others] = machines.options;
  if (others.map((each) => each.text).join() !== texts.join()) machines.replaceChildren(here, ...texts.map((text, i) => new Option(text, places[i])));
  machines.value = places.includes(wanted) ? wanted : "";
  elsewhere.style.visibility = places.length ? "" : "hidden"; // it keeps its room, so that a result moves nothing
}

const placeAt = () => machines.selectedIndex - 1; // -1: measured here
const axisTitle = (measured) => (placeAt() < 0 ? measured : `Computed speed-up on ${machines.value.replace(/ with (a )?/, ", ")} (×)`);
