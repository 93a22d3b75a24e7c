// Fills menus of methods once the model is known; the value is the cards by menu id.
function tell() {
  for (const [panel, cards] of Object.entries(props.value || {})) emit("cards", { panel, cards });
}

watch("value", tell);
tell();
