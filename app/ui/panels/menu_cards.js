// Gives menus of methods their cards, once the model is known: its value is the cards by the menus' ids.
function tell() {
  for (const [panel, cards] of Object.entries(props.value || {})) emit("cards", { panel, cards });
}

watch("value", tell);
tell();
