// Receives settings requested by another panel of this tab.
window.addEventListener("foretoken:want", ({ detail }) => {
  if (detail.panel !== __OWN__) return;
  props.value = detail.value;
  trigger("input");
});
